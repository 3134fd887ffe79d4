"""`journeyman learn`: turns of learning that nobody asks for, their journal, and the way back."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import duration, head, minute, rows_table, say
from journeyman.cli.shared import acting, answering, emit, json_option, read_store_url, store_option, store_url
from journeyman.core.errors import InputError, ReleaseError, StoreUnreachable
from journeyman.core.format import money
from journeyman.core.turn import Allowance, LearnTurn, TurnPlan, TurnState
from journeyman.io.processes import when_parent_ends, when_told

if TYPE_CHECKING:
    from journeyman.experiments.learning import LearnDaemon, LearnerConfig, Looked
    from journeyman.experiments.pipeline.stages import PipelineStage
    from journeyman.stores.rollouts import RolloutStore
    from journeyman.stores.turns import TurnStore, Verb

USUAL = {
    "playbook": "train playbook --from traces",
    "weights": "train weights",
    "router": "train router",
    "planner": "train planner",
    "reward": "rewards fit",
}
"""What a turn of a kind runs, unless [learn.commands] says otherwise."""
_BEGINS = 30.0
"""Seconds within which one that was started says that it runs."""


@click.group()
def command() -> None:
    """Learn again and again from what is recorded, within budgets, with nobody asking for it.

    [learn] in journeyman.toml says when a turn is due, what turns may spend, and how far what they find goes.

    \b
    Examples:
      journeyman learn start --dry-run
      journeyman learn start
      journeyman learn status
      journeyman learn undo playbook-2026 --reason "the sale is over"
    """


# Begin and end.


@command.command("start")
@click.option("--once", is_flag=True, help="Carry out what is due now, one turn at most, and end.")
@click.option("--foreground", is_flag=True, help="Stay here and say what is done, instead of in the background.")
@click.option("--dry-run", is_flag=True, help="Say what would be carried out now, and what not and why; do nothing.")
@click.option(
    "--config", "file", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Read [learn] from this file."
)
@click.option("--every", type=click.FloatRange(min=0.1), default=5.0, show_default=True, metavar="SECONDS",
              help="How often to look at what is due.")  # fmt: skip
@click.option("--with-parent", is_flag=True, hidden=True, help="End when standard input does.")
@store_option
@json_option
def start(as_json: bool, store: str | None, file: Path | None, *, once: bool, dry_run: bool, **how: Any) -> int:
    """Look again and again whether a turn is due, and carry it out.

    A turn runs the command of its kind in a process of its own; what passes the gate is kept, or with release = "canary"
    brought to live traffic as the rules of release let it. Of several that run on one store one at a time carries out turns.
    SIGTERM and `journeyman learn stop` end it after what a command keeps of itself; a turn that was killed counts as lost, and
    the next one goes on with it. With --once the exit code is 1 when somebody else carries out turns, or the turn failed.

    \b
    Examples:
      journeyman learn start --dry-run
      journeyman learn start
      journeyman learn start --foreground --config nightly.toml
      journeyman learn start --once --foreground --json
    """
    from journeyman.experiments.learning import LearnDaemon

    config = _config(store, file, every=how["every"])
    if dry_run:
        return _dry(config, as_json=as_json)
    if once:
        return _once(LearnDaemon(config, said=_learner_said), as_json=as_json)
    if not (how["foreground"] or how["with_parent"]):
        return _apart(config, store, file, how["every"], as_json=as_json)
    over = threading.Event()
    when_told(over.set)
    if how["with_parent"]:
        # Beside a gateway answers go first.
        os.nice(10)
        when_parent_ends(over.set)
    LearnDaemon(config, said=_learner_said).run(over)
    return 0


def _learner_said(text: str) -> None:
    say(f"journeyman: learn: {text}")


def _config(store: str | None, file: Path | None, *, every: float) -> "LearnerConfig":
    """
    Raises:
        InputError: [learn] cannot be meant, or a command of it is none.
    """
    from journeyman.cli.pipeline_file import typed_stage
    from journeyman.experiments import settings
    from journeyman.experiments.learning import LearnerConfig

    project = settings.load()
    learn = (project if file is None else settings.load(named=file)).settings.learn
    where = str(file or project.file or "[learn]")
    root = click.get_current_context().find_root().command
    assert isinstance(root, click.Group)
    stages: dict[str, PipelineStage] = {
        kind: typed_stage(root, where, f"learn.commands.{kind}", learn.commands.get(kind, USUAL[kind])) for kind in learn.kinds
    }
    if learn.plan and not (project.root / learn.plan).is_file():
        raise InputError(f"{where}: learn.plan names {learn.plan}, and there is no such file in {project.root}")
    return LearnerConfig(
        url=store_url(store),
        root=project.root,
        folder=project.folder,
        artifacts=project.artifacts,
        settings=learn,
        commands=stages,
        every=every,
    )


def _dry(config: "LearnerConfig", *, as_json: bool) -> int:
    from journeyman.experiments.learning import LearnDaemon, opened

    with opened(config.url, make=False) as stores:
        found = LearnDaemon(config).planned(stores)
    if not as_json:
        _show_plans(found.plans, found.left)
    emit({"dry_run": True, **_looked(found)}, as_json=as_json)
    return 0


def _once(learner: "LearnDaemon", *, as_json: bool) -> int:
    from journeyman.experiments.learning import opened
    from journeyman.stores.turns import LEASE

    over = threading.Event()
    when_told(over.set)
    with opened(learner.config.url) as stores:
        found = learner.look(stores, over)
        stores.turns.give_back(LEASE, learner.config.holder, datetime.now(UTC))
    if found.elsewhere or found.paused:
        say(f"journeyman: {found.paused or f'{found.elsewhere} carries out turns at the moment; nothing was done'}")
    elif found.turn is None:
        _show_plans(found.plans, found.left)
    else:
        say(f"{found.turn.id} ({found.turn.subject}): {found.turn.state}: {found.turn.last.reason}")
    emit({"dry_run": False, **_looked(found)}, as_json=as_json)
    return int(bool(found.elsewhere) or (found.turn is not None and found.turn.state is TurnState.FAILED))


def _apart(config: "LearnerConfig", store: str | None, file: Path | None, every: float, *, as_json: bool) -> int:
    """Begin one in the background; its process, once it says that it runs."""
    from journeyman.experiments.learning import FOLDER, DaemonState, opened
    from journeyman.stores.turns import LEASE

    with opened(config.url) as stores:
        if holder := stores.turns.held_by(LEASE, datetime.now(UTC)):
            say(f"journeyman: {holder} carries out turns already; journeyman learn status says more")
            emit({"started": False, "holder": holder}, as_json=as_json)
            return 1
    folder = config.folder / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    named = ["--config", str(file.resolve())] if file else []
    typed = [sys.executable, "-m", "journeyman", "learn", "start", "--foreground", "--every", f"{every:g}", *named]
    # Not on the command line, which everybody can read: the URL may hold a password.
    environment = {**os.environ, "JOURNEYMAN_STORE": config.url}
    log = folder / "daemon.log"
    with log.open("ab") as told:
        process = subprocess.Popen(
            typed, stdin=subprocess.DEVNULL, stdout=told, stderr=told, env=environment, start_new_session=True
        )
    until = time.monotonic() + _BEGINS
    while process.poll() is None and time.monotonic() < until:
        state = DaemonState.read(config.folder)
        if state is not None and state.process.get("pid") == process.pid:
            say(f"journeyman: learns in the background (process {process.pid}); what it says is in {log}")
            emit({"started": True, "pid": process.pid, "log": str(log)}, as_json=as_json)
            return 0
        time.sleep(0.1)
    last = (log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["nothing"])[-1]
    raise InputError(f"it did not begin: {last.removeprefix('journeyman: ')} (see {log})")


def _order(verb: "Verb", store: str | None, reason: str) -> dict[str, Any]:
    from journeyman.stores.turns import LEASE, LearnOrder, open_turns

    now, who = datetime.now(UTC), acting(reason).actor.partition(":")[2]
    with open_turns(read_store_url(store)) as turns:
        turns.order(LearnOrder(verb, who, reason, now))
        return {"said": verb, "holder": turns.held_by(LEASE, now)}


_why = click.option("--reason", default="", metavar="TEXT", help="Why, in one sentence; it is kept.")


@command.command("stop")
@_why
@answering
def stop(*, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Tell whoever carries out turns on the store to end, on whatever machine: within seconds, after what a command keeps.

    \b
    Example:
      journeyman learn stop
    """
    told = _order("stop", store, reason)
    if not quiet:
        say(f"{told['holder']} is told to stop" if told["holder"] else "nobody carries out turns")
    return told


