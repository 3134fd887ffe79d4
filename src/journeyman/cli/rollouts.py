"""`journeyman releases slots`, `rollouts`, `assign` and `evidence`: what is served to whom, and how its test stands."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

import click

from journeyman.cli.console import minute, named_columns, number, say, table
from journeyman.cli.registry import head, rows_table
from journeyman.cli.shared import emit, json_option, read_store_url, store_option
from journeyman.core.errors import InputError, ReleaseError
from journeyman.core.rollout import PRODUCTION, Cause, Rollout, Slot, SlotKind, SlotMove, drawn, unit_of
from journeyman.stores.base import Assignment, whole_id
from journeyman.stores.rollouts import RolloutStore, open_rollouts

_Act = Callable[..., dict[str, Any]]


# What all of them have.


def answering(act: _Act) -> Callable[..., int]:
    """Gives a command `--store` and `--json`. That something is refused is an answer: exit code 1, and the reason."""

    @wraps(act)
    def run(as_json: bool, **given: Any) -> int:
        try:
            result = act(quiet=as_json, **given)
        except ReleaseError as error:
            say(f"journeyman: {error}")
            emit({"done": False, "reason": str(error)}, as_json=as_json)
            return 1
        emit(result, as_json=as_json)
        return 0

    return store_option(json_option(run))


def opened(store: str | None) -> RolloutStore:
    return open_rollouts(read_store_url(store), make=False)


def find_rollout(kept: RolloutStore, text: str) -> Rollout:
    """By as much of its id as tells it apart, or by the slot that it is open in."""
    if _is_slot(text):
        slot = Slot.parse(text)
        found = [each for each in kept.rollouts(slot) if each.is_open]
        if not found:
            raise InputError(f"no rollout is open in {slot}; journeyman releases rollouts shows those that were")
        return found[0]
    rollouts = {each.id: each for each in kept.rollouts()}

    def starting(prefix: str, limit: int) -> Sequence[str]:
        return [id for id in sorted(rollouts) if id.startswith(prefix)][:limit]

    return rollouts[whole_id(text, starting, one="rollout", many="releases rollouts")]


def _is_slot(text: str) -> bool:
    return text.partition(":")[0] in tuple(SlotKind)


def named(store: str | None, text: str) -> Rollout | None:
    """The rollout that is meant; `None` where a candidate is."""
    with opened(store) as kept:
        if _is_slot(text) or any(text and each.id.startswith(text) for each in kept.rollouts()):
            return find_rollout(kept, text)
    return None


# Look.


@click.command("slots")
@answering
def slots(*, store: str | None, quiet: bool) -> dict[str, Any]:
    """List what is in production where, and the rollouts that are open there.

    \b
    Example:
      journeyman releases slots
    """
    with opened(store) as kept:
        live = kept.live()
    rollouts = {rollout.slot: rollout for rollout in live.rollouts}
    found, rows = [], []
    for slot in sorted(live.production.keys() | rollouts.keys()):
        move, rollout, serves = live.production.get(slot), rollouts.get(slot), live.baseline(slot).candidate_id
        told = {"since": move.at.isoformat() if move else None, "by": move.actor if move else None}
        found.append({"slot": str(slot), "production": serves, **told, "rollout": rollout_json(rollout) if rollout else None})
        rows.append((str(slot), serves, minute(move.at) if move else "", *_rollout_cells(rollout)))
    if not quiet:
        names = ("slot", "production", "since", "rollout", "state", "candidate", "share")
        rows_table(names, rows)
        if not found:
            say("Nothing was ever brought to live traffic here. To begin: journeyman releases start CANDIDATE")
    return {"slots": found}


def _rollout_cells(rollout: Rollout | None) -> tuple[str, ...]:
    if rollout is None:
        return ("",) * 4
    return rollout.id, rollout.state.value, ", ".join(arm.candidate_id for arm in rollout.arms), shares_text(rollout)


@click.command("rollouts")
@click.argument("slot", metavar="[SLOT]", required=False)
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="So many at most.")
@answering
def rollouts(*, slot: str | None, limit: int, store: str | None, quiet: bool) -> dict[str, Any]:
    """List rollouts, newest first.

    \b
    Examples:
      journeyman releases rollouts
      journeyman releases rollouts context:desk/oslo
    """
    with opened(store) as kept:
        found = list(reversed(kept.rollouts(Slot.parse(slot) if slot else None)))[:limit]
    if not quiet:
        _rollout_rows(found)
        if not found:
            say("There are no such rollouts. To begin one: journeyman releases start CANDIDATE")
    return {"rollouts": [rollout_json(each) for each in found]}


def _rollout_rows(found: Sequence[Rollout]) -> None:
    rows = [
        (each.id, str(each.slot), each.state.value, shares_text(each), each.arms[0].candidate_id, each.events[-1].cause.reason)
        for each in found
    ]
    rows_table(("id", "slot", "state", "share", "candidate", "last reason"), rows)


def show_rollout(rollout: Rollout, *, quiet: bool) -> dict[str, Any]:
    """What it is of, and what happened to it."""
    if not quiet:
        arm = rollout.arms[0]
        head(("rollout", rollout.id), ("slot", str(rollout.slot)), ("state", rollout.state.value))
        head(("candidate", arm.candidate_id), ("baseline", rollout.baseline.candidate_id), ("gate", rollout.verdict))
        head(("share", shares_text(rollout)), ("steps", ", ".join(f"{each:.4g}" for each in rollout.plan.steps)))
        rows = [
            (
                str(each.number),
                each.kind.value,
                minute(each.cause.at),
                each.cause.actor,
                _percents(each.shares),
                _why(each.cause),
            )
            for each in rollout.events
        ]
        rows_table(("event", "what", "at", "by", "share", "reason"), rows)
    return {"rollout": rollout_json(rollout)}


def slot_history(store: str | None, text: str, limit: int, *, quiet: bool) -> dict[str, Any]:
    """What was in production of a slot, and what happened to its rollouts, newest first."""
    slot = Slot.parse(text)
    with opened(store) as kept:
        moves, rollouts = kept.slot_history(slot), kept.rollouts(slot)
    told = [
        *((move.at, "production", move.candidate_id, move.actor, move.reason, move_json(move)) for move in reversed(moves)),
        *(
            (event.cause.at, event.kind.value, each.id, event.cause.actor, _why(event.cause), _event_json(each, event.number))
            for each in rollouts
            for event in reversed(each.events)
        ),
    ]
    # Sorting is stable: of two things at one moment the later stays first, and what follows from an event before it.
    told = sorted(told, key=lambda each: each[0], reverse=True)[:limit]
    if not quiet:
        rows_table(("at", "what", "of", "by", "reason"), [(minute(each[0]), *each[1:5]) for each in told])
        if not told:
            say(f"Nothing was ever brought into {slot}.")
    return {"slot": str(slot), "history": [each[5] for each in told]}


@click.command("assign")
@click.argument("session", metavar="SESSION")
@click.option("--agent", metavar="NAME", help="That the session's requests name.")
@click.option("--domain", metavar="NAME", help="That the session's requests name.")
@answering
def assign(*, session: str, agent: str | None, domain: str | None, store: str | None, quiet: bool) -> dict[str, Any]:
    """Say which arm a session is on, and why; writes nothing.

    SESSION is what its requests name in X-Journeyman-Session.

    \b
    Example:
      journeyman releases assign s-17 --agent desk --domain oslo
    """
    from journeyman.serving.releases.live import session_key

    with opened(store) as kept:
        live = kept.live()
        slot = live.slot_of(SlotKind.CONTEXT, agent, domain)
        rollout = next((each for each in live.rollouts if each.slot == slot and each.is_drawing), None)
        unit = unit_of(rollout.salt, session_key(session)) if rollout else None
        known = kept.assigned(rollout.id, unit.id) if rollout and unit else None
    told: dict[str, Any] = {"session": session, "slot": str(slot) if slot else None, "kept": known is not None}
    if rollout is None or unit is None:
        candidate = live.baseline(slot).candidate_id if slot else None
        what = f"nobody is drawn in {slot}" if slot else "no slot serves such requests: they pass as they come"
        told |= {"rollout": None, "arm": PRODUCTION, "candidate": candidate, "why": what}
    else:
        arm = known.arm if known else drawn(unit.bucket, rollout.shares)
        told |= {"rollout": rollout.id, "unit": unit.id, "bucket": unit.bucket, "arm": arm}
        told |= {"candidate": rollout.arm(arm).candidate_id, "why": _why_there(rollout, unit.bucket, known)}
    if not quiet:
        head(("session", session), ("slot", told["slot"] or ""), ("rollout", told["rollout"] or ""))
        head(("arm", told["arm"]), ("candidate", told["candidate"] or ""), ("why", told["why"]))
    return told


def _why_there(rollout: Rollout, bucket: float, known: Assignment | None) -> str:
    if known is not None:
        return f"{known.why} at {minute(known.at)} by the shares of event {known.event}, and stays there"
    return f"it is not drawn yet; at {bucket:.4f} of 0 to 1 it would fall there, with {shares_text(rollout)} on the candidate"


@click.command("evidence")
@click.argument("rollout", metavar="ROLLOUT")
@answering
def evidence(*, rollout: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Show what the test of a rollout has come to.

    \b
    Example:
      journeyman releases evidence context:desk/oslo
    """
    with opened(store) as kept:
        found = find_rollout(kept, rollout)
        last = kept.evidence(found.id)
    if last is None:
        if not quiet:
            say(f"There is no evidence on {found.id} yet: nobody has compared its sessions.")
        return {"rollout": found.id, "evidence": None}
    if not quiet:
        head(("rollout", found.id), ("as of", minute(last.at)), ("number", str(last.number)))
        metrics = dict(_metrics((), last.summary))
        head(*((".".join(path), _cell(value)) for path, value in _others((), last.summary)))
        names = ("canary", "production", "difference", "low", "high", "e_harm", "e_promote")
        rows = [(".".join(path), *(_cell(each.get(name)) for name in names)) for path, each in metrics.items()]
        if rows:
            table(named_columns("metric", *(name.replace("_", " ") for name in names)), rows)
    record = {"number": last.number, "upto": last.upto, "at": last.at.isoformat(), "summary": dict(last.summary)}
    return {"rollout": found.id, "evidence": record}


