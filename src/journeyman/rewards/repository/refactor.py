"""Was code made simpler without doing anything else? It is measured, its tests are believed, and old and new are compared."""

from journeyman.core.score import Reward
from journeyman.rewards.repository.behaviour import FEWEST, Target, behaviour, comparable, differing
from journeyman.rewards.repository.source import hiding, more_tangled, not_offered_alike, tangled, unparsable
from journeyman.rewards.repository.verdict import TestsPass, Work, done
from journeyman.sandbox.base import Sandbox


class Refactored:
    """The complexity of one function fell, of no other it rose, and all do what they did."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        if why := unparsable(work.left) or _not_simpler(work):
            return done(False, why)
        passed = await TestsPass().check(work, box)
        if passed.value != 1.0:
            return passed
        target = Target.of(work.task.checks.measure, work.task.checks.pass_to_pass)
        old = await behaviour(box, work.task.examined(work.tree, work.start), target, work.plugins)
        if comparable(old) < FEWEST:
            return done(None, f"only {comparable(old)} inputs could be tried on the code as it was. {old.broken}".strip())
        new = await behaviour(box, work.task.examined(work.tree, work.left), target, work.plugins)
        if why := differing(old, new):
            return done(False, why)
        return done(True, f"it is as simple as was asked, and does the same with {comparable(old)} inputs")


def _not_simpler(work: Work) -> str:
    """Why what was asked is not met, as the code stands there; empty where it is."""
    measure = work.task.checks.measure
    place, most = (measure["path"], measure["function"]), int(measure["most"])
    before, after = tangled(work.start), tangled(work.left)
    if place not in after:
        return f"{measure['function']} is no longer in {measure['path']}"
    if after[place] > most:
        return f"{measure['function']} has a complexity of {after[place]}, and {most} was asked"
    return more_tangled(before, after, most) or hiding(work.start, work.left) or not_offered_alike(work.start, work.left)
