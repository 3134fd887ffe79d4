"""The work behind `journeyman evaluate`, apart from its options."""

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import PlanLimits
from journeyman.cli.actions.train_playbook import Screen, settled, warn_of_few
from journeyman.cli.console import bar
from journeyman.cli.options import provided
from journeyman.cli.shared import console
from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.evaluation import Totals
from journeyman.core.plan import ExecutionResult
from journeyman.core.playbook import Playbook
from journeyman.core.task import Split
from journeyman.experiments import settings, wiring
from journeyman.experiments.agents import AgentEvaluation
from journeyman.experiments.compare import EvaluationReport, result_lines, results
from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.router.training import OffPolicyReport, of_router, of_worker
from journeyman.experiments.settings import GateSettings
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable
from journeyman.models import embedders
from journeyman.optimizers.playbook import files
from journeyman.optimizers.router.decisions import read
from journeyman.optimizers.router.objective import Objective, parse
from journeyman.optimizers.weights.adapters import read_trained_on
from journeyman.serving.router import find
from journeyman.stores import open_store
from journeyman.tasks.base import Dataset

NONE = "none"
_FILES = ("baseline.jsonl", "candidate.jsonl")
"""Each side's results."""


def run(options: Mapping[str, Any], *, quiet: bool) -> EvaluationReport:
    """Examine a playbook; what is said on the way goes to stderr, the table to stdout."""
    options = dict(options)
    playbook, against = _load(options.pop("playbook")), _load(options.pop("against"))
    output, rival, anywhere = (options.pop(name, None) for name in ("output", "baseline_model", "any_domain"))
    config = settled(TrainingConfig, options)
    for name in _FILES if output else ():
        check_writable(Path(output) / name)
    if "sandbox" in options and config.dataset_name not in wiring.PROGRAMMING:
        raise InputError(f"no program of {config.dataset_name} is run: leave out --sandbox, or name humaneval or mbpp")
    dataset = wiring.load_dataset(config)
    wiring.try_walls(dataset)
    if anywhere:
        playbook, against = _anywhere(dataset, playbook), _anywhere(dataset, against)
    for name, side in (("--playbook", playbook), ("--against", against)):
        _warn(name, side, dataset)
    report = asyncio.run(_examine(config, dataset, playbook, against, rival or "", quiet=quiet))
    if output:
        _write(report, Path(output))
    if not quiet:
        tell(report)
    return report


async def _examine(
    config: TrainingConfig, dataset: Dataset, playbook: Playbook, against: Playbook, rival: str, *, quiet: bool
) -> EvaluationReport:
    examined = replace(dataset, tasks=dataset.split(Split.HELD_OUT)[: config.held_out])
    if not examined.tasks:
        raise InputError(
            f"the data set {config.dataset_name!r} has no held-out tasks to examine on; name some: --held-out-input"
        )
    name = config.models[0]
    trained_on = frozenset[str]().union(*(_trained_on(each) for each in (name, rival)))
    clean, _ = untrained(examined.tasks, playbook.trained_on | against.trained_on | trained_on)
    warn_of_few(len(clean), config.min_tasks)
    models = [
        wiring.connect(n, concurrency=config.concurrency, base_url=config.base_url, key_env=config.key_env)
        for n in ([name, rival] if rival else [name])
    ]
    try:
        with open_store(config.store) as store, Screen(2 * config.attempts_per_task * len(clean), quiet=quiet) as screen:
            evaluation = AgentEvaluation(
                evaluator=HeldOutEvaluator(store=store),
                model=models[0],
                rival=models[1] if rival else None,
                dataset=examined,
                embedder=embedders.load(config.embedder),
                gate=config.gate,
                attempts_per_task=config.attempts_per_task,
                token_budget=config.token_budget,
                trained_on=trained_on,
            )
            return await evaluation.evaluate(playbook, against, id="evaluate", done=screen.evaluated)
    finally:
        for model in models:
            await model.close()


def _trained_on(model: str) -> frozenset[str]:
    """What the adapter was trained on that a model's name holds behind a plus."""
    _, _, adapter = model.rpartition("+")
    return read_trained_on(Path(adapter)) if adapter != model and adapter else frozenset()


def _load(name: str) -> Playbook:
    return Playbook() if name == NONE else files.load(name)


def _anywhere(dataset: Dataset, playbook: Playbook) -> Playbook:
    """The playbook with all bullets in the domain of the tasks, which must have one alone."""
    domains = {task.domain for task in dataset.split(Split.HELD_OUT)}
    if len(domains) != 1:
        raise InputError(f"--any-domain needs tasks of one domain, and these have {len(domains)}; name one with --domain")
    (domain,) = domains
    return replace(playbook, bullets=tuple(replace(bullet, domain=domain) for bullet in playbook.bullets))