@command.command("pause")
@_why
@answering
def pause(*, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Let no further turn begin, whoever would carry it out, until `journeyman learn resume`. One that runs comes to its end.

    \b
    Example:
      journeyman learn pause --reason "a sale this week"
    """
    told = _order("pause", store, reason)
    if not quiet:
        say("no further turn begins; to go on: journeyman learn resume")
    return told


@command.command("resume")
@_why
@answering
def resume(*, reason: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Let turns begin again after a pause.

    \b
    Example:
      journeyman learn resume
    """
    told = _order("resume", store, reason)
    if not quiet:
        say("turns begin again" + ("" if told["holder"] else "; nobody carries them out: journeyman learn start"))
    return told


# See.


@command.command("status")
@store_option
@json_option
def status(as_json: bool, store: str | None) -> int:
    """Say who carries out turns, what is due and what not and why, and what is left of the budgets.

    While the store is away it says so, and what the one of this project said last. Exit code 1 when nobody carries out turns,
    or the store is away.

    \b
    Examples:
      journeyman learn status
      journeyman learn status --json
    """
    from journeyman.experiments import settings
    from journeyman.experiments.learning import DaemonState

    state = DaemonState.read(settings.load().folder)
    daemon = None if state is None else {"state": state.state, "says": state.says, "at": state.at}
    if not as_json and state is not None:
        head(("here", f"{state.state}: {state.says}"), ("since", minute(datetime.fromisoformat(state.at))))
    try:
        told = _standing(store, quiet=as_json)
    except StoreUnreachable as error:
        say(f"journeyman: the store is away: {error}")
        emit({"daemon": daemon, "away": str(error)}, as_json=as_json)
        return 1
    emit({"daemon": daemon, "away": None, **told}, as_json=as_json)
    return 0 if told["holder"] else 1


def _standing(store: str | None, *, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments.learning import LearnDaemon, opened
    from journeyman.stores.turns import LEASE

    config = _config(store, None, every=5.0)
    with opened(config.url, make=False) as stores:
        found, now = LearnDaemon(config).planned(stores), datetime.now(UTC)
        holder, order = stores.turns.held_by(LEASE, now), stores.turns.last_order("pause", "resume")
        running = next((turn for turn in stores.turns.turns(since=now) if not turn.is_over), None)
    paused = order is not None and order.verb == "pause"
    if not quiet:
        head(("carried out by", holder or "nobody; to begin: journeyman learn start"))
        head(("paused", f"by {order.who} {order.reason}".strip() if paused and order is not None else ""))
        head(("turn", f"{running.id} ({running.subject}), since {minute(running.began)}" if running else ""))
        _show_plans(found.plans, found.left)
    return {"holder": holder, "paused": paused, "running": running.id if running else None, **_looked(found)}


@command.command("history")
@click.argument("turn", metavar="[TURN]", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="So many at most.")
@answering
def history(*, turn: str | None, limit: int, store: str | None, quiet: bool) -> dict[str, Any]:
    """List turns, newest first; or show one, with all that it takes to do it again: its command, its data, its files by digest.

    \b
    Examples:
      journeyman learn history
      journeyman learn history playbook-20261127 --json
    """
    from journeyman.stores.turns import open_turns

    with open_turns(read_store_url(store), make=False) as turns:
        found = [turns.turn(turn)] if turn else list(reversed(turns.turns(limit=limit)))
    if not quiet and turn:
        _show_turn(found[0])
    elif not quiet:
        rows_table(("turn", "of", "began", "became", "cost", "CPU", "why"), [_cells(each) for each in found])
        if not found:
            say("There was no turn yet. What is due: journeyman learn start --dry-run")
    return {"turns": [told_turn(each, whole=bool(turn)) for each in found]}


def _cells(turn: LearnTurn) -> tuple[str, ...]:
    spent = turn.outcome.spent
    cpu = duration(spent.cpu_seconds)
    return (
        turn.id,
        str(turn.subject),
        minute(turn.began),
        turn.state.value,
        money(spent.cost),
        cpu,
        turn.last.reason or turn.trigger,
    )


def _show_turn(turn: LearnTurn) -> None:
    head(("turn", turn.id), ("of", str(turn.subject)), ("because", turn.trigger), ("goes on with", turn.parent))
    head(("ran", f"journeyman {' '.join(turn.before.get('command', ()))}"))
    head(("data", f"{turn.seen} traces, {turn.data_digest}"), ("candidate", turn.outcome.candidate))
    for name, digest in dict(turn.before.get("files", {})).items():
        head(("before", f"{name} {digest or 'was not there'}"))
    for event in turn.events:
        say(f"  {minute(event.at)} {event.state}: {event.reason or f'{event.spent.cpu_seconds:g} s of CPU written down ahead'}")


def told_turn(turn: LearnTurn, *, whole: bool = False) -> dict[str, Any]:
    """A turn as JSON."""
    events = [
        {"number": each.number, "state": each.state.value, "at": each.at.isoformat(), **each.spent.json(),
         "reason": each.reason, **({"report": each.report} if whole else {})}
        for each in turn.events
    ]  # fmt: skip
    return {
        "id": turn.id,
        **turn.subject._asdict(),
        "began": turn.began.isoformat(),
        "trigger": turn.trigger,
        "parent": turn.parent or None,
        "data_digest": turn.data_digest,
        "seen": turn.seen,
        "state": turn.state.value,
        "candidate": turn.outcome.candidate or None,
        "reason": turn.last.reason,
        "spent": turn.outcome.spent.json(),
        **({"before": turn.before, "events": events} if whole else {}),
    }


def _looked(found: "Looked") -> dict[str, Any]:
    plans = [
        {"subject": str(each.subject), **each.subject._asdict(), "due": each.is_due, "why": each.trigger or each.why_not,
         "seen": each.experience.seen, "parent": each.parent or None}
        for each in found.plans
    ]  # fmt: skip
    turn = told_turn(found.turn, whole=True) if found.turn else None
    return {"plans": plans, "left": found.left._asdict(), "turn": turn, "elsewhere": found.elsewhere or None}


def _show_plans(plans: Sequence[TurnPlan], left: Allowance) -> None:
    rows = [(str(each.subject), "due" if each.is_due else "not due", each.trigger or each.why_not) for each in plans]
    if rows:
        rows_table(("what", "turn", "why"), rows)
    else:
        say("Nothing was recorded yet that could be learned from: journeyman serve records")
    say(f"left of the budgets: {left.told()}")


# And back.


@command.command("undo")
@click.argument("turn", metavar="TURN")
@click.option("--reason", required=True, metavar="TEXT", help="Why, in one sentence; it is kept.")
@click.option("--dry-run", is_flag=True, help="Say what would be put back, and do nothing.")
@answering
def undo(*, turn: str, reason: str, dry_run: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Take back what a turn did: what it brought to live traffic, and the files that it wrote, byte for byte.

    TURN is as much of an id as tells it apart. Of several turns of one kind, agent and domain the last goes first. The same
    candidate is not released by a later turn again.

    \b
    Examples:
      journeyman learn undo playbook-20261127 --reason "the shop's sale is over" --dry-run
      journeyman learn undo playbook-20261127 --reason "the shop's sale is over"
    """
    from journeyman.experiments import settings
    from journeyman.experiments.learning import opened, restore
    from journeyman.stores.artifacts import Artifacts

    project = settings.load()
    with opened(read_store_url(store), make=False) as stores:
        found = stores.turns.turn(turn)
        _undoable(stores.turns, found)
        served = _taken_back(stores.rollouts, found, reason, dry_run=dry_run)
        files = restore(project.root, Artifacts(project.artifacts), found, dry_run=dry_run)
        digests = {name: found.before["files"][name] for name in files}
        told = {"turn": found.id, "served": served, "files": digests, "dry_run": dry_run, "done": not dry_run}
        if not dry_run:
            more = {"spent": found.outcome.spent, "reason": reason, "report": {"files": digests, "served": served}}
            stores.turns.keep(found.then(TurnState.UNDONE, datetime.now(UTC), candidate=found.outcome.candidate, **more))
    if not quiet:
        would = "would be " if dry_run else ""
        say(f"{found.id} {'is' if not dry_run else would.strip()} undone" + (f"; {served}" if served else ""))
        say(*(f"  {name} {would or 'is '}as it was before: {digest or 'not there'}" for name, digest in digests.items()))
    return told


def _undoable(turns: "TurnStore", found: LearnTurn) -> None:
    if found.state is not TurnState.LEARNED:
        raise InputError(f"{found.id} is {found.state}: nothing came of it that could be undone")
    later = [each for each in turns.turns() if each.subject == found.subject and each.began > found.began]
    if busy := [each for each in later if not each.is_over]:
        raise ReleaseError(f"{busy[0].id} is at work on the same; wait for it, or journeyman learn stop")
    if after := [each for each in later if each.state is TurnState.LEARNED]:
        raise ReleaseError(f"{after[-1].id} went on from it; undo that first")


def _taken_back(rollouts: "RolloutStore", found: LearnTurn, reason: str, *, dry_run: bool) -> str:
    """What was done to what is served, in words."""
    from journeyman.core.rollout import EventKind, RolloutState
    from journeyman.experiments.learning import rollout_of
    from journeyman.serving.releases import control

    rollout = rollout_of(found, rollouts)
    if rollout is None:
        return ""
    slot, by = rollout.slot, acting(f"{found.id} is undone: {reason}")
    if rollout.is_open:
        if not dry_run:
            kind = EventKind.CLOSE if rollout.state is RolloutState.PLANNED else EventKind.ROLLBACK
            control.move(rollouts, rollout, control.RolloutMove(kind=kind, by=by))
    elif rollouts.live().baseline(slot).candidate_id == found.outcome.candidate:
        if not dry_run:
            rollouts.undo(slot, by.cause())
    else:
        return f"{slot} serves something else by now, and is left alone"
    now = "" if dry_run else f": {rollouts.live().baseline(slot).candidate_id}"
    return f"{slot} {'would serve' if dry_run else 'serves'} what it did before{now}"
