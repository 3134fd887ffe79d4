"""Every known way to be paid without doing the task: none is paid, and most would be by whoever trusts what a run says."""

import asyncio
from types import SimpleNamespace

import pytest

from journeyman.rewards import reward_hacking
from journeyman.rewards.reward_hacking import CHEATS, TESTS, WAYS, HackingResult, try_cheats
from journeyman.rewards.unit_tests import UnitTests, UnitTestVerdict
from tests.support.walled import walled


@pytest.mark.attacks
@pytest.mark.parametrize("name", ["auto", pytest.param("landlock", marks=pytest.mark.nightly)])
async def test_no_cheat_is_paid_an_honest_solution_is_and_most_cheats_fool_who_trusts_the_run(name: str) -> None:
    tried: dict[str, HackingResult] = {}
    async with walled(name) as box:
        told = await try_cheats(box, workers=12, done=lambda found: tried.update({found.name: found}))
    honest = tried.pop("honest")
    assert dict(honest.ours) == dict.fromkeys(WAYS, True)
    assert all(honest.trusting.values())
    assert set(tried) == {cheat.name for cheat in CHEATS}
    assert told["honest_paid"]
    ways = {cheat.name: set(WAYS) if cheat.tests == TESTS else set(tried[cheat.name].ours) for cheat in CHEATS}
    not_refused = {name: dict(found.ours) for name, found in tried.items() if found.ours != dict.fromkeys(ways[name], False)}
    assert not_refused == {}
    assert sum(len(each) == 1 for each in ways.values()) == 2
    # The control: if nobody were fooled by them, that they are not paid here would say nothing.
    assert told["trusting"]["exit_code"] >= 20
    assert told["trusting"]["result_file"] >= 10
    assert told["trusting"]["stdout"] >= 10
    everywhere = [name for name, each in ways.items() if each == set(WAYS)]
    assert sum(any(tried[name].trusting.values()) for name in everywhere) >= len(everywhere) * 0.75


def test_no_two_cheats_have_one_name() -> None:
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)


async def test_no_more_programs_run_at_once_than_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    running, most = 0, 0

    async def ran(*_: object, **__: object) -> tuple[()]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return ()

    async def tested(*_: object) -> UnitTestVerdict:
        await ran()
        return UnitTestVerdict(passed=False, evidence="")

    async def ended(*_: object) -> tuple[SimpleNamespace, bool]:
        await ran()
        return SimpleNamespace(ok=False), False

    monkeypatch.setattr(reward_hacking, "to_its_end", ended)
    monkeypatch.setattr(reward_hacking, "run_checks", ran)
    monkeypatch.setattr(UnitTests, "check", tested)
    monkeypatch.setattr(reward_hacking, "_believed", lambda *_: {"exit_code": False})
    box = SimpleNamespace(run=ran, level="none")
    told = await try_cheats(box, workers=5)
    assert (told["cheats"], most) == (len(CHEATS), 5)