_Path = tuple[str, ...]


def _metrics(path: _Path, told: Mapping[str, Any]) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """What stands in a summary as `ArmEvidence`, wherever it does."""
    for name, each in told.items():
        if isinstance(each, Mapping):
            if "difference" in each:
                yield (*(part for part in path if part != "metrics"), name), each
            else:
                yield from _metrics((*path, name), each)


def _others(path: _Path, told: Mapping[str, Any]) -> Iterator[tuple[_Path, Any]]:
    for name, each in told.items():
        if not isinstance(each, Mapping):
            yield (*path, name), each
        elif "difference" not in each:
            yield from _others((*path, name), each)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value, ".4g")
    return "-" if value is None else str(value)


# In words, and for `--json`.


def _why(cause: Cause) -> str:
    return f"forced: {cause.reason}" if cause.forced else cause.reason


def shares_text(rollout: Rollout) -> str:
    return _percents(rollout.shares)


def _percents(shares: Mapping[str, float]) -> str:
    if len(shares) == 1:
        return f"{next(iter(shares.values())):.4g}"
    return ", ".join(f"{share:.4g} {arm}" for arm, share in shares.items())


def rollout_json(rollout: Rollout) -> dict[str, Any]:
    """Without the salt: whoever has it can find out of a session whose it is."""
    told = {name: value for name, value in rollout.as_json().items() if name != "salt"}
    state = {"state": rollout.state.value, "open": rollout.is_open, "shares": dict(rollout.shares), "step": rollout.step}
    return {**told, **state}


def _event_json(rollout: Rollout, number: int) -> dict[str, Any]:
    event = rollout_json(rollout)["events"][number - 1]
    return {"rollout": rollout.id, **event}


def move_json(move: SlotMove) -> dict[str, Any]:
    return {**move._asdict(), "slot": str(move.slot), "at": move.at.isoformat()}
