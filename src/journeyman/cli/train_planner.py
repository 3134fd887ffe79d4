"""`journeyman train planner`: learn to plan."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import bar, named_columns, say, table
from journeyman.cli.options import options, provided
from journeyman.cli.shared import (
    PLANS_AT_ONCE,
    emit,
    json_option,
    options_named,
    success_value_option,
    warn_of_few,
    worth_of,
)
from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.format import counted
from journeyman.core.task import Split
from journeyman.experiments import settings
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.io.files import check_writable, read_text
from journeyman.optimizers.planner.config import PPOConfig, SupervisedConfig
from journeyman.stores import open_store

if TYPE_CHECKING:
    from journeyman.experiments.planner.collect import Instruction
    from journeyman.experiments.planner.environment import Environment
    from journeyman.experiments.planner.training import Reinforced
    from journeyman.experiments.planner.workers import SavedPlanner
    from journeyman.optimizers.planner.supervised import Epoch
    from journeyman.rewards.utility import RewardReport, Runs
    from journeyman.tracing.importers.execution_log import LoggedExecution

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("planner")
@click.option(
    "--phase", type=click.Choice(["1", "2"]), default="1", show_default=True, help="1: from examples; 2: by reinforcement."
)
@click.option(
    "--output-dir",
    type=_FOLDER,
    default=Path("checkpoints"),
    show_default=True,
    metavar="DIR",
    help="Checkpoints, metrics and the result.",
)
@click.option(
    "--config",
    "config_file",
    type=_FILE,
    metavar="FILE",
    help="Settings as YAML, as in training.phase1_supervised and training.phase2_rl.",
)
@click.option("--data", type=_FILE, metavar="FILE", help="Phase 1: examples; see `journeyman dataset planner`.")
@options(
    SupervisedConfig,
    leave_out=("seed",),
    helps={"patience": "Epochs without a better validation loss after which it stops; 0 for never."},
)
@click.option("--embedder", metavar="NAME", help="hashing, or sentence (an extra).  [default: hashing]")
@click.option(
    "--checkpoint",
    metavar="PLANNER",
    help="Phase 2: the planner to start from, a file or an id.  [default: phase1_best in --output-dir]",
)
@options(PPOConfig, only=("episodes",), helps={"episodes": "Phase 2: executions to learn from."})
@click.option(
    "--steps",
    type=click.Choice(["expert", "planner"]),
    help="Phase 2, live: whose steps are carried out, the desk's expert's or phase 1's own.  [default: expert at the desk]",
)
@click.option(
    "--instructions",
    type=_FILE,
    metavar="FILE",
    help='Phase 2, live: your own, a line each; as JSON with "instruction" and, if known, "answer", "split" and "id".',
)
@click.option(
    "--check",
    metavar="MODULE:FUNCTION",
    help="Phase 2, live: says whether what came of an instruction is right.  [default: the answers in --instructions]",
)
@click.option(
    "--workers-from",
    "crew",
    metavar="MODULE:NAME",
    help="Phase 2, live: your own tools and agents beside the planner's models.",
)
@click.option("--replay", type=_FILE, metavar="FILE", help="Phase 2: recorded outcomes to act on, instead of real workers.")
@click.option(
    "--reward",
    type=click.Choice(["utility", "documented"]),
    help="Phase 2: what it learns by; it is examined by the utility.  [default: utility]",
)
@success_value_option
@click.option("--explain-reward", is_flag=True, help="Show what the reward makes of your own logs (--logs), and train nothing.")
@click.option(
    "--logs", type=click.Path(path_type=Path, exists=True), metavar="PATH", help="Execution logs, for --explain-reward."
)
@options(ReinforceConfig)
@click.option("--tracker", type=click.Choice(["tensorboard", "wandb", "none"]), help="[default: tensorboard, where installed]")
@options(SupervisedConfig, only=("seed",))
@click.option("--resume", is_flag=True, help="Go on with the phase in --output-dir where it was stopped or killed.")
@click.option("--dry-run", is_flag=True, help="Read and check everything; train nothing.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Learn to plan: from examples, then from what executions brought.

    Phase 1 learns subtasks, their order, their types and their workers from plans that succeeded. Phase 2 starts there and
    learns who should do what, with a reward for each real execution; what it learned is released only if it beats the planner
    of phase 1 and the best single model on held-out instructions. A killed run goes on with --resume and loses no epoch.

    \b
    Examples:
      journeyman train planner --phase 1 --data training_data.json --output-dir checkpoints/ --epochs 50 --batch-size 32
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --episodes 1000
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --instructions mine.jsonl --check my_checks:right
      journeyman train planner --phase 2 --checkpoint checkpoints/phase1_best --replay outcomes.jsonl
      journeyman train planner --explain-reward --logs execution_logs/
    """
    with options_named():
        result = _train(provided(given), quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result.get("passed") is False else 0


# The file of settings that users of earlier systems have: `training.phase1_supervised` and `training.phase2_rl`.

_SECTIONS = {
    "1": (
        "phase1_supervised",
        {
            "num_epochs": "epochs",
            "batch_size": "batch_size",
            "learning_rate": "learning_rate",
            "lambda_dag": "lambda_dag",
            "synthetic_augmentations": "augmentations",
        },
    ),
    "2": (
        "phase2_rl",
        {
            "learning_rate": "learning_rate",
            "num_episodes": "episodes",
            "gamma": "gamma",
            "epsilon": "clip_epsilon",
            "max_steps_per_episode": "most_steps",
        },
    ),
}
"""By phase: the section, and its settings by the names that we have for them."""
_WEIGHTS = ("alpha", "beta", "gamma_latency", "shaped_reward")
"""Of the documented reward."""
_LEFT = ("algorithm", "train_data_size")
"""Settings that say nothing here: there is one algorithm, and the data have the size that they have."""


def _plain(value: Any) -> Any:
    """YAML takes `1e-3` for a word, and `100.0` for no whole number."""
    if not isinstance(value, str | float):
        return value
    try:
        number = float(value)
    except ValueError:
        return value
    return int(number) if number.is_integer() else number


def read(path: Path, phase: str) -> dict[str, Any]:
    """The settings of a phase, by our names; the weights of the documented reward under "weights".

    Raises:
        InputError: It is no YAML, has no such section, or a setting that is not known or no number.
    """
    import yaml

    section, names = _SECTIONS[phase]
    try:
        entries = dict(yaml.safe_load(read_text(path))["training"][section])
        values = {name: value if name in _LEFT else _plain(value) for name, value in entries.items()}
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} has no training.{section} with settings in it") from None
    weights = _WEIGHTS if phase == "2" else ()
    known = {*names, *_LEFT, *weights}
    for name, value in values.items():
        if name not in known:
            raise InputError(f"{path}: training.{section} has no setting {name!r}; there are {', '.join(sorted(known))}")
        if name not in _LEFT and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{path}: {name} in training.{section} is {value!r}, and must be a number")
    ours: dict[str, Any] = {our: values[name] for name, our in names.items() if name in values}
    if left := sorted(name for name in _LEFT if name in values):
        ours["ignored"] = left
    reward = {name: float(values[name]) for name in weights if name in values}
    return ours | ({"weights": reward} if reward else {})


