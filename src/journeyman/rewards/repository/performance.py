"""Was code made as fast as it can be? Counted in instructions, beside the reference, on calls that nobody was shown."""

from journeyman.core.score import Reward
from journeyman.rewards.repository.instructions import MOST, CountedCalls, as_fast, cost
from journeyman.rewards.repository.source import hiding, not_offered_alike, unparsable
from journeyman.rewards.repository.verdict import TestsPass, Work, done
from journeyman.sandbox.base import Sandbox


class AsFast:
    """It takes no more than the reference does at any size, gives the same, and its tests are believed."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        if why := unparsable(work.left) or hiding(work.start, work.left) or not_offered_alike(work.start, work.left):
            return done(False, why)
        passed = await TestsPass().check(work, box)
        if passed.value != 1.0:
            return passed
        workload = CountedCalls.of(work.task.checks.measure)
        right = await cost(box, work.right, workload)
        if right.missing or right.broken:
            return done(None, right.missing or f"the reference could not be counted: {right.broken}")
        left = await cost(box, work.left, workload, beside=right.instructions)
        if left.broken or left.gave != right.gave[: len(left.gave)]:
            return done(False, left.broken or "it does not give what it should where there is much")
        # Shorter where it was stopped.
        shares = [mine / max(1, its) for mine, its in zip(left.instructions, right.instructions, strict=False)]
        told = ", ".join(f"{share:.2f} at {size}" for share, size in zip(shares, workload.sizes, strict=False))
        good = as_fast(left.instructions, right.instructions)
        return done(good, f"instructions beside the reference's: {told}; {MOST} is the most")
