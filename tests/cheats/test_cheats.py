"""Every known way to be paid without doing the task: none is paid, and most would be by whoever trusts what a run says."""

import pytest

from journeyman.rewards.reward_hacking import CHEATS, WAYS, HackingResult, try_cheats
from tests.support.walled import walled


@pytest.mark.attacks
async def test_no_cheat_is_paid_an_honest_solution_is_and_most_cheats_fool_who_trusts_the_run() -> None:
    tried: dict[str, HackingResult] = {}
    async with walled() as box:
        told = await try_cheats(box, workers=3, done=lambda found: tried.update({found.name: found}))
    honest = tried.pop("honest")
    assert dict(honest.ours) == dict.fromkeys(WAYS, True)
    assert all(honest.trusting.values())
    assert set(tried) == {cheat.name for cheat in CHEATS}
    not_refused = {name: dict(found.ours) for name, found in tried.items() if dict(found.ours) != dict.fromkeys(WAYS, False)}
    assert not_refused == {}
    # The control: if nobody were fooled by them, that they are not paid here would say nothing.
    assert told["trusting"]["exit_code"] >= 20
    assert told["trusting"]["result_file"] >= 10
    assert told["trusting"]["stdout"] >= 10
    assert sum(any(found.trusting.values()) for found in tried.values()) >= len(CHEATS) * 0.8


def test_no_two_cheats_have_one_name() -> None:
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
