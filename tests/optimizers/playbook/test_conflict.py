import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.playbook import Bullet, Insight, Playbook
from journeyman.optimizers.playbook.conflict import conflicts, contradicts, distinct, usable, winner


def rule(content: str, **fields: str) -> Insight:
    return Insight(content=content, **fields)  # type: ignore[arg-type]


def bullets(*contents: str) -> tuple[Bullet, ...]:
    return tuple(Bullet(id=f"b-{number}", content=content) for number, content in enumerate(contents))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Always write dates as ISO.", "Never write dates as ISO."),
        ("Round intermediate results.", "Do not round intermediate results."),
        ("Round the intermediate results", "Avoid rounding intermediate results"),
        ("You must include the currency symbol.", "You must not include the currency symbol in answers."),
        ("Don't guess the city.", "Guess the city."),
        ("The amount is in cents.", "The amount is not in cents."),
        ("When quoting prices, always use cents.", "When quoting prices, never use cents."),
        ("Dates: write the year first.", "Dates: never write the year first."),
        ("Write the month first.", "Write the month last."),
        ("Use uppercase for cities.", "Use lowercase for cities."),
        ("Use cents instead of euros.", "Use euros instead of cents."),
        ("Convert units before comparing.", "Convert units after comparing."),
    ],
)
def test_opposite_rules_contradict(one: str, other: str) -> None:
    assert contradicts(rule(one), rule(other))
    assert contradicts(rule(other), rule(one))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Always write dates as ISO.", "Write dates as ISO"),
        ("Never use lowercase for cities.", "Use uppercase for cities."),
        ("Avoid guessing.", "Never guess."),
        ("Check units; never guess.", "Check the units."),
        ("Do not multiply the price by the quantity.", "Multiply the weight by the distance."),
        ("Never call the API before login at the bank.", "Call the API before login at the shop."),
        ("Round to 2 decimals.", "Never round to 3 decimals."),
        ("Check all the units in the table; never guess.", "Check all the units in the table."),
        ("Use cents before euros.", "Use euros after cents."),
        ("", "Never."),
    ],
)
def test_rules_that_can_both_be_followed_do_not_contradict(one: str, other: str) -> None:
    assert not contradicts(rule(one), rule(other))
    assert not contradicts(rule(other), rule(one))


def test_one_setting_has_one_value() -> None:
    iso, german = rule("Write 2026-03-05.", about="dates"), rule("Write 05.03.2026.", about="dates")
    assert contradicts(iso, german)
    assert not contradicts(iso, replace(german, about=""))
    assert not contradicts(iso, replace(german, domain="rome"))
    assert not contradicts(iso, rule("write 2026-03-05", about="dates"))
    assert not contradicts(rule("Write the year first.", about="dates"), rule("Always write the year first!", about="dates"))


def test_the_verdict_harmful_turns_a_rule_round() -> None:
    assert contradicts(rule("Use cents."), rule("Use cents", section="harmful"))
    assert not contradicts(rule("Never use cents."), rule("Using cents", section="harmful"))
    assert not contradicts(rule("Never use cents.", section="helpful"), rule("Never use cents.", section="harmful"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Round to 2 decimals.", "Round to 3 decimals."),
        ("Call 'get_user' with a token.", "Call 'get_order' with a token."),
        ("Dates are in ISO form.", "Dates are in US form."),
        ("Pass order_id to the tool.", "Pass user_id to the tool."),
    ],
)
def test_near_rules_that_differ_in_a_number_a_quotation_or_a_name_are_two(one: str, other: str) -> None:
    assert distinct(rule(one), rule(other))
    assert not contradicts(rule(one), rule(other))


def test_emphasis_is_no_name() -> None:
    assert not distinct(rule("ALWAYS check the unit."), rule("Always check the UNIT first."))


@given(st.text(max_size=30), st.text(max_size=30), st.sampled_from(["helpful", "harmful"]))
def test_contradiction_is_symmetric_and_never_with_oneself(one: str, other: str, section: str) -> None:
    first, second = rule(one), rule(other, section=section)
    assert contradicts(first, second) == contradicts(second, first)
    assert not contradicts(first, first)
    assert not distinct(second, second)


def test_conflicts_are_found_within_a_domain_among_active_bullets() -> None:
    always, never, other = bullets("Always use cents.", "Never use cents.", "Be brief.")
    assert conflicts(Playbook(bullets=(always, never, other))) == (("b-0", "b-1"),)
    assert conflicts(Playbook(bullets=(always, replace(never, domain="rome")))) == ()
    assert conflicts(Playbook(bullets=(always, replace(never, retired="wrong")))) == ()


WORDS = st.lists(
    st.sampled_from(["use", "cents", "euros", "never", "not", "always", "before", "after", "first", "last", "round", "in"]),
    min_size=1,
    max_size=5,
)


@given(st.lists(st.tuples(WORDS, st.sampled_from(["", "", "money"])), max_size=7))
def test_the_shortcut_misses_no_conflict(found: list[tuple[list[str], str]]) -> None:
    made = tuple(Bullet(id=f"b-{place}", content=" ".join(words), about=about) for place, (words, about) in enumerate(found))
    every = tuple(
        (one.id, other.id) for place, one in enumerate(made) for other in made[place + 1 :] if contradicts(one, other)
    )
    assert conflicts(Playbook(bullets=made)) == every


def test_evidence_decides_then_support_then_age() -> None:
    older, newer = bullets("Always use cents.", "Never use cents.")
    assert winner(older, newer) is older
    supported = replace(newer, support=2)
    assert winner(older, supported) is supported
    proven = replace(older, helpful=3, harmful=1)
    assert winner(proven, supported) is proven
    locked = replace(newer, harmful=9, locked=True)
    assert winner(proven, locked) is locked


def test_losers_are_withheld_and_who_loses_to_a_loser_is_not() -> None:
    always, never, also = bullets("Always use cents.", "Never use cents.", "Please use cents")
    best = replace(always, helpful=5)
    worst = replace(also, harmful=1)
    assert usable(Playbook(bullets=(best, never, worst)), "general") == (best, worst)
    assert usable(Playbook(bullets=(always, replace(never, helpful=1), also)), "general")[0].id == "b-1"
    assert usable(Playbook(bullets=(best,)), "rome") == ()


@pytest.mark.slow
def test_thousands_of_bullets_are_looked_through_in_seconds() -> None:
    texts = (f"{'Never' if at % 2 else 'Always'} put item {at % 97} near shelf {at % 101} of order {at}" for at in range(3000))
    playbook = Playbook(bullets=bullets(*texts))
    started = time.process_time()
    assert conflicts(playbook) == ()
    assert time.process_time() - started < 5
