"""The work behind `journeyman compare`, apart from its options."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from journeyman.core.evaluation import Result
from journeyman.core.gate import BetterAtAnyTime, BetterOnHeldOut
from journeyman.core.task import Task
from journeyman.experiments import settings, wiring
from journeyman.experiments.compare import EvaluationReport, compare, read_results, result_lines
from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
from journeyman.experiments.run import blocking
from journeyman.stores import open_store


def run(baseline: Path, candidate: Path, *, looks: int, any_time: bool, bounds: Mapping[str, Any]) -> EvaluationReport:
    """Compare two files of results; the look is counted in the project's store, where it has one."""
    gate = (BetterAtAnyTime if any_time else BetterOnHeldOut)(**bounds)
    before, after = read_results(baseline), read_results(candidate)
    ids = sorted({result.task_id for result in (*before, *after)})
    # Who looks after every batch looks at one candidate, in one file that grows.
    names = [str(path.resolve()) for path in (baseline, candidate)] if any_time else [_digest(before), _digest(after)]
    subject = Subject(
        candidate=names[1],
        baseline=names[0],
        # The questions are not known, and what has the same names is taken for the same.
        tasks=[Task(id=id, question=f"compared {id}") for id in ids] if not any_time else [Task(id="", question=names[0])],
        settings={"gate": repr(gate)},
        deterministic=True,
    )

    def measure(look: Look) -> EvaluationReport:
        return compare(before, after, gate=gate, looks=max(looks, look.before))

    with open_store(settings.load().store_url, make=False) as store:
        work = HeldOutEvaluator(store=store).evaluate(
            subject, measure, id=f"compare-{wiring.now():%Y%m%d-%H%M%S-%f}", records=lambda report: [(names[0], report)]
        )
        return blocking(work)


def _digest(found: Sequence[Result]) -> str:
    return hashlib.sha256("\n".join(sorted(result_lines(found))).encode()).hexdigest()[:16]
