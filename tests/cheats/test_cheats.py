"""Every known way to be paid without doing the task: none is paid, and most would be by whoever trusts what a run says."""

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from journeyman.rewards.reward_hacking import CHEATS, HONEST, WAYS, Cheat, attempt
from journeyman.sandbox.base import Sandbox
from tests.support.walled import walled

pytestmark = pytest.mark.attacks


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with walled() as found:
        yield found


async def test_an_honest_solution_is_paid_in_every_way(box: Sandbox) -> None:
    tried = await attempt(box, Cheat(name="honest", how="", code=HONEST))
    assert dict(tried.ours) == dict.fromkeys(WAYS, True)
    assert all(tried.trusting.values())


@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
async def test_a_cheat_is_not_paid(box: Sandbox, cheat: Cheat) -> None:
    tried = await attempt(box, cheat)
    assert dict(tried.ours) == dict.fromkeys(WAYS, False)


async def test_the_cheats_are_real(box: Sandbox) -> None:
    """The control: if nobody were fooled by them, that they are not paid here would say nothing."""
    fooled: Counter[str] = Counter()
    someone = 0
    for cheat in CHEATS:
        tried = await attempt(box, cheat)
        fooled.update(kind for kind, paid in tried.trusting.items() if paid)
        someone += any(tried.trusting.values())
    assert fooled["exit_code"] >= 20
    assert fooled["result_file"] >= 10
    assert fooled["stdout"] >= 10
    assert someone >= len(CHEATS) * 0.8


def test_no_two_cheats_have_one_name() -> None:
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
