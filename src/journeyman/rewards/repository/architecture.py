"""Does a module no longer know what it must not know? Told by the imports in the code, with its tests believed."""

from journeyman.core.score import Reward
from journeyman.rewards.repository.source import cycles, hiding, imports, not_offered_alike, reached, unparsable
from journeyman.rewards.repository.verdict import TestsPass, Work, done
from journeyman.sandbox.base import Sandbox


class ContractKept:
    """One module does not reach another, no modules reach each other that did not before, and what is offered is the same."""

    async def check(self, work: Work, box: Sandbox) -> Reward:
        if why := unparsable(work.left) or _not_kept(work):
            return done(False, why)
        passed = await TestsPass().check(work, box)
        if passed.value != 1.0:
            return passed
        return done(True, f"{work.task.checks.measure['module']} no longer reaches {work.task.checks.measure['forbidden']}")


def _not_kept(work: Work) -> str:
    """Why the contract does not hold, as the code stands there; empty where it does."""
    module, forbidden = work.task.checks.measure["module"], work.task.checks.measure["forbidden"]
    graph = imports(work.left)
    for gone in (each for each in (module, forbidden) if each not in graph):
        return f"there is no module {gone} any more"
    if forbidden in reached(graph, module):
        return f"{module} imports {forbidden}, or something that does"
    if new := cycles(graph) - cycles(imports(work.right)):
        return f"{' and '.join(min(new))} import each other, which they did not"
    return hiding(work.start, work.left) or not_offered_alike(work.start, work.left)
