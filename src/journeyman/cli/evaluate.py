"""`journeyman evaluate`: does a playbook help? And below it the same of what else is learned."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import Screen, bar, named_columns, say, table, write
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.options import options, provided
from journeyman.cli.shared import (
    PLANS_AT_ONCE,
    emit,
    json_option,
    options_named,
    report_lines,
    settled,
    success_value_option,
    warn_of_few,
    with_dataset,
    worth_of,
)
from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.format import counted
from journeyman.core.playbook import Playbook
from journeyman.core.rollout import Slot, SlotKind
from journeyman.core.task import Split, check_clusters
from journeyman.experiments import settings
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.settings import GateSettings
from journeyman.io.atomic import write_text
from journeyman.io.files import check_writable
from journeyman.stores import open_store

if TYPE_CHECKING:
    from journeyman.core.gate import PlannedEvaluation
    from journeyman.experiments.compare import EvaluationReport
    from journeyman.experiments.router.training import OffPolicyReport
    from journeyman.tasks.base import Dataset


@click.group(
    cls=LazyGroup,
    lines={
        "agent": "Measure an agent on tasks of repositories, or on humaneval, mbpp or bfcl: what it leaves is run.",
        "decisions": "Ask a log of decisions what another policy would have brought.",
        "releases": "Measure all that was ever served in a slot on benchmarks, in one table.",
        "power": "Say before how many tasks a gain needs, and what so many tasks can show at all.",
        "planner": "Measure a planner: by plans that are known to be right, or by what its own plans bring.",
        "router": "Measure a router on requests that it has not learned from.",
    },
    homes={
        "agent": "evaluate_agent:command",
        "decisions": "evaluate:decisions",
        "planner": "evaluate:planner",
        "power": "evaluate:power",
        "releases": "evaluate_releases:command",
        "router": "route:evaluate",
    },
    invoke_without_command=True,
)
@click.option("--playbook", default="none", show_default=True, metavar="FILE", help="The playbook to examine.")
@click.option(
    "--against",
    default="none",
    show_default=True,
    metavar="FILE|SLOT",
    help="The playbook it must beat; of a slot, as context:desk/oslo, what is in production there.",
)
@options(
    TrainingConfig,
    only=("dataset_name", "input_path", "held_out_path", "domain", "question_column", "answer_column", "domain_column"),
    helps={"input_path": "The data set's file.", "domain": "Only tasks of this domain; for the desk, the shop."},
)
@click.option(
    "--split",
    # `held_out` is this one as well: underscores are hyphens wherever options are typed.
    type=click.Choice(["held-out", "test"]),
    default="held-out",
    show_default=True,
    help="What is examined.",
)
@options(
    TrainingConfig,
    only=("held_out", "attempts_per_task", "generator_model"),
    names={"held_out": ("--num-examples", "--held-out")},
    helps={"generator_model": "Who attempts the tasks, such as openai:gpt-5-mini."},
)
@click.option("--baseline-model", metavar="MODEL", help="Another model for the side of --against.")
@click.option("--any-domain", is_flag=True, default=None, help="Show bullets of every domain: for placebos and transfer.")
@options(
    TrainingConfig,
    only=(
        "base_url",
        "sandbox",
        "concurrency",
        "token_budget",
        "embedder",
        "alpha",
        "min_gain",
        "min_tasks",
        "min_clusters",
        "guardrails",
        "seed",
    ),
    helps={"seed": "Of the desk's tasks. No split hangs on it."},
)
@click.option(
    "--output", type=click.Path(), metavar="DIR", help="Write baseline.jsonl and candidate.jsonl for `journeyman compare`."
)
@json_option
@click.pass_context
def command(context: click.Context, /, as_json: bool, **given: Any) -> int:
    """Measure on held-out tasks whether a playbook helps.

    Runs the agent with both playbooks over the same held-out tasks and reports the gain with its 95 % interval. Exit code 0: it
    passed, 1: it did not, 2: something could not be used. Every look at the same tasks is counted, also at a part of them, and
    makes the next harder to pass.

    \b
    Examples:
      journeyman evaluate --playbook playbooks/oslo.json --dataset desk --domain oslo
      journeyman evaluate --playbook new.json --against old.json --dataset gsm8k --input test.jsonl --model openai:gpt-5-mini
      journeyman evaluate --playbook new.json --against context:desk/oslo --dataset desk --domain oslo
      journeyman evaluate --dataset gsm8k --input test.jsonl --model recorded:b.jsonl --baseline-model recorded:a.jsonl
      journeyman evaluate router --outcomes outcomes.jsonl
    """
    if context.invoked_subcommand is not None:
        return _refuse(context)
    given.pop("split")
    with options_named():
        report = _evaluate(provided(given), quiet=as_json)
    emit(report.json(), as_json=as_json)
    return 0 if report.passed else 1


def _refuse(context: click.Context) -> int:
    """Options of a playbook's evaluation, said before the name of another, would be lost without a word."""
    for each in context.command.params:
        if each.name and context.get_parameter_source(each.name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{each.opts[0]} stands before {context.invoked_subcommand!r}; say the options behind it")
    return 0


@click.command("planner")
@click.option("--planner", default="checkpoints", show_default=True, metavar="POLICY", help="A file, a folder, or an id.")
@click.option("--against", metavar="POLICY", help="Another planner.  [default: the nearest past plan, or the desk's expert]")
@click.option(
    "--data",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Compare with the plans of this file, as `journeyman dataset planner` writes them; carry out none.",
)
@click.option("--held-out", type=click.IntRange(1), default=100, show_default=True, help="Instructions to carry out.")
@success_value_option
@options(GateSettings)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the instructions.")
@json_option
def planner(as_json: bool, **given: Any) -> int:
    """Measure a planner: by plans that are known to be right, or by what its own plans bring.

    With --data node-F1, edge-F1 and exact matches, against a copy of the nearest plan that it learned from. Without, held-out
    notes of the embedded desk are planned by both, carried out for real and judged; success, cost and time are one utility.
    Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate planner --planner checkpoints/phase2_best
      journeyman evaluate planner --planner checkpoints/phase2_best --against checkpoints/phase1_best --held-out 200
      journeyman evaluate planner --planner checkpoints/phase1_best --data other_plans.json
    """
    with options_named():
        result = _evaluate_planner(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1


@click.command("decisions")
@click.option(
    "--log", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=True, help="The log of decisions."
)
@click.option("--policy", metavar="DIR|ID", help="The router that would have chosen: its folder, or its id.")
@click.option("--always", metavar="WORKER", help="Or one worker that would always have been chosen.")
@click.option("--objective", metavar="WORDS", help='With --always: what is wanted.  [default: "quality"]')
@click.option("--explain-reward", is_flag=True, help="Also show what cost, latency and success each weigh on this log.")
@json_option
def decisions(as_json: bool, **given: Any) -> int:
    """Ask a log of decisions what another policy would have brought.

    Inverse propensity scores, the same self-normalised, a model of outcomes, and both together (doubly robust), each with its
    95 % interval, beside what was really brought. Refused where the log cannot tell: decisions must have been explored. Exit
    code 0: better, even at the low end of the interval; 1: not, or refused.

    \b
    Examples:
      journeyman evaluate decisions --log decisions.jsonl --policy routers/new
      journeyman evaluate decisions --log decisions.jsonl --always openai:gpt-5-mini --explain-reward
    """
    result = _evaluate_decisions(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["better"] else 1


_CHANGED = (0.1, 0.25, 0.5)
"""Of tasks: two prompts of one model, two models, and two that have nothing in common."""


_HELD_OUT = 100
"""Tasks that are reckoned with where neither a number nor a data set is named."""
_COLUMNS = ("question_column", "answer_column", "domain_column")
_DATA = ("dataset_name", "input_path", "held_out_path", "domain", *_COLUMNS, "held_out", "seed")


@click.command("power")
@options(TrainingConfig, only=_DATA, helps={"input_path": "The data set's file.", "seed": "Of the desk's tasks."})
@click.option("--tasks", type=click.IntRange(1), help=f"Held-out tasks.  [default: the data set's, or {_HELD_OUT}]")
@click.option("--gain", type=click.FloatRange(0, 1, min_open=True), default=0.05, show_default=True, help="That must be seen.")
@click.option("--changed", type=click.FloatRange(0, 1, min_open=True), help="Share of tasks that one side alone has right.")
@click.option(
    "--clusters", type=click.IntRange(2), help="How many clusters they come from.  [default: the data set's, or none]"
)
@click.option("--apart", type=click.FloatRange(0, 1), default=0.1, show_default=True, help="Between them: the gain's spread.")
@click.option(
    "--power",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.8,
    show_default=True,
    help="How often it must be seen.",
)
@click.option(
    "--looks", type=click.IntRange(min=0), default=0, show_default=True, help="Taken at these tasks, where more than on record."
)
@options(GateSettings, only=("alpha", "min_gain", "min_tasks", "min_clusters"))
@json_option
def power(as_json: bool, **given: Any) -> int:
    """Say before how many tasks a gain needs, and what so many tasks can show at all.

    For tasks that are right or wrong, before anything is spent. Of a data set its held-out tasks are counted as an examination
    would take them, with the clusters that they name and the looks that were taken at them. How much can be seen hangs on how
    many of the tasks change at all; unless --changed says it, three shares are shown. Files of results of before tell it:
    `better` and `worse` of `journeyman compare`, as a share of its tasks.

    \b
    Examples:
      journeyman evaluate power --dataset custom --input questions.jsonl
      journeyman evaluate power --tasks 200 --gain 0.05
      journeyman evaluate power --tasks 400 --clusters 20 --gain 0.1 --changed 0.3
    """
    with options_named():
        found = _powers(provided(given), quiet=as_json)
    emit(found, as_json=as_json)
    return 0


def _powers(given: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    """What can be seen, for each share of tasks that may change; the table goes to stdout, words to stderr."""
    tasks, there_are, plan = _of_data(given) if given.keys() & set(_DATA) else _of_numbers(given)
    families = len(plan.clusters)
    if not quiet:
        more = f" of {there_are:,} (--held-out takes more)" if there_are > tasks else ""
        looks = f", looked at {counted(plan.looks, 'time')} before" if plan.looks else ""
        say(f"{counted(tasks, 'held-out task')}{more}{f' in {families} clusters' if families else ''}{looks}")
    warn_of_few(tasks, plan.gate.min_tasks)
    if 0 < families < plan.gate.min_clusters:
        say(f"{counted(families, 'cluster')}, and the gate needs {plan.gate.min_clusters}: nothing can pass")
    gain, wanted, rows = given["gain"], given["power"], []
    for changed in [given["changed"]] if "changed" in given else _CHANGED:
        at = replace(plan, changed=changed)
        needed = at.tasks_needed(gain, wanted) if gain <= changed else None
        found = {"least_gain": at.least_gain(tasks, wanted), "tasks_needed": needed, "power": at.power(gain, tasks)}
        rows.append({"changed": changed, **found})
    if not quiet:
        seen, on = f"least gain seen on {tasks}", f"{gain:+g} on {tasks}"
        table(named_columns("tasks that change", seen, f"tasks for {gain:+g}", on), [_planned(row) for row in rows])
    numbers = {"tasks": tasks, "there_are": there_are, "clusters": families or None, "looks": plan.looks}
    return {**numbers, "gain": gain, "wanted": wanted, "rows": rows}


def _of_numbers(given: Mapping[str, Any]) -> tuple[int, int, "PlannedEvaluation"]:
    from journeyman.core.gate import PlannedEvaluation

    count = given.get("clusters", 0)
    plan = PlannedEvaluation(
        changed=1.0,
        gate=_gate(given).gate,
        looks=given["looks"],
        clusters=(1 / count,) * count if count else (),
        apart=given["apart"],
    )
    tasks = given.get("tasks", _HELD_OUT)
    return tasks, tasks, plan


def _of_data(given: Mapping[str, Any]) -> tuple[int, int, "PlannedEvaluation"]:
    """Of the data set that the options name: the tasks of its examination, how many it could have, what is known of them."""
    from journeyman.core.gate import PlannedEvaluation
    from journeyman.experiments import wiring
    from journeyman.experiments.evaluator import looks_taken

    if named := next((name for name in ("tasks", "clusters") if name in given), None):
        raise InputError(f"the data set says how many {named} there are; leave out --{named}, or name no data set")
    config = settled(TrainingConfig, with_dataset(TrainingConfig.known(given)))
    dataset = wiring.load_dataset(config)
    tasks = _examined(config, dataset).tasks
    check_clusters({task.id: task.cluster for task in tasks})
    sizes = Counter(task.cluster for task in tasks if task.cluster)
    with open_store(config.store, make=False) as store:
        looks = max(given["looks"], looks_taken(store, tasks))
    shares = tuple(size / len(tasks) for size in sizes.values())
    plan = PlannedEvaluation(changed=1.0, gate=config.gate, looks=looks, clusters=shares, apart=given["apart"])
    return len(tasks), len(dataset.split(Split.HELD_OUT)), plan


def _planned(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    least, needed = row["least_gain"], row["tasks_needed"]
    return (
        f"{row['changed']:.0%}",
        "none" if least is None else f"{least:+.3f}",
        "no number" if needed is None else f"{needed:,}",
        f"seen in {row['power']:.0%}",
    )


NONE = "none"
_FILES = ("baseline.jsonl", "candidate.jsonl")
"""Each side's results."""


def _evaluate(options: dict[str, Any], *, quiet: bool) -> "EvaluationReport":
    """Examine a playbook; what is said on the way goes to stderr, the table to stdout."""
    from journeyman.experiments import wiring

    playbook, against = _load(options.pop("playbook")), playbook_in(options.pop("against"))
    output, rival, anywhere = (options.pop(name, None) for name in ("output", "baseline_model", "any_domain"))
    config = settled(TrainingConfig, with_dataset(options))
    for name in _FILES if output else ():
        check_writable(Path(output) / name)
    if "sandbox" in options and config.dataset_name not in wiring.PROGRAMMING:
        raise InputError(f"no program of {config.dataset_name} is run: leave out --sandbox, or name humaneval or mbpp")
    dataset = wiring.load_dataset(config)
    wiring.try_walls(dataset)
    if anywhere:
        playbook, against = anywhere_shown(dataset, playbook), anywhere_shown(dataset, against)
    for name, side in (("--playbook", playbook), ("--against", against)):
        _warn(name, side, dataset)
    with Screen("attempts", quiet=quiet) as screen:
        report = asyncio.run(examine(config, dataset, playbook, against, rival or "", done=screen.evaluated))
    if output:
        _write_results(report, Path(output))
    if not quiet:
        write(*report_lines(report))
        _say_next(playbook, report)
    return report


async def examine(
    config: TrainingConfig,
    dataset: "Dataset",
    playbook: Playbook,
    against: Playbook,
    rival: str = "",
    *,
    done: Callable[[int, int], None] = lambda _, __: None,
) -> "EvaluationReport":
    """Two playbooks on the held-out tasks of a data set, with the models, the gate and the store of the settings.

    Args:
        rival: The baseline's model, where it is another one.
        done: Is told after each attempt how many are done, and of how many.
    """
    from journeyman.experiments import wiring
    from journeyman.experiments.agents import AgentEvaluation, adapter_trained_on
    from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
    from journeyman.models import embedders

    examined = _examined(config, dataset)
    name = config.models[0]
    trained_on = frozenset[str]().union(*(adapter_trained_on(each) for each in (name, rival)))
    clean, _ = untrained(examined.tasks, playbook.trained_on | against.trained_on | trained_on)
    warn_of_few(len(clean), config.min_tasks)
    models = [
        wiring.connect(n, concurrency=config.concurrency, base_url=config.base_url, key_env=config.key_env)
        for n in ([name, rival] if rival else [name])
    ]
    try:
        with open_store(config.store) as store:
            evaluation = AgentEvaluation(
                evaluator=HeldOutEvaluator(store=store),
                model=models[0],
                rival=models[1] if rival else None,
                dataset=examined,
                embedder=embedders.load(config.embedder),
                gate=config.gate,
                attempts_per_task=config.attempts_per_task,
                token_budget=config.token_budget,
                agent=wiring.agent_for(examined),
                trained_on=trained_on,
            )
            return await evaluation.evaluate(playbook, against, id="evaluate", done=done)
    finally:
        for model in models:
            await model.close()


def _examined(config: TrainingConfig, dataset: "Dataset") -> "Dataset":
    """What an examination takes of a data set: its held-out tasks, as many as are asked for."""
    examined = replace(dataset, tasks=dataset.split(Split.HELD_OUT)[: config.held_out])
    if not examined.tasks:
        raise InputError(
            f"the data set {config.dataset_name!r} has no held-out tasks to examine on; name some: --held-out-input"
        )
    return examined


def _load(name: str) -> Playbook:
    return Playbook() if name == NONE else Playbook.load(name)


def playbook_in(name: str) -> Playbook:
    """A playbook by its file, or by the slot that it is in production of."""
    if name.partition(":")[0] != SlotKind.CONTEXT or Path(name).exists():
        return _load(name)
    from journeyman.optimizers.playbook import files
    from journeyman.stores.rollouts import open_rollouts

    with open_rollouts(settings.load().store_url, make=False) as kept:
        arm = kept.live().baseline(Slot.parse(name))
        found = kept.candidate(arm.candidate_id)
    return Playbook() if found is None else files.loads(found.body, arm.candidate_id)


def _say_next(playbook: Playbook, report: "EvaluationReport") -> None:
    """By its id, as a file may be another one soon."""
    from journeyman.experiments.agents import candidate_of

    if report.passed and (candidate := candidate_of(playbook)):
        say(f"into live traffic, in steps: journeyman releases start {candidate.id} --agent NAME --domain NAME")


def anywhere_shown(dataset: "Dataset", playbook: Playbook) -> Playbook:
    """The playbook with all bullets in the domain of the tasks, which must have one alone."""
    domains = {task.domain for task in dataset.split(Split.HELD_OUT)}
    if len(domains) != 1:
        raise InputError(f"--any-domain needs tasks of one domain, and these have {len(domains)}; name one with --domain")
    (domain,) = domains
    return replace(playbook, bullets=tuple(replace(bullet, domain=domain) for bullet in playbook.bullets))


def _warn(name: str, playbook: Playbook, dataset: "Dataset") -> None:
    """Say so when none of a playbook's bullets can be shown: bullets are shown to tasks of their own domain."""
    domains = {task.domain for task in dataset.split(Split.HELD_OUT)}
    bullets = playbook.active
    if bullets and not any(bullet.domain in domains for bullet in bullets):
        here, there = (", ".join(sorted(each)) for each in (domains, {bullet.domain for bullet in bullets}))
        its = counted(len(bullets), "bullet is", "bullets are")
        say(f"{name}: its {its} of domain {there} and the tasks of {here}, so none is shown; --any-domain shows them")


def _write_results(report: "EvaluationReport", folder: Path) -> None:
    """Each side's results, as `journeyman compare` reads them."""
    from journeyman.experiments.compare import result_lines, results

    for name, attempts in zip(_FILES, (report.baseline_attempts, report.candidate_attempts), strict=True):
        write_text(folder / name, "".join(f"{line}\n" for line in result_lines(results(attempts))))


# Two planners: by plans that are known to be right, or by what their own bring.


def _evaluate_planner(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Compare two planners, and say which is better."""
    try:
        comparison = _on_plans(given) if given["data"] else _live(given, quiet=quiet)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[planner]'") from error
    if not quiet:
        for name in ("candidate", "baseline"):
            numbers = ", ".join(f"{key} {_measure(key, value)}" for key, value in comparison[name].items())
            say(f"{name:<10} {numbers}")
        if comparison["refused"]:
            say(f"no plan could be made for {counted(comparison['refused'], 'instruction')}", colour="yellow")
        say(f"{'passed' if comparison['passed'] else 'not passed'}: {comparison['reason']}")
    return comparison


def _on_plans(given: Mapping[str, Any]) -> dict[str, Any]:
    from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
    from journeyman.experiments.planner import workers
    from journeyman.experiments.planner.training import Contender, PlanExamination
    from journeyman.optimizers.planner import data

    if given["guardrails"]:
        raise InputError("a guardrail is about what plans take, and with --data none is carried out: leave out one of the two")
    saved = workers.find_planner(given["planner"])
    rival = workers.find_planner(given["against"]) if given["against"] else None
    examination = PlanExamination(examples=data.read(given["data"]).examples, gate=replace(_gate(given).gate, guardrails=()))
    baseline = (
        Contender(id=rival.id, make=rival.planner.plan, trained_on=rival.trained_on)
        if rival
        else Contender(id="nearest plan", make=saved.learned.nearest)
    )
    candidate = Contender(id=saved.id, make=saved.planner.plan, trained_on=saved.trained_on)
    clean, _ = untrained(examination.tasks, candidate.trained_on | baseline.trained_on)
    warn_of_few(len(clean), examination.gate.min_tasks)
    with open_store(settings.load().store_url) as store:
        evaluated = examination.evaluate(candidate, baseline, HeldOutEvaluator(store=store), id=_command_id())
    left_out = len(evaluated.report.evaluation.contaminated)
    return {**evaluated.json(), "planner": saved.id, "against": baseline.id, "left_out": left_out}


def _gate(given: Mapping[str, Any]) -> GateSettings:
    return settings.configured(GateSettings, GateSettings.known(provided(given)))


def _command_id() -> str:
    from journeyman.experiments import wiring

    return f"evaluate-planner-{wiring.now():%Y%m%d-%H%M%S-%f}"


def _live(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.agents.orchestrator import Orchestrator
    from journeyman.agents.subtask import PlanLimits
    from journeyman.experiments.evaluator import HeldOutEvaluator
    from journeyman.experiments.planner import collect, workers
    from journeyman.experiments.planner.environment import known_runs, scored
    from journeyman.experiments.planner.training import Contender, LiveExamination
    from journeyman.rewards.utility import Utility

    warn_of_few(given["held_out"], _gate(given).min_tasks)
    saved = workers.find_planner(given["planner"])
    rival = workers.find_planner(given["against"]) if given["against"] else None
    models = [card.name for card in saved.learned.model.models.cards]
    if not models or not workers.at_the_desk(models):
        raise InputError("nobody can tell whether what its models do is right; compare plans instead, with --data FILE")
    crew = workers.crew_of(models, replies=settings.load().folder / "replies")
    dollars, seconds = worth_of(given["success_value"])
    utility = Utility.of(
        known_runs(saved.learned, timed=seconds is not None), dollars_per_success=dollars, seconds_per_success=seconds
    )
    candidate = Contender(id=saved.id, make=workers.planner_for(crew, saved).make, trained_on=saved.trained_on)
    baseline = Contender(
        id=rival.id if rival else "expert",
        make=workers.planner_for(crew, rival).make,
        trained_on=rival.trained_on if rival else frozenset(),
    )
    with (
        bar("executions", 2 * given["held_out"], quiet=quiet, pause=5) as done,
        open_store(settings.load().store_url) as store,
    ):
        examination = LiveExamination(
            asked=collect.at_the_desk(given["held_out"], given["seed"], Split.HELD_OUT),
            orchestrator=Orchestrator(crew=crew, limits=PlanLimits(together=PLANS_AT_ONCE)),
            utility=utility,
            gate=scored(_gate(given).gate, utility),
            heard=lambda _: done(1),
        )
        evaluated = examination.evaluate(candidate, baseline, HeldOutEvaluator(store=store), id=_command_id())
    return {**evaluated.json(), "planner": saved.id, "against": baseline.id}


def _measure(key: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"${value:.6f}" if key == "cost" else f"{value:.2f} s" if key == "seconds" else f"{value:.3f}"


# What another policy would have brought: the log is read, asked, and the answer shown.


def _evaluate_decisions(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Answer for one router or one worker; words go to stderr."""
    from journeyman.experiments.router.training import of_router, of_worker
    from journeyman.models import embedders
    from journeyman.optimizers.router.decisions import read
    from journeyman.optimizers.router.objective import Objective, parse
    from journeyman.serving.router import find

    if (given["policy"] is None) == (given["always"] is None):
        raise InputError("name who would have chosen: either --policy DIR, or --always WORKER")
    logged = read(given["log"])
    if given["always"] is not None:
        report = of_worker(logged, given["always"], parse(given["objective"]) if given["objective"] else Objective())
    elif given["objective"]:
        raise InputError("a router is judged by its own objective; --objective goes with --always")
    else:
        policy, _ = find(given["policy"])
        report = of_router(logged, policy, embedders.load(policy.fitted.embedder).embed)
    if not quiet:
        _show_estimates(report)
        if given["explain_reward"]:
            _explain(report)
    return report.json()


def _show_estimates(report: "OffPolicyReport") -> None:
    result = report.result
    say(
        f"{result.decisions} decisions ({report.skipped} without a known worth left out), as good as {result.effective:.0f} "
        f"of {report.who}'s own"
    )
    rows = {"as logged": result.logged, **result.estimates, **({"gain (DR)": result.gain} if result.gain else {})}
    columns = named_columns("utility a request", "value", "95 % interval")
    table(columns, [(name, f"{at.value:+.4f}", f"{at.low:+.4f} to {at.high:+.4f}") for name, at in rows.items()])
    if result.refused:
        say(f"no answer: {result.refused}")


def _explain(report: "OffPolicyReport") -> None:
    rows = [
        (at.term, f"{at.mean:+.4f}", f"{at.share:.0%}", "" if at.r2 is None else f"{at.r2:.3f}") for at in report.reward.shares
    ]
    table(named_columns("term", "mean", "share", "r² with the whole"), rows)
    for warning in report.reward.warnings:
        say(f"beware: {warning}")
