"""Which of many verdicts on an attempt decides."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.reward import Reward, Source, decide, is_guess, is_verified, label, mean_known, verified_first

ORDER = tuple(Source)
REWARDS = st.lists(
    st.builds(
        Reward,
        name=st.sampled_from(["answer", "ada", "tool_success", "format_compliance", "x"]),
        value=st.one_of(st.none(), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
        weight=st.sampled_from([0.0, 1.0, 2.5]),
        source=st.one_of(st.none(), st.sampled_from(ORDER)),
    ),
    max_size=8,
)


@pytest.mark.parametrize(("above", "below"), tuple(combinations(ORDER, 2)))
@pytest.mark.parametrize("good", [True, False])
def test_what_stands_above_overrules_all_that_stands_below(above: Source, below: Source, good: bool) -> None:
    said = [*[Reward(name="x", value=float(not good), source=below)] * 9, Reward(name="y", value=float(good), source=above)]
    found = decide(said)
    assert (found.good, found.value, found.source) == (good, float(good), above)


def test_where_a_person_and_a_check_disagree_both_are_shown() -> None:
    check = Reward(name="answer", value=0.0, evidence='expected "4",\ngot "5"')
    found = decide([label(True, "ada"), check, Reward(name="task_completion", value=1.0)])
    assert found.reason == 'the person ada says good; but the check answer says bad: expected "4", got "5"'
    assert decide([label(False, "ada"), check]).reason == "the person ada says bad"


def test_heuristics_never_make_up_for_a_check_that_failed_or_could_not_tell() -> None:
    heuristics = [Reward(name=name, value=1.0) for name in ("task_completion", "format_compliance", "tool_success")]
    assert decide([*heuristics, Reward(name="answer", value=0.0)]).good is False
    lost = decide([*heuristics, Reward(name="answer", value=None, evidence="no code service answers")])
    assert (lost.good, lost.value) == (None, None)
    assert lost.reason == "undecided: the check answer could not tell: no code service answers"


def test_one_check_that_failed_is_bad_whatever_another_one_could_not_tell() -> None:
    assert decide([Reward(name="answer", value=None), Reward(name="checks", value=0.0)]).good is False


def test_half_of_the_checks_passed_is_no_success_and_half_of_a_judge_s_grade_is_one() -> None:
    assert decide([Reward(name="checks", value=0.5)]).good is False
    assert decide([Reward(name="judge", value=0.5)]).good is True
    assert decide([Reward(name="judge", value=0.5)], threshold=0.6).good is False
    assert decide([Reward(name="checks", value=0.99)], threshold=0.6).good is False
    graded = [Reward(name="whatever", value=1.0), Reward(name="quality", value=0.5)]
    assert (decide(graded).good, decide(graded).value, decide(graded, threshold=0.8).good) == (True, 0.75, False)


def test_good_form_alone_says_nothing() -> None:
    found = decide([Reward(name="format_compliance", value=1.0), Reward(name="efficiency", value=0.1)])
    assert (found.good, found.source) == (None, None)
    assert found.reason == "undecided: nobody says whether it was right"
    assert decide([]).good is None


def test_a_heuristic_at_zero_is_bad_and_the_form_counts_in_the_mean() -> None:
    assert decide([Reward(name="tool_success", value=0.0), Reward(name="format_compliance", value=1.0, weight=9)]).good is False
    low = [Reward(name="tool_success", value=1.0), Reward(name="efficiency", value=0.1, weight=9)]
    assert decide(low).good is False


def test_a_reward_without_weight_says_nothing() -> None:
    assert decide([Reward(name="toxicity", value=0.0, weight=0.0), Reward(name="answer", value=1.0)]).good is True


def test_the_number_of_many_rewards_is_of_those_that_decide() -> None:
    wrong = [
        Reward(name="desk", value=0.0),
        Reward(name="task_completion", value=1.0),
        Reward(name="format_compliance", value=1.0),
    ]
    assert decide(wrong).value == 0.0
    assert decide([Reward(name="a", value=1.0, weight=3), Reward(name="b", value=0.0)]).value == 0.75
    assert decide([Reward(name="a", value=1.0), Reward(name="b", value=None)]).value is None
    assert decide([]).value is None


@given(REWARDS, st.permutations(range(8)))
def test_the_order_in_which_things_were_said_does_not_matter(said: list[Reward], order: list[int]) -> None:
    mixed = [said[at] for at in order if at < len(said)]
    one, other = decide(said), decide(mixed)
    assert (one.good, one.source) == (other.good, other.source)
    assert one.value == pytest.approx(other.value)


@given(REWARDS)
def test_a_verdict_has_one_sentence_and_more_heuristics_change_none_of_a_check(said: list[Reward]) -> None:
    found = decide(said)
    assert found.reason
    assert "\n" not in found.reason
    if found.source not in (None, Source.HEURISTIC, Source.LABELER):
        more = [*said, *(Reward(name=name, value=1.0) for name in ("task_completion", "tool_success", "format_compliance"))]
        assert decide(more) == found


GUESSES = st.lists(
    st.builds(
        Reward,
        name=st.sampled_from(["learned", "judge"]),
        value=st.floats(0, 1),
        weight=st.floats(0.01, 1000),
    ),
    min_size=1,
    max_size=4,
)
CHECKS = st.lists(st.floats(0.1, 3), min_size=1, max_size=3)


@given(CHECKS, GUESSES, GUESSES)
def test_no_guess_lifts_what_a_verifier_calls_wrong_above_what_it_calls_right(
    weights: list[float], one: list[Reward], other: list[Reward]
) -> None:
    def total(passed: float, guesses: list[Reward]) -> float:
        checks = [Reward(name="answer", value=passed, weight=weight) for weight in weights]
        found = mean_known(verified_first([*checks, *guesses]))
        assert found is not None
        return found

    assert total(1.0, one) >= 0.8 - 1e-9
    assert total(0.0, other) <= 0.2 + 1e-9


@given(REWARDS, GUESSES)
def test_only_guesses_get_less_weight_and_only_beside_a_verifier(rewards: list[Reward], guesses: list[Reward]) -> None:
    given_, found = [*rewards, *guesses], verified_first([*rewards, *guesses])
    told = sum(each.weight for each in given_ if is_verified(each) and not is_guess(each))
    for before, after in zip(given_, found, strict=True):
        assert (before.name, before.value) == (after.name, after.value)
        assert after.weight <= before.weight
        assert after == before or (is_guess(before) and told)
    if told:
        known = sum(each.weight for each in found if is_guess(each) and each.value is not None)
        assert known <= 0.25 * told + 1e-6


def test_guesses_order_what_a_verifier_finds_alike() -> None:
    checked = Reward(name="answer", value=1.0)
    one, other = (mean_known(verified_first([checked, Reward(name="learned", value=value)])) for value in (0.9, 0.1))
    assert one is not None
    assert other is not None
    assert one > other
