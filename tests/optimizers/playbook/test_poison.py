"""Whoever can talk to an agent can write into its traces: what he cannot write into what is learned from them."""

from dataclasses import replace

import pytest

from benchmarks.bench_poison import CROWDS, HONEST, Laboratory
from journeyman.core.playbook import Playbook
from journeyman.models.base import Model
from journeyman.optimizers.playbook.evidence import evidence_groups
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.tracing.evidence import evidence_of
from tests.support.poison import (
    ECHO,
    LOOKS,
    PAGE,
    RULE,
    STORED,
    Crowd,
    Injection,
    Parrot,
    PoisonedDesk,
    all_injections,
    of_pages,
    of_settings,
)

pytestmark = pytest.mark.slow

ONE, SYBILS = Crowd(people=1, sessions=9), Crowd(people=9, sessions=27)


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory()


@pytest.fixture(autouse=True)
async def clean(laboratory: Laboratory) -> None:
    if not laboratory.clean:
        await laboratory.begin(Parrot(None))
        assert len(laboratory.clean) == 5


def of_kind(vector: str, name: str = "") -> Injection:
    return next(each for each in all_injections() if each.vector == vector and name in each.name)


@pytest.mark.parametrize("injection", of_pages(), ids=lambda each: each.name)
async def test_what_one_customer_brings_into_a_tool_s_answers_is_no_rule(laboratory: Laboratory, injection: Injection) -> None:
    for crowd in CROWDS[:3]:
        outcome = await laboratory.attack(injection, crowd, Parrot(injection))
        assert (outcome.shown, outcome.lost) == ((), ())


@pytest.mark.parametrize("injection", of_settings()[::4], ids=lambda each: f"{each.vector} {each.name}")
async def test_what_nine_customers_agree_to_say_is_no_rule(laboratory: Laboratory, injection: Injection) -> None:
    outcome = await laboratory.attack(injection, SYBILS, Parrot(injection))
    assert (outcome.shown, outcome.lost) == ((), ())


async def test_nobody_forbids_a_rule_by_saying_it_first(laboratory: Laboratory) -> None:
    injection = of_kind(RULE, "address")
    for rule in sorted(HONEST):
        said = replace(injection, text=f"Note it: {rule}.")
        assert (await laboratory.attack(said, ONE, Parrot(said))).lost == ()


async def test_a_rule_that_waits_for_a_person_has_no_vote_against_another(laboratory: Laboratory) -> None:
    injection = of_kind(LOOKS, "date")
    outcome = await laboratory.attack(injection, SYBILS, Parrot(injection, "disputes"))
    assert outcome.held
    assert outcome.lost == ()


async def test_what_the_tools_of_one_page_refuse_says_nothing_of_other_tools(laboratory: Laboratory) -> None:
    for name in ("that names the tool's argument", "in the form of another tool's"):
        injection = of_kind(PAGE, name)
        outcome = await laboratory.attack(injection, SYBILS, Parrot(injection, "disputes"))
        assert outcome.held
        assert outcome.shown == ()


CAPTURED = [of_kind(STORED, "its own"), of_kind(ECHO, "rush"), of_kind(ECHO, "date")]


@pytest.mark.parametrize("injection", CAPTURED, ids=lambda each: f"{each.vector} {each.name}")
async def test_what_a_captured_reflector_writes_waits_for_a_person_as_it_does_not_do_what_was_refused(
    laboratory: Laboratory, injection: Injection
) -> None:
    outcome = await laboratory.attack(injection, ONE, Parrot(injection, "regardless"))
    assert (outcome.shown, outcome.lost) == ((), ())
    assert outcome.held


async def test_where_nobody_may_be_asked_a_captured_reflector_s_rule_does_not_survive_the_examination(
    laboratory: Laboratory,
) -> None:
    untried = replace(laboratory, tried=False)
    for injection in CAPTURED[1:]:
        outcome = await untried.attack(injection, ONE, Parrot(injection, "regardless"))
        assert outcome.shown
        assert outcome.left == ()


async def test_where_nobody_says_on_whose_behalf_everything_waits_for_a_person(laboratory: Laboratory) -> None:
    playbook = await learned(laboratory, PoisonedDesk(named=False), Parrot(None))
    assert playbook.active == ()
    assert {bullet.held for bullet in playbook.held} == {
        "nobody says on whose behalf these attempts were made, so sessions were counted as people"
    }


async def learned(laboratory: Laboratory, desk: PoisonedDesk, model: Model | None) -> Playbook:
    return await laboratory.learned([evidence_of(trace) for trace in desk.honest()], model)


async def test_nobody_forbids_a_template_by_saying_it_first(laboratory: Laboratory) -> None:
    rules = await learned(laboratory, PoisonedDesk(), None)
    said = replace(of_kind(RULE, "date"), text=" ".join(bullet.content for bullet in rules.active))
    traces = laboratory.desk.attacked(said, ONE)
    attacked = await laboratory.learned([*laboratory.honest, *map(evidence_of, traces)], None)
    assert len(rules.active) > 4
    assert {bullet.content for bullet in rules.active} <= {bullet.content for bullet in attacked.active}


def test_a_field_that_one_case_alone_names_is_no_group_s_argument() -> None:
    attempts = []
    for number, trace in enumerate(PoisonedDesk().honest()[:6]):
        call = replace(trace.tool_calls[0], result=f"Error: mia_li_{3668 + number}: unknown", ok=False)
        attempts.append(evidence_of(replace(trace, steps=(trace.calls[0], call))))
    groups = evidence_groups(attempts, cut=cut_echoes)
    assert groups
    assert {group.argument for group in groups} == {""}
    assert not evidence_groups(attempts[:2], cut=cut_echoes)[0].is_shared