def _warn(name: str, playbook: Playbook, dataset: Dataset) -> None:
    """Say so when none of a playbook's bullets can be shown: bullets are shown to tasks of their own domain."""
    domains = {task.domain for task in dataset.split(Split.HELD_OUT)}
    bullets = playbook.active
    if bullets and not any(bullet.domain in domains for bullet in bullets):
        here, there = (", ".join(sorted(found)) for found in (domains, {bullet.domain for bullet in bullets}))
        console().print(
            f"{name}: its {len(bullets)} bullets are of domain {there} and the tasks of {here}, so none is shown; "
            "--any-domain shows them",
            markup=False,
            soft_wrap=True,
        )


def _write(report: EvaluationReport, folder: Path) -> None:
    """Each side's results, as `journeyman compare` reads them."""
    for name, attempts in zip(_FILES, (report.baseline_attempts, report.candidate_attempts), strict=True):
        write_text(folder / name, "".join(f"{line}\n" for line in result_lines(results(attempts))))


def tell(report: EvaluationReport) -> None:
    """The report, for people."""
    out = Console(highlight=False, soft_wrap=True, markup=False)
    table = Table("", "baseline", "candidate")
    for name, was, now in _rows(report):
        table.add_row(name, was, now)
    out.print(table)
    out.print(f"{'passed' if report.passed else 'not passed'}: {report.reason}")


def _rows(report: EvaluationReport) -> list[tuple[str, str, str]]:
    before, after = report.evaluation.spent_baseline, report.evaluation.spent_candidate
    tokens = [
        "unknown" if t.input_tokens is None or t.output_tokens is None else f"{t.input_tokens:,} in, {t.output_tokens:,} out"
        for t in (before, after)
    ]
    costs = ["unknown" if t.cost is None else f"${t.cost:.4f}" for t in (before, after)]
    shares = ["unknown" if share is None else f"{share:.1%}" for share in (report.baseline, report.candidate)]
    return [("right", shares[0], shares[1]), ("tokens", tokens[0], tokens[1]), ("cost", costs[0], costs[1])]


# The work behind `journeyman evaluate planner`, apart from its options.


