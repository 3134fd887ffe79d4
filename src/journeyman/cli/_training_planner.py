"""The work behind `journeyman train planner`, apart from its options."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from journeyman import config, embed
from journeyman.agents.orchestrator import Limits, Orchestrator
from journeyman.cli import _planner_settings as settings
from journeyman.cli._bar import bar
from journeyman.cli._shared import console
from journeyman.cli._training import warn_of_few
from journeyman.embed.cache import Cached
from journeyman.errors import InputError, MissingExtra
from journeyman.learn.playbook.files import check_writable
from journeyman.plan_result import ExecutionResult
from journeyman.planning import collecting, crews, desk, policies
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.task import Split

if TYPE_CHECKING:
    from journeyman.planning.arenas import Arena
    from journeyman.planning.reinforcing import ReinforceConfig, Reinforced

EMBEDDER = "hashing"
HELD_OUT = 200


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """One phase, or a look at a reward."""
    told = settings.merged(given)
    if told.get("explain_reward"):
        from journeyman.cli import _rewards_explained

        return _rewards_explained.run(told, quiet=quiet)
    try:
        return _first(told, quiet=quiet) if told["phase"] == "1" else _second(told, quiet=quiet)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is missing: pip install 'journeyman[planner]'") from error


def _first(told: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    from journeyman.learn.planner import data, supervised
    from journeyman.learn.planner.supervised import Epoch
    from journeyman.learn.planner.watching import told as tell_all
    from journeyman.learn.planner.watching import watchers

    if not told.get("data"):
        raise InputError("phase 1 needs examples: --data FILE; `journeyman dataset planner` makes them of execution logs")
    found, chosen, folder = data.read(told["data"]), settings.supervised(told), told["output_dir"]
    embedder = Cached(embed.load(told.get("embedder", EMBEDDER)))
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
        trained = supervised.train(
            found, embedder, folder, chosen, resume=bool(told.get("resume")), progress=tell_all(watching, tell)
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
    from journeyman.planning.arenas import Live

    folder: Path = told["output_dir"]
    kept = policies.find(told.get("checkpoint") or str(folder / "phase1_best"))
    if not told.get("dry_run"):
        check_writable(folder / "phase2_best")
        _check_fresh("2", folder / "phase2", told)
    if told.get("replay"):
        from journeyman.cli import _replaying

        return _replaying.run(told, kept, quiet=quiet)
    models = [card.name for card in kept.learned.model.models.cards]
    if not models or not crews.at_the_desk(models):
        raise InputError(
            f"nobody can tell whether the work of {', '.join(models) or 'nobody'} is right, so it cannot be reinforced live;"
            " give recorded outcomes with --replay FILE"
        )
    chosen, out = settings.reinforced(told), console()
    episodes = chosen.ppo.episodes
    if told.get("dry_run"):
        if not quiet:
            out.print(f"{episodes} episodes with {', '.join(models)}; with --dry-run nothing was carried out")
        return {"config": chosen.json(), "models": models, "dry_run": True}
    crew = crews.crew_of(models, replies=config.load().folder / "replies")
    seed, held_out = chosen.ppo.seed, told.get("held_out", HELD_OUT)
    if chosen.evaluate:
        warn_of_few(held_out, chosen.gate.least_tasks)
    total = episodes + ((2 + len(models)) * held_out if chosen.evaluate else 0)
    with bar("executions", total, quiet=quiet, pause=5) as done:

        def heard(_: ExecutionResult) -> None:
            done(1)

        arena = Live(
            planner=kept.learned,
            to_practise=collecting.at_the_desk(episodes, seed, Split.TRAIN),
            to_examine=collecting.at_the_desk(held_out, seed, Split.HELD_OUT),
            orchestrator=Orchestrator(crew=crew, limits=Limits(together=settings.CONCURRENCY)),
            heard=heard,
            timed=chosen.seconds_per_success is not None,
            make=desk.expert if told.get("steps", "expert") == "expert" else None,
        )
        made = reinforced(kept.path, arena, folder, chosen)
    if not quiet:
        show(made)
    return {"phase": 2, **made.json()}


def reinforced(start: Path, arena: "Arena", folder: Path, chosen: "ReinforceConfig") -> "Reinforced":
    """Learn, prove and keep in the project's store."""
    from journeyman.planning.reinforcing import Reinforcement

    project = config.load()
    artifacts = Artifacts(project.artifacts)
    with arena, open_store(project.store_url) as store:
        phase = Reinforcement(start=start, arena=arena, folder=folder, config=chosen)
        return phase.run(store, lambda path: policies.keep(path, artifacts))


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