# Options and a file of settings become the settings of a phase.


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, over what the file of settings says."""
    if not given.get("config_file"):
        return dict(given)
    read_there = read(given["config_file"], given["phase"])
    if unused := [] if given.get("reward") == "documented" else sorted(read_there.get("weights", {})):
        say(
            f"{given['config_file']}: {', '.join(unused)} are weights of the documented reward, and are ignored: it learns by"
            " the utility; --reward documented uses them",
            colour="yellow",
        )
    return {**read_there, **given, "ignored": [*unused, *read_there.get("ignored", ())]}


def supervised(given: Mapping[str, Any]) -> SupervisedConfig:
    """Of phase 1."""
    known = SupervisedConfig.known(given)
    if known.get("patience") == 0:
        known["patience"] = max(1, known.get("epochs", SupervisedConfig().epochs))
    return SupervisedConfig(**known)


def reinforced_settings(given: Mapping[str, Any]) -> ReinforceConfig:
    """Of phase 2."""
    from journeyman.rewards.utility import WeightedSumReward

    # Live, each choice is paid for what it spent and spoilt itself, so nothing that comes after is its own.
    usual = {} if given.get("replay") else {"gamma": 0.0, "learning_rate": 3e-3}
    ppo = {name: value for name, value in PPOConfig.known(given).items() if name != "epochs"}
    dollars, seconds = worth_of(given.get("success_value"))
    own = {
        "ppo": PPOConfig.measured(**{**usual, **ppo}),
        "reward": WeightedSumReward(**given.get("weights", {})) if given.get("reward") == "documented" else None,
        "dollars_per_success": dollars,
        "seconds_per_success": seconds,
    }
    return settings.configured(ReinforceConfig, {**ReinforceConfig.known(given), **own})


# The two phases.


def _train(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """One phase, or a look at a reward."""
    given = merged(given)
    if given.get("explain_reward"):
        return _explain_rewards(given, quiet=quiet)
    try:
        return _first(given, quiet=quiet) if given["phase"] == "1" else _second(given, quiet=quiet)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[planner]'") from error


def _first(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.planner.training import watched
    from journeyman.models import embedders
    from journeyman.optimizers.planner import data
    from journeyman.optimizers.planner.supervised import train

    if not given.get("data"):
        raise InputError("phase 1 needs examples: --data FILE; `journeyman dataset planner` makes them of execution logs")
    examples, config, folder = data.read(given["data"]), supervised(given), given["output_dir"]
    embedder = embedders.Cached(embedders.load(given.get("embedder", "hashing")))
    count = len(examples.examples)
    if not count:
        raise InputError(f"{given['data']} holds no examples; `journeyman dataset planner` makes them of execution logs")
    if given.get("dry_run"):
        if not quiet:
            say(f"{counted(count, 'example')} can be read; with --dry-run nothing was trained")
        return {"examples": count, "config": asdict(config), "dry_run": True}
    check_writable(folder / "phase1_best")
    folder.mkdir(parents=True, exist_ok=True)
    _check_fresh("1", folder / "phase1_last.safetensors", given)
    with watched(folder, given.get("tracker")) as tell:

        def progress(epoch: "Epoch") -> None:
            tell(epoch)
            if not quiet:
                _show_epoch(epoch)

        trained = train(examples, embedder, folder, config, resume=bool(given.get("resume")), progress=progress)
    validation = trained.validation
    if not quiet:
        say(
            f"on validation plans: node-F1 {validation.node_f1:.3f}, edge-F1 {validation.edge_f1:.3f}, exact"
            f" {validation.exact:.0%}, texts {_share(validation.texts)}, valid {validation.valid:.0%};"
            f" {trained.model.blend:.0%} of it from memory",
            f"written to {trained.best}; next: journeyman train planner --phase 2 --checkpoint {trained.best}",
        )
    return {
        "phase": 1,
        "planner": str(trained.best),
        "examples": count,
        "epochs": len(trained.epochs),
        "validation": asdict(validation),
        "memory": trained.model.blend,
        "ignored": given.get("ignored", []),
    }


def _show_epoch(epoch: "Epoch") -> None:
    say(
        f"epoch {epoch.number:>3}  loss {epoch.loss:.3f}  validation {epoch.val_loss:.3f}  node-F1 {epoch.node_f1:.3f}"
        f"  edge-F1 {epoch.edge_f1:.3f}  exact {epoch.exact:.0%}  texts {_share(epoch.texts)}  valid {epoch.valid:.0%}"
    )


def _share(found: float | None) -> str:
    return "unknown" if found is None else f"{found:.0%}"


def _check_fresh(phase: str, last: Path, given: Mapping[str, Any]) -> None:
    if last.exists() and not given.get("resume"):
        raise InputError(
            f"{last.parent} holds a phase {phase} already: go on with it by --resume, or name another --output-dir"
        )


def _second(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.agents.orchestrator import Orchestrator
    from journeyman.agents.subtask import PlanLimits
    from journeyman.experiments.planner import desk, workers
    from journeyman.experiments.planner.environment import Live

    folder: Path = given["output_dir"]
    start = workers.find_planner(given.get("checkpoint") or str(folder / "phase1_best"))
    if not given.get("dry_run"):
        check_writable(folder / "phase2_best")
        _check_fresh("2", folder / "phase2", given)
    if given.get("replay"):
        return _replay(given, start, quiet=quiet)
    config = reinforced_settings(given)
    practice = _practice(given, start, config)
    crew = workers.crew_of(practice.models, given.get("crew", ""), kept=start, replies=settings.load().folder / "replies")
    if given.get("dry_run"):
        if not quiet:
            say(f"{config.ppo.episodes} episodes with {', '.join(practice.models)}; with --dry-run nothing was carried out")
        return {"config": config.json(), "models": practice.models, "judge": practice.judge, "dry_run": True}
    for warning in practice.warnings:
        say(warning, colour="yellow")
    if config.evaluate:
        warn_of_few(len(practice.to_examine), config.min_tasks)
    with bar("executions", practice.executions(config), quiet=quiet, pause=5) as done:
        environment = Live(
            planner=start.learned,
            to_practise=practice.to_practise,
            to_examine=practice.to_examine,
            orchestrator=Orchestrator(crew=crew, limits=PlanLimits(together=PLANS_AT_ONCE)),
            heard=lambda _: done(1),
            timed=practice.own or config.seconds_per_success is not None,
            make=None if practice.own or given.get("steps") == "planner" else desk.expert,
            seed=config.ppo.seed,
        )
        return {**_reinforced(start.path, environment, given, config, quiet=quiet), "judge": practice.judge}


@dataclass(frozen=True, kw_only=True)
class _Practice:
    """What is practised live, and by whom."""

    models: tuple[str, ...]
    to_practise: "tuple[Instruction, ...]"
    to_examine: "tuple[Instruction, ...]"
    own: bool
    """Whether the instructions are the user's; else they are the desk's."""
    judge: str
    warnings: tuple[str, ...] = ()

    def executions(self, config: ReinforceConfig) -> int:
        from journeyman.experiments.planner.environment import PROBES

        sides = 2 + len(self.models)
        probes = min(PROBES, len(self.to_practise))
        return probes + config.ppo.episodes + (sides * len(self.to_examine) if config.evaluate else 0)


def _practice(given: Mapping[str, Any], start: "SavedPlanner", config: ReinforceConfig) -> _Practice:
    """The user's own instructions where there are some, else the desk's notes.

    Raises:
        InputError: Nobody could tell what comes of them, or there are none to practise on or to be examined on.
    """
    from journeyman.experiments.planner import collect, workers

    models = tuple(card.name for card in start.learned.model.models.cards)
    seed, held_out = config.ppo.seed, config.held_out
    if not given.get("instructions"):
        if not models or not workers.at_the_desk(models):
            raise InputError(
                f"nobody can tell whether the work of {', '.join(models) or 'nobody'} is right, so it cannot be reinforced"
                " live: give your own instructions with --instructions FILE, and an answer to each there or"
                " --check MODULE:FUNCTION; or recorded outcomes with --replay FILE"
            )
        if given.get("check"):
            raise InputError("--check judges what comes of your own instructions; name them with --instructions FILE")
        return _Practice(
            models=models,
            to_practise=collect.at_the_desk(config.ppo.episodes, seed, Split.TRAIN),
            to_examine=collect.at_the_desk(held_out, seed, Split.HELD_OUT),
            own=False,
            judge="desk",
        )
    if given.get("steps") == "expert":
        raise InputError("the expert knows the desk's notes alone; your own instructions are planned by --steps planner")
    asked = collect.of_file(given["instructions"], given.get("check", ""))
    practise, examine = collect.dealt(asked, start.trained_on, most=held_out)
    if not practise or (config.evaluate and not examine):
        raise InputError(
            f"{given['instructions']} leaves {len(practise)} instructions to practise on and {len(examine)} to be examined on"
            ' that the planner has not learned from; bring more, or say with "split" which are held out'
        )
    alone = [each for each in asked if each.judge is collect.unjudged]
    said = (
        f"nobody judges {len(alone)} of {len(asked)} instructions: what comes to its end counts as a success, right or not, and"
        " what a worker fails at as a failure; --check MODULE:FUNCTION, or an answer in the file, says what is right"
    )
    practise, examine = (tuple(collect.ending(each) for each in some) for some in (practise, examine))
    judge = given.get("check") or ("errors" if len(alone) == len(asked) else "answers")
    return _Practice(
        models=models, to_practise=practise, to_examine=examine, own=True, judge=judge, warnings=(said,) if alone else ()
    )


def _replay(given: Mapping[str, Any], start: "SavedPlanner", *, quiet: bool) -> dict[str, Any]:
    """Learn who does what from what is on record, and prove it on requests that were held out."""
    from journeyman.experiments.planner.environment import Replay
    from journeyman.optimizers.router import outcomes

    rows = outcomes.rows_of_files([given["replay"]])
    names = tuple(dict.fromkeys(name for row in rows for name in row.outcomes))
    config = reinforced_settings(given)
    known = outcomes.table(rows, outcomes.cards(names), workers=names)
    environment = Replay.of(start.learned, known, config.min_tasks)
    train, held_out = len(environment.train), len(environment.examined)
    if given.get("dry_run"):
        if not quiet:
            say(f"{counted(train, 'request')} to practise on, {held_out} held out; nothing was trained")
        return {"train": train, "held_out": held_out, "dry_run": True}
    if config.evaluate:
        warn_of_few(held_out, config.min_tasks)
    return _reinforced(start.path, environment, given, config, quiet=quiet)


def _reinforced(
    start: Path, environment: "Environment", given: Mapping[str, Any], config: ReinforceConfig, *, quiet: bool
) -> dict[str, Any]:
    """Learn, prove and keep in the project's store; the object that `--json` prints."""
    from journeyman.experiments.planner import workers
    from journeyman.experiments.planner.training import Reinforcement, watched
    from journeyman.stores.artifacts import Artifacts

    project = settings.load()
    artifacts = Artifacts(project.artifacts)
    folder = given["output_dir"]
    folder.mkdir(parents=True, exist_ok=True)
    with environment, open_store(project.store_url) as store, watched(folder, given.get("tracker")) as heard:
        phase = Reinforcement(start=start, environment=environment, folder=folder, config=config)
        result = phase.run(store, lambda path: workers.keep_planner(path, artifacts), heard=heard)
    say(*_clipped(result), colour="yellow")
    if not quiet:
        say(*_result_lines(result))
    return {"phase": 2, **result.json(), "ignored": given.get("ignored", [])}


