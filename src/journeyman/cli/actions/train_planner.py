"""The work behind `journeyman train planner`, apart from its options."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml
from rich.table import Table
from rich.text import Text

from journeyman.agents.orchestrator import Orchestrator
from journeyman.agents.subtask import PlanLimits
from journeyman.cli.actions.train_playbook import warn_of_few
from journeyman.cli.console import bar
from journeyman.cli.console import console as data
from journeyman.cli.shared import console
from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.plan import ExecutionResult
from journeyman.core.task import Split
from journeyman.experiments import settings
from journeyman.experiments.planner import collect, desk, workers
from journeyman.experiments.planner.config import ReinforceConfig
from journeyman.experiments.planner.environment import Replay
from journeyman.experiments.planner.workers import SavedPlanner
from journeyman.io.files import check_writable, read_text
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.planner.config import PPOConfig, SupervisedConfig
from journeyman.optimizers.router import outcomes
from journeyman.rewards.utility import RewardReport, RunReward, Runs, Utility, WeightedSumReward, lint
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.tracing.importers.execution_log import LoggedExecution, read_executions

if TYPE_CHECKING:
    from journeyman.experiments.planner.environment import Environment
    from journeyman.experiments.planner.training import Reinforced

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
    section, names = _SECTIONS[phase]
    try:
        told = yaml.safe_load(read_text(path))["training"][section]
        found = {name: value if name in _LEFT else _plain(value) for name, value in dict(told).items()}
    except yaml.YAMLError as error:
        raise InputError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{path} has no training.{section} with settings in it") from None
    weights = _WEIGHTS if phase == "2" else ()
    known = {*names, *_LEFT, *weights}
    for name, value in found.items():
        if name not in known:
            raise InputError(f"{path}: training.{section} has no setting {name!r}; there are {', '.join(sorted(known))}")
        if name not in _LEFT and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{path}: {name} in training.{section} is {value!r}, and must be a number")
    settings: dict[str, Any] = {ours: found[name] for name, ours in names.items() if name in found}
    reward = {name: float(found[name]) for name in weights if name in found}
    return settings | ({"weights": reward} if reward else {})


# Options and a file of settings become the settings of a phase.

CONCURRENCY = 4


def merged(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options, over what the file of settings says."""
    if not given.get("config_file"):
        return dict(given)
    return {**read(given["config_file"], given["phase"]), **given}


def supervised(options: Mapping[str, Any]) -> SupervisedConfig:
    """Of phase 1."""
    given = SupervisedConfig.known(options)
    if given.get("patience") == 0:
        given["patience"] = max(1, given.get("epochs", SupervisedConfig().epochs))
    return SupervisedConfig(**given)


def reinforced_settings(options: Mapping[str, Any]) -> ReinforceConfig:
    """Of phase 2."""
    # Live, each choice is paid for what it spent and spoilt itself, so nothing that comes after is its own.
    usual = {} if options.get("replay") else {"gamma": 0.0, "learning_rate": 3e-3}
    told = {name: value for name, value in PPOConfig.known(options).items() if name != "epochs"}
    dollars, seconds = worth_of(options.get("success_value", ""))
    return settings.configured(
        ReinforceConfig,
        {
            **ReinforceConfig.known(options),
            "ppo": PPOConfig.measured(**{**usual, **told}),
            "reward": _documented(options) if options.get("reward") == "documented" else None,
            "dollars_per_success": dollars,
            "seconds_per_success": seconds,
        },
    )


def _documented(options: Mapping[str, Any]) -> WeightedSumReward:
    return WeightedSumReward(**options.get("weights", {}))


def worth_of(text: str) -> tuple[float | None, float | None]:
    """`0.002,30` is two tenths of a cent and half a minute for one more success; either may be left out.

    Raises:
        InputError: It is no such pair.
    """
    if not text:
        return None, None
    money, _, time = text.partition(",")
    try:
        found = tuple(float(part) if part.strip() else None for part in (money, time))
    except ValueError:
        raise InputError(f"--success-value {text!r} is not USD,SECONDS, such as 0.002,30; leave one out as in ,30") from None
    return found[0], found[1]


EMBEDDER = "hashing"


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """One phase, or a look at a reward."""
    told = merged(given)
    if told.get("explain_reward"):
        return explain_rewards(told, quiet=quiet)
    try:
        return _first(told, quiet=quiet) if told["phase"] == "1" else _second(told, quiet=quiet)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[planner]'") from error