def run_planner(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Compare two planners, and say which is better."""
    try:
        made = _on_plans(given) if given["data"] else _live(given, quiet=quiet)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[planner]'") from error
    if not quiet:
        out = console()
        for name in ("candidate", "baseline"):
            numbers = ", ".join(f"{key} {_said(key, value)}" for key, value in made[name].items())
            out.print(f"{name:<10} {numbers}", soft_wrap=True)
        if made["refused"]:
            out.print(f"no plan could be made for {made['refused']} instructions", style="yellow")
        out.print(f"{'passed' if made['passed'] else 'not passed'}: {made['reason']}", soft_wrap=True)
    return made


def _on_plans(given: Mapping[str, Any]) -> dict[str, Any]:
    from journeyman.experiments.planner import workers
    from journeyman.experiments.planner.training import Contender, PlanExamination
    from journeyman.optimizers.planner import data

    kept = workers.find_planner(given["planner"])
    rival = workers.find_planner(given["against"]) if given["against"] else None
    found = data.read(given["data"])
    examination = PlanExamination(examples=found.examples, gate=_gate(given).gate)
    baseline = (
        Contender(id=rival.id, make=rival.planner.plan, trained_on=rival.trained_on)
        if rival
        else Contender(id="nearest plan", make=kept.learned.nearest)
    )
    candidate = Contender(id=kept.id, make=kept.planner.plan, trained_on=kept.trained_on)
    clean, _ = untrained(examination.tasks, candidate.trained_on | baseline.trained_on)
    warn_of_few(len(clean), examination.gate.min_tasks)
    with open_store(settings.load().store_url) as store:
        made = examination.evaluate(candidate, baseline, HeldOutEvaluator(store=store), id=_command())
    left_out = len(made.report.evaluation.contaminated)
    return {**made.json(), "planner": kept.id, "against": baseline.id, "left_out": left_out}


def _gate(given: Mapping[str, Any]) -> GateSettings:
    return settings.configured(GateSettings, GateSettings.known(provided(given)))


def _command() -> str:
    return f"evaluate-planner-{wiring.now():%Y%m%d-%H%M%S-%f}"


def _live(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    # It needs torch, which whoever compares files of results need not have.
    from journeyman.cli.actions import train_planner
    from journeyman.experiments.planner import collect, workers
    from journeyman.experiments.planner.environment import known_runs, scored
    from journeyman.experiments.planner.training import Contender, LiveExamination
    from journeyman.rewards.utility import Utility

    warn_of_few(given["held_out"], _gate(given).min_tasks)
    kept = workers.find_planner(given["planner"])
    rival = workers.find_planner(given["against"]) if given["against"] else None
    models = [card.name for card in kept.learned.model.models.cards]
    if not models or not workers.at_the_desk(models):
        raise InputError("nobody can tell whether what its models do is right; compare plans instead, with --data FILE")
    crew = workers.crew_of(models, replies=settings.load().folder / "replies")
    dollars, seconds = train_planner.worth_of(given["success_value"] or "")
    utility = Utility.of(
        known_runs(kept.learned, timed=seconds is not None), dollars_per_success=dollars, seconds_per_success=seconds
    )
    with bar("executions", 2 * given["held_out"], quiet=quiet, pause=5) as done:

        def heard(_: ExecutionResult) -> None:
            done(1)

        examination = LiveExamination(
            asked=collect.at_the_desk(given["held_out"], given["seed"], Split.HELD_OUT),
            orchestrator=Orchestrator(crew=crew, limits=PlanLimits(together=train_planner.CONCURRENCY)),
            utility=utility,
            gate=scored(_gate(given).gate, utility),
            heard=heard,
        )
        with open_store(settings.load().store_url) as store:
            made = examination.evaluate(
                Contender(id=kept.id, make=workers.planner_for(crew, kept).make, trained_on=kept.trained_on),
                Contender(
                    id=rival.id if rival else "expert",
                    make=workers.planner_for(crew, rival).make,
                    trained_on=rival.trained_on if rival else frozenset(),
                ),
                HeldOutEvaluator(store=store),
                id=_command(),
            )
    return {**made.json(), "planner": kept.id, "against": rival.id if rival else "expert"}


def _said(key: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"${value:.6f}" if key == "cost" else f"{value:.2f} s" if key == "seconds" else f"{value:.3f}"


# What another policy would have brought: the log is read, asked, and the answer shown.


def run_decisions(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Answer for one router or one worker; words go to stderr."""
    if (given["policy"] is None) == (given["always"] is None):
        raise InputError("name who would have chosen: either --policy DIR, or --always WORKER")
    logged = read(given["log"])
    if given["always"] is not None:
        found = of_worker(logged, given["always"], parse(given["objective"]) if given["objective"] else Objective())
    elif given["objective"]:
        raise InputError("a router is judged by its own objective; --objective goes with --always")
    else:
        policy, _ = find(given["policy"])
        found = of_router(logged, policy, embedders.load(policy.fitted.embedder).embed)
    if not quiet:
        _tell(found)
        if given["explain_reward"]:
            _explain(found)
    return found.json()


def _tell(found: OffPolicyReport) -> None:
    screen, result = console(), found.result
    screen.print(
        f"{result.decisions} decisions ({found.skipped} without a known worth left out), as good as {result.effective:.0f} "
        f"of {found.who}'s own",
        markup=False,
    )
    table = Table("utility a request", "value", "95 % interval")
    rows = {"as logged": result.logged, **result.estimates, **({"gain (DR)": result.gain} if result.gain else {})}
    for name, each in rows.items():
        table.add_row(name, f"{each.value:+.4f}", f"{each.low:+.4f} to {each.high:+.4f}")
    screen.print(table)
    if result.refused:
        screen.print(f"no answer: {result.refused}", markup=False, soft_wrap=True)


def _explain(found: OffPolicyReport) -> None:
    screen = console()
    table = Table("term", "mean", "share", "r² with the whole")
    for share in found.reward.shares:
        table.add_row(share.term, f"{share.mean:+.4f}", f"{share.share:.0%}", "" if share.r2 is None else f"{share.r2:.3f}")
    screen.print(table)
    for warning in found.reward.warnings:
        screen.print(f"beware: {warning}", markup=False, soft_wrap=True)


# A report in words, for `compare` and `evaluate`.

PASSED, NOT_PASSED = 0, 1
"""Exit codes; 2 is for input that cannot be used."""


def lines(report: EvaluationReport) -> Iterator[str]:
    """A small table and the gate's sentence."""
    found = report.evaluation
    if report.baseline is not None and report.candidate is not None and report.gain is not None:
        alike = report.tasks - found.wins - found.losses
        yield f"baseline   {report.baseline:.4f}"
        yield f"candidate  {report.candidate:.4f}"
        yield f"gain      {report.gain:+.4f}   95 % interval {report.low:+.4f} to {report.high:+.4f}"
        yield f"tasks      {report.tasks}   {found.wins} better, {found.losses} worse, {alike} alike"
    if report.unknown:
        yield f"unknown    {report.unknown}{_missing(report)}"
    if found.spent_baseline.attempts:
        yield f"spent      {_spent(found.spent_baseline)} by the baseline, {_spent(found.spent_candidate)} by the candidate"
    yield f"{'passed' if report.passed else 'not passed'}: {report.reason}"


def _missing(report: EvaluationReport) -> str:
    found = report.evaluation
    sides = (("baseline", found.only_baseline), ("candidate", found.only_candidate))
    only = [f"{len(tasks)} only in the {side}" for side, tasks in sides if tasks]
    return f"   {', '.join(only)}" if only else ""


def _spent(totals: Totals) -> str:
    if totals.input_tokens is None or totals.output_tokens is None:
        tokens = "unknown tokens"
    else:
        tokens = f"{totals.input_tokens:,} + {totals.output_tokens:,} tokens"
    return f"{tokens} ({'cost unknown' if totals.cost is None else f'${totals.cost:.4f}'})"