def _clipped(result: "Reinforced") -> Iterator[str]:
    utility = result.utility
    references = {"cost": (utility.cost_reference, "${:.3g}"), "latency": (utility.seconds_reference, "{:.3g} s")}
    for term, number in result.clipped.items():
        if number:
            reference, form = references[term]
            yield (
                f"warning: the {term} of {number} executions is clipped: above {utility.most:g} times the reference of"
                f" {form.format(reference)} it counts as that much"
            )


def _result_lines(result: "Reinforced") -> Iterator[str]:
    """What phase 2 came to, for people."""
    if result.utility.seconds_reference is None:
        yield "time counts for nothing here; --success-value USD,SECONDS says what a second is worth"
    for name, side in result.sides.items():
        cost = "unknown" if side.cost is None else f"${side.cost:.6f}"
        yield f"{name:<18} utility {side.utility:.3f}  right {side.success:.1%}  cost {cost}"
    yield f"{'passed' if result.passed else 'not passed'}: {result.reason}"
    yield f"written to {result.path}; id {result.candidate.id}, {result.stage.value}"


# What a reward makes of one's own executions.


def _explain_rewards(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Show each term's share, by the reward that was asked for and by the other."""
    from journeyman.rewards.utility import RunReward, Utility, WeightedSumReward, lint

    if not given.get("logs"):
        raise InputError("--explain-reward looks at your own logs: name them with --logs PATH")
    runs = _runs(given["logs"])
    dollars, seconds = worth_of(given.get("success_value"))
    rewards: dict[str, RunReward] = {
        "utility": Utility.of(runs, dollars_per_success=dollars, seconds_per_success=seconds),
        "documented": WeightedSumReward(**given.get("weights", {})),
    }
    first = given.get("reward", "utility")
    reports = {name: lint(rewards[name], runs) for name in (first, *(name for name in rewards if name != first))}
    if not quiet:
        for name, report in reports.items():
            _show_reward(name, report)
    return {"executions": len(runs), "rewards": {name: asdict(report) for name, report in reports.items()}}


def _runs(path: Path) -> "Runs":
    """Each step that a model did; where a log holds no steps, each execution, by who worked on it."""
    import numpy as np

    from journeyman.rewards.utility import Runs
    from journeyman.tracing.importers.execution_log import LoggedExecution, read_executions

    executions = [each for each in read_executions(path) if isinstance(each, LoggedExecution) and not each.held_out]
    rows = [row for each in executions for row in _rows(each)]
    if not rows:
        raise InputError(f"{path}: no execution there tells whether it was right, what it cost or how long it took")
    numbers = np.asarray([[np.nan if value is None else value for value in row[1:]] for row in rows], np.float64)
    return Runs(
        workers=tuple(row[0] for row in rows),
        success=numbers[:, 0],
        cost=numbers[:, 1],
        seconds=numbers[:, 2],
        subtasks=numbers[:, 3],
    )


def _rows(execution: "LoggedExecution") -> Iterator[tuple[str, float | None, float | None, float | None, float]]:
    tools = {step.id for step in execution.plan.subtasks if step.tool} if execution.plan else set()
    steps = [each for each in execution.results.values() if each.tries and each.id not in tools]
    for each in steps:
        outcome = each.outcome
        yield each.worker, outcome.success, outcome.cost, outcome.seconds, 1.0
    if not steps and execution.success is not None:
        seconds = None if execution.latency_ms is None else execution.latency_ms / 1000
        workers = execution.plan.workers if execution.plan else ()
        names = "+".join(sorted(set(workers))) or "unknown"
        yield names, float(execution.success), execution.cost, seconds, float(len(workers))


def _show_reward(name: str, report: "RewardReport") -> None:
    rows = [
        (at.term, f"{at.mean:+.4f}", f"{at.size:.4f}", f"{at.share:.1%}", "?" if at.r2 is None else f"{at.r2:.3f}")
        for at in report.shares
    ]
    columns = named_columns("term", "mean", "mean size", "share", "r² with the reward")
    table(columns, rows, title=f"{name}: {counted(report.runs, 'call')}")
    for worker in report.reward:
        say(f"{worker}: right {report.accuracy[worker]:.1%}, reward {report.reward[worker]:+.3f}")
    say(*(f"warning: {warning}" for warning in report.warnings), colour="yellow")
    say("")