def _first(told: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.planner.training import on_epoch, watchers
    from journeyman.optimizers.planner import data
    from journeyman.optimizers.planner import supervised as planner_supervised
    from journeyman.optimizers.planner.supervised import Epoch

    if not told.get("data"):
        raise InputError("phase 1 needs examples: --data FILE; `journeyman dataset planner` makes them of execution logs")
    found, chosen, folder = data.read(told["data"]), supervised(told), told["output_dir"]
    embedder = Cached(embedders.load(told.get("embedder", EMBEDDER)))
    out = console()
    if not found.examples:
        raise InputError(f"{told['data']} holds no examples; `journeyman dataset planner` makes them of execution logs")
    if told.get("dry_run"):
        if not quiet:
            out.print(f"{len(found.examples)} examples can be read; with --dry-run nothing was trained")
        return {"examples": len(found.examples), "config": asdict(chosen), "dry_run": True}
    check_writable(folder / "phase1_best")
    folder.mkdir(parents=True, exist_ok=True)
    _check_fresh("1", folder / "phase1_last.safetensors", told)
    watching = watchers(folder, wandb=told.get("tracker") == "wandb") if told.get("tracker") != "none" else []

    def tell(epoch: Epoch) -> None:
        if not quiet:
            out.print(
                f"epoch {epoch.number:>3}  loss {epoch.loss:.3f}  validation {epoch.val_loss:.3f}  node-F1 {epoch.node_f1:.3f}"
                f"  edge-F1 {epoch.edge_f1:.3f}  exact {epoch.exact:.0%}",
                soft_wrap=True,
            )

    try:
        trained = planner_supervised.train(
            found, embedder, folder, chosen, resume=bool(told.get("resume")), progress=on_epoch(watching, tell)
        )
    finally:
        for watcher in watching:
            watcher.close()
    validation = trained.validation
    if not quiet:
        out.print(
            f"on validation plans: node-F1 {validation.node_f1:.3f}, edge-F1 {validation.edge_f1:.3f}, exact"
            f" {validation.exact:.0%}; {trained.model.blend:.0%} of it from memory",
            soft_wrap=True,
        )
        out.print(
            f"written to {trained.best}; next: journeyman train planner --phase 2 --checkpoint {trained.best}", soft_wrap=True
        )
    return {
        "phase": 1,
        "planner": str(trained.best),
        "examples": len(found.examples),
        "epochs": len(trained.epochs),
        "validation": asdict(validation),
        "memory": trained.model.blend,
    }


def _check_fresh(phase: str, last: Path, told: Mapping[str, Any]) -> None:
    if last.exists() and not told.get("resume"):
        raise InputError(
            f"{last.parent} holds a phase {phase} already: go on with it by --resume, or name another --output-dir"
        )


def _second(told: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.planner.environment import Live

    folder: Path = told["output_dir"]
    kept = workers.find_planner(told.get("checkpoint") or str(folder / "phase1_best"))
    if not told.get("dry_run"):
        check_writable(folder / "phase2_best")
        _check_fresh("2", folder / "phase2", told)
    if told.get("replay"):
        return run_replay(told, kept, quiet=quiet)
    models = [card.name for card in kept.learned.model.models.cards]
    if not models or not workers.at_the_desk(models):
        raise InputError(
            f"nobody can tell whether the work of {', '.join(models) or 'nobody'} is right, so it cannot be reinforced live;"
            " give recorded outcomes with --replay FILE"
        )
    chosen, out = reinforced_settings(told), console()
    episodes = chosen.ppo.episodes
    if told.get("dry_run"):
        if not quiet:
            out.print(f"{episodes} episodes with {', '.join(models)}; with --dry-run nothing was carried out")
        return {"config": chosen.json(), "models": models, "dry_run": True}
    crew = workers.crew_of(models, replies=settings.load().folder / "replies")
    seed, held_out = chosen.ppo.seed, chosen.held_out
    if chosen.evaluate:
        warn_of_few(held_out, chosen.min_tasks)
    total = episodes + ((2 + len(models)) * held_out if chosen.evaluate else 0)
    with bar("executions", total, quiet=quiet, pause=5) as done:

        def heard(_: ExecutionResult) -> None:
            done(1)

        environment = Live(
            planner=kept.learned,
            to_practise=collect.at_the_desk(episodes, seed, Split.TRAIN),
            to_examine=collect.at_the_desk(held_out, seed, Split.HELD_OUT),
            orchestrator=Orchestrator(crew=crew, limits=PlanLimits(together=CONCURRENCY)),
            heard=heard,
            timed=chosen.seconds_per_success is not None,
            make=desk.expert if told.get("steps", "expert") == "expert" else None,
        )
        made = reinforced(kept.path, environment, folder, chosen)
    if not quiet:
        show(made)
    return {"phase": 2, **made.json()}


def reinforced(start: Path, environment: "Environment", folder: Path, chosen: ReinforceConfig) -> "Reinforced":
    """Learn, prove and keep in the project's store."""
    from journeyman.experiments.planner.training import Reinforcement

    project = settings.load()
    artifacts = Artifacts(project.artifacts)
    with environment, open_store(project.store_url) as store:
        phase = Reinforcement(start=start, environment=environment, folder=folder, config=chosen)
        return phase.run(store, lambda path: workers.keep_planner(path, artifacts))


def show(made: "Reinforced") -> None:
    """What phase 2 came to, for people."""
    out = console()
    if made.utility.seconds_reference is None:
        out.print("time counts for nothing here; --success-value USD,SECONDS says what a second is worth", soft_wrap=True)
    for name, side in made.sides.items():
        cost = "unknown" if side.cost is None else f"${side.cost:.6f}"
        out.print(f"{name:<18} utility {side.utility:.3f}  right {side.success:.1%}  cost {cost}", soft_wrap=True)
    out.print(f"{'passed' if made.passed else 'not passed'}: {made.reason}", soft_wrap=True)
    out.print(f"written to {made.path}; id {made.candidate.id}, {made.stage.value}", soft_wrap=True)


# Phase 2 on recorded outcomes: `journeyman train planner --phase 2 --replay`.


def run_replay(options: Mapping[str, Any], kept: SavedPlanner, *, quiet: bool) -> dict[str, Any]:
    """Learn who does what from what is on record, and prove it on requests that were held out."""
    rows = outcomes.rows_of_files([options["replay"]])
    names = tuple(dict.fromkeys(name for row in rows for name in row.outcomes))
    table = outcomes.table(rows, outcomes.cards(names), workers=names)
    chosen = reinforced_settings(options)
    environment = Replay.of(kept.learned, table, chosen.min_tasks)
    if options.get("dry_run"):
        if not quiet:
            console().print(
                f"{len(environment.train)} requests to practise on, {len(environment.examined)} held out; nothing was trained"
            )
        return {"train": len(environment.train), "held_out": len(environment.examined), "dry_run": True}
    if chosen.evaluate:
        warn_of_few(len(environment.examined), chosen.min_tasks)
    made = reinforced(kept.path, environment, options["output_dir"], chosen)
    if not quiet:
        show(made)
    return {"phase": 2, **made.json()}


# What a reward makes of one's own executions: `journeyman train planner --explain-reward`.


def explain_rewards(told: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Show each term's share, by the reward that was asked for and by the other."""
    if not told.get("logs"):
        raise InputError("--explain-reward looks at your own logs: name them with --logs PATH")
    runs = _runs(told["logs"])
    dollars, seconds = worth_of(told.get("success_value", ""))
    rewards: dict[str, RunReward] = {
        "utility": Utility.of(runs, dollars_per_success=dollars, seconds_per_success=seconds),
        "documented": WeightedSumReward(**told.get("weights", {})),
    }
    first = told.get("reward", "utility")
    order = [first, *(name for name in rewards if name != first)]
    reports = {name: lint(rewards[name], runs) for name in order}
    if not quiet:
        for name, report in reports.items():
            _show(name, report)
    return {"executions": len(runs), "rewards": {name: asdict(report) for name, report in reports.items()}}


def _runs(path: Path) -> Runs:
    """Each step that a model did; where a log holds no steps, each execution, by who worked on it."""
    found = [each for each in read_executions(path) if isinstance(each, LoggedExecution) and not each.held_out]
    rows = [row for each in found for row in _rows(each)]
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


def _rows(found: LoggedExecution) -> Iterator[tuple[str, float | None, float | None, float | None, float]]:
    tools = {step.id for step in found.plan.subtasks if step.tool} if found.plan else set()
    steps = [each for each in found.results.values() if each.tries and each.id not in tools]
    for each in steps:
        outcome = each.outcome
        yield each.worker, outcome.success, outcome.cost, outcome.seconds, 1.0
    if not steps and found.success is not None:
        seconds = None if found.latency_ms is None else found.latency_ms / 1000
        workers = found.plan.workers if found.plan else ()
        yield "+".join(sorted(set(workers))) or "unknown", float(found.success), found.cost, seconds, float(len(workers))


def _show(name: str, report: RewardReport) -> None:
    table = Table(title=f"{name}: {report.runs} calls", title_justify="left")
    for column in ("term", "mean", "mean size", "share", "r² with the reward"):
        table.add_column(column, justify="left" if column == "term" else "right")
    for share in report.shares:
        r2 = "?" if share.r2 is None else f"{share.r2:.3f}"
        table.add_row(share.term, f"{share.mean:+.4f}", f"{share.size:.4f}", f"{share.share:.1%}", r2)
    data().print(table)
    out = console()
    for worker in report.reward:
        out.print(Text(f"{worker}: right {report.accuracy[worker]:.1%}, reward {report.reward[worker]:+.3f}"), soft_wrap=True)
    for warning in report.warnings:
        out.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)
    out.print("")
