"""`journeyman compare`: two files of results, one verdict."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import write
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named, report_lines
from journeyman.core.errors import InputError
from journeyman.experiments.settings import GateSettings

if TYPE_CHECKING:
    from journeyman.core.evaluation import Result
    from journeyman.experiments.compare import EvaluationReport

_FILE = click.Path(path_type=Path)


@click.command()
@click.argument("baseline", type=_FILE)
@click.argument("candidate", type=_FILE)
@click.option(
    "--looks", type=click.IntRange(min=0), default=0, help="How often these tasks were looked at before.  [default: 0]"
)
@click.option("--any-time", is_flag=True, help="You look after every batch and stop when it passes.")
@click.option(
    "--planned-tasks",
    type=click.IntRange(1),
    metavar="N",
    help="Likewise, and you stop at N tasks at the latest: takes fewer.",
)
@options(GateSettings, helps={"min_gain": "A gain worth having.", "min_tasks": "Compared tasks that are needed."})
@click.option(
    "--most-unknown", type=click.FloatRange(0, 1), default=0.05, help="Share of tasks without a verdict.  [default: 0.05]"
)
@json_option
@click.pass_context
def command(
    context: click.Context,
    /,
    *,
    baseline: Path,
    candidate: Path,
    looks: int,
    as_json: bool,
    **bounds: Any,
) -> None:
    """Say whether B is really better than A, from anybody's results.

    Both files hold one JSON object a line, {"task_id": …, "score": 0 to 1 or null}, with "trial" where a task was attempted
    several times. Tasks are paired; the attempts at one task count as one. Where the project here has a store, the look at
    these tasks is counted in it. Exit code 0: passed, 1: not passed, 2: the files cannot be used.

    \b
    Example:
      journeyman compare baseline.jsonl candidate.jsonl
    """
    with options_named():
        report = _compared(baseline, candidate, looks=looks, bounds=bounds)
    if not as_json:
        write(*report_lines(report))
    emit(report.json(), as_json=as_json)
    context.exit(0 if report.passed else 1)


def _compared(baseline: Path, candidate: Path, *, looks: int, bounds: Mapping[str, Any]) -> "EvaluationReport":
    """Compare two files of results; the look is counted in the project's store, where it has one."""
    # Late, all of it: a store and its database are not needed to show the options.
    from journeyman.core.gate import BetterAsPlanned, BetterAtAnyTime, BetterOnHeldOut
    from journeyman.core.task import Task
    from journeyman.experiments import settings, wiring
    from journeyman.experiments.compare import compare, read_results, result_lines
    from journeyman.experiments.evaluator import HeldOutEvaluator, Look, Subject
    from journeyman.experiments.run import blocking
    from journeyman.stores import open_store

    def digest(found: Sequence["Result"]) -> str:
        return hashlib.sha256("\n".join(sorted(result_lines(found))).encode()).hexdigest()[:16]

    wanted = settings.configured(GateSettings, GateSettings.known(provided(bounds)))
    limits = {each.name: getattr(wanted.gate, each.name) for each in fields(wanted.gate)}
    any_time, planned = bounds["any_time"], bounds["planned_tasks"]
    limits["most_unknown"] = bounds["most_unknown"]
    if any_time and planned:
        raise InputError("--any-time is for who has no plan; leave it out beside --planned-tasks")
    kind = BetterAtAnyTime if any_time else BetterOnHeldOut
    gate = BetterAsPlanned(planned_tasks=planned, **limits) if planned else kind(**limits)
    grows = any_time or planned
    before, after = read_results(baseline), read_results(candidate)
    ids = sorted({result.task_id for result in (*before, *after)})
    # Who looks after every batch looks at one candidate, in one file that grows.
    names = [str(path.resolve()) for path in (baseline, candidate)] if grows else [digest(before), digest(after)]
    subject = Subject(
        candidate=names[1],
        baseline=names[0],
        # The questions are not known, and what has the same names is taken for the same.
        tasks=[Task(id=id, question=f"compared {id}") for id in ids] if not grows else [Task(id="", question=names[0])],
        settings={"gate": repr(gate)},
        deterministic=True,
    )

    def measure(look: Look) -> "EvaluationReport":
        return compare(before, after, gate=gate, looks=max(looks, look.before))

    with open_store(settings.load().store_url, make=False) as store:
        work = HeldOutEvaluator(store=store).evaluate(
            subject, measure, id=f"compare-{wiring.now():%Y%m%d-%H%M%S-%f}", records=lambda report: [(names[0], report)]
        )
        return blocking(work)
