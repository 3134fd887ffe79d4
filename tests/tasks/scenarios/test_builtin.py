"""The five built-in scenarios: their checks pass what is right, and nothing that is nearly right."""

import asyncio

import pytest

from journeyman import sandbox
from journeyman.rewards.checks import Check, CheckResult, run_checks
from journeyman.tasks.scenarios import Scenario, builtin, parse
from tests.support.builder import MODULES, SEEN, UNSEEN, Slip, solution

SCENARIOS = {scenario.name: scenario for scenario in builtin.examples()}


def checked(scenario: Scenario, file: str, code: str) -> dict[str, CheckResult]:
    async def run() -> dict[str, CheckResult]:
        box = sandbox.load("unsafe-local")
        await box.start()
        try:
            checks = [Check(name=check.name, kind=check.kind, text=check.text) for check in scenario.checks]
            files = {path: text.encode() for path, text in {**scenario.files, file: code}.items()}
            return {result.check.name: result for result in await run_checks(box, checks, files=files, setup=scenario.setup)}
        finally:
            await box.close()

    return asyncio.run(run())


def test_there_are_five_each_with_open_and_hidden_checks_and_nothing_vague() -> None:
    assert sorted(SCENARIOS) == sorted(MODULES.values())
    for scenario in SCENARIOS.values():
        assert {check.hidden for check in scenario.checks} == {False, True}
    for name in builtin.EXAMPLES:
        found = parse((builtin.HERE / f"{name}.yaml").read_bytes(), f"{name}.yaml", beside=builtin.HERE)
        assert (found.faults, found.warnings) == ((), ())


@pytest.mark.service
@pytest.mark.parametrize(("file", "name"), MODULES.items())
def test_what_is_right_passes(file: str, name: str) -> None:
    results = checked(SCENARIOS[name], file, solution(file))
    assert {name: result.passed for name, result in results.items()} == dict.fromkeys(results, True), results


@pytest.mark.service
@pytest.mark.parametrize("slip", SEEN, ids=lambda slip: f"{slip.file} {slip.what}")
def test_a_mistake_is_found_by_the_open_checks(slip: Slip) -> None:
    scenario = SCENARIOS[MODULES[slip.file]]
    results = checked(scenario, slip.file, slip.code)
    assert [check.name for check in scenario.checks if not check.hidden and results[check.name].passed is False]


@pytest.mark.service
@pytest.mark.parametrize("slip", UNSEEN, ids=lambda slip: f"{slip.file} {slip.what}")
def test_a_mistake_at_the_edge_is_found_by_the_hidden_checks_alone(slip: Slip) -> None:
    scenario = SCENARIOS[MODULES[slip.file]]
    results = checked(scenario, slip.file, slip.code)
    assert {check.name: results[check.name].passed for check in scenario.checks} == {
        c.name: not c.hidden for c in scenario.checks
    }


def test_the_templates_say_the_same_and_are_sound() -> None:
    found = [parse(builtin.template(kind).encode(), f"t.{kind}", beside=builtin.HERE) for kind in ("yaml", "json")]
    assert found[0].scenarios == found[1].scenarios
    assert len(found[0].scenarios) == 2
    assert all((reading.faults, reading.warnings) == ((), ()) for reading in found)
