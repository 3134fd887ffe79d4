"""`journeyman releases slots`, `rollouts`, `assign` and `evidence`: what is served to whom, and how its test stands."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import head, minute, rows_table, say
from journeyman.cli.shared import acting, answering, read_store_url, show_evidence, show_shadow
from journeyman.core.rollout import PRODUCTION, Rollout, Slot, SlotKind, drawn, unit_of
from journeyman.stores.registry import find_rollout

if TYPE_CHECKING:
    from journeyman.serving.monitor import Rebuilt
    from journeyman.stores.base import Assignment, EvidenceRecord
    from journeyman.stores.rollouts import RolloutStore


def _opened(store: str | None) -> "RolloutStore":
    from journeyman.stores.rollouts import open_rollouts

    return open_rollouts(read_store_url(store), make=False)


@click.command("slots")
@answering
def slots(*, store: str | None, quiet: bool) -> dict[str, Any]:
    """List what is in production where, and the rollouts that are open there.

    \b
    Example:
      journeyman releases slots
    """
    from journeyman.serving.releases.control import slot_rows

    with _opened(store) as kept:
        live = kept.live()
    found, rollouts = slot_rows(live), {str(rollout.slot): rollout for rollout in live.rollouts}
    if not quiet:
        names = ("slot", "production", "since", "rollout", "state", "candidate", "share")
        since = {str(slot): minute(move.at) for slot, move in live.production.items()}
        cells = [(each["slot"], each["production"], since.get(each["slot"], "")) for each in found]
        rows_table(names, [(*each, *_rollout_cells(rollouts.get(each[0]))) for each in cells])
        if not found:
            say("Nothing is in production, and no rollout is open. To begin: journeyman releases start CANDIDATE")
    return {"slots": found}


def _rollout_cells(rollout: Rollout | None) -> tuple[str, ...]:
    if rollout is None:
        return ("",) * 4
    return rollout.id, rollout.state.value, ", ".join(arm.candidate_id for arm in rollout.arms), rollout.said_shares


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
    with _opened(store) as kept:
        found = list(reversed(kept.rollouts(Slot.parse(slot) if slot else None)))[:limit]
    if not quiet:
        _rollout_rows(found)
        if not found:
            say("There are no such rollouts. To begin one: journeyman releases start CANDIDATE")
    return {"rollouts": [each.told() for each in found]}


def _rollout_rows(found: Sequence[Rollout]) -> None:
    rows = [
        (
            each.id,
            str(each.slot),
            each.state.value,
            each.said_shares,
            ", ".join(arm.candidate_id for arm in each.arms),
            each.events[-1].cause.reason,
        )
        for each in found
    ]
    rows_table(("id", "slot", "state", "share", "candidate", "last reason"), rows)


@click.command("assign")
@click.argument("session", metavar="SESSION")
@click.option("--agent", metavar="NAME", help="That the session's requests name.")
@click.option("--domain", metavar="NAME", help="That the session's requests name.")
@click.option(
    "--kind", type=click.Choice([each.value for each in SlotKind]), default="context", show_default=True, help="Of slot."
)
@answering
def assign(*, session: str, agent: str | None, domain: str | None, kind: str, store: str | None, quiet: bool) -> dict[str, Any]:
    """Say which arm a session is on, and why; writes nothing.

    SESSION is what its requests name in X-Journeyman-Session.

    \b
    Example:
      journeyman releases assign s-17 --agent desk --domain oslo
    """
    from journeyman.serving.releases.assignment import session_key

    with _opened(store) as kept:
        live = kept.live()
        slot = live.slot_of(SlotKind(kind), agent, domain)
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


def _why_there(rollout: Rollout, bucket: float, known: "Assignment | None") -> str:
    if known is not None:
        out = known.arm != PRODUCTION and known.arm not in rollout.going
        then = "its candidate was taken out since" if out else "stays there"
        return f"{known.why} at {minute(known.at)} by the shares of event {known.event}, and {then}"
    return f"it is not drawn yet; at {bucket:.4f} of 0 to 1 it would fall there, with {rollout.said_shares} on the candidate"


@click.command("evidence")
@click.argument("rollout", metavar="ROLLOUT")
@click.option("--rebuild", is_flag=True, help="Beside it, what the same sessions come to with all that was said of them since.")
@answering
def evidence(*, rollout: str, rebuild: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Show what the test of a rollout has come to.

    With --rebuild the same sessions are judged once more, by all that is known of them now: truth that came after their window
    counts, too. Nothing that was decided is changed by it; where the verdict would be another one, the audit is told so.

    \b
    Examples:
      journeyman releases evidence context:desk/oslo
      journeyman releases evidence 20261124-0915 --rebuild
    """
    from journeyman.serving.releases.control import evidence_told

    with _opened(store) as kept:
        found = find_rollout(kept.rollouts(), rollout)
        last = kept.evidence(found.id)
        anew = _rebuilt(kept, found, last) if rebuild and last is not None else None
        told = evidence_told(kept, found, last)
    if not quiet:
        show_shadow(told.get("shadow"))
        if last is None:
            say(f"There is no evidence on {found.id} yet: nobody has compared its sessions.")
        else:
            head(("rollout", found.id), ("as of", minute(last.at)), ("number", str(last.number)))
            show_evidence(last.summary)
        if anew is not None:
            say("", "by the rows as they are now:")
            show_evidence(anew.summary)
            head(*((name, f"{each.event or 'go on'}: {each.reason}") for name, each in (("was", anew.was), ("now", anew.now))))
            say("the verdict is another one, and the audit is told so" if anew.changed else "the verdict is the same")
    return told | ({} if anew is None else {"rebuilt": anew.as_json()})


def _rebuilt(kept: "RolloutStore", rollout: Rollout, last: "EvidenceRecord") -> "Rebuilt":
    from journeyman.serving.monitor import rebuilt

    anew = rebuilt(kept, rollout, last)
    anew.audit(kept, rollout.id, acting(anew.now.reason).cause(evidence=last.number))
    return anew
