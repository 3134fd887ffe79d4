"""`journeyman playbook why`, `approve` and `reject`: what stands behind a bullet, and a person's word on one that waits for it.

What stands in a bullet was written by a model, and in its evidence by anybody: nothing of it is taken for markup.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import head, minute, say, short
from journeyman.cli.shared import emit, json_option, person, read_store_url, store_option, together
from journeyman.core.candidate import Kind
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.core.playbook import Add, Batch, Bullet, BulletOrigin, Merge, Playbook

if TYPE_CHECKING:
    from journeyman.optimizers.playbook.edit import Edited
    from journeyman.stores.base import EvaluationRecord, Store

_FILE = click.Path(path_type=Path, dir_okay=False)

_ORIGINS = {
    BulletOrigin.ENVIRONMENT: "the environment: what a tool said, a schema, a check",
    BulletOrigin.PERSON: "a person: a label or a correction",
    BulletOrigin.CONTRAST: "the difference between right and wrong attempts at the same request",
    BulletOrigin.TEMPLATE: "the environment, put into words by a template",
    BulletOrigin.DOCUMENT: "a document: what somebody wrote down",
}
_NAMED = 5
"""Traces that are named to people; --json has all that are known."""
_CANDIDATES = 200
"""The newest candidates of the store among which the last one with a bullet is looked for."""


@click.command()
@click.argument("file")
@click.argument("bullet")
@store_option
@json_option
def why(file: str, bullet: str, store: str | None, as_json: bool) -> None:
    """Say where a bullet came from, what stands behind it, and what became of it.

    As much of its id as tells it apart is enough. Traces and examinations are looked up in the store.

    \b
    Examples:
      journeyman playbook why playbooks/oslo.json b-3f2a
      journeyman playbook why playbooks/oslo.json@3 b-3f2a --json
    """
    from journeyman.optimizers.playbook import edit

    playbook = edit.at_revision(file)
    found = edit.bullet_named(playbook, bullet, file)
    told = _told(found, playbook, file, read_store_url(store))
    if not as_json:
        _show(found, told)
    emit(told, as_json=as_json)


_deciding = together(
    click.argument("file", type=_FILE),
    click.argument("bullets", nargs=-1, required=True),
    click.option("--reason", required=True, help="Why, for those who come later."),
    click.option("--who", metavar="NAME", help="Whose word it is.  [default: $JOURNEYMAN_USER, else who is logged in]"),
    json_option,
)


@click.command()
@_deciding
def approve(**given: Any) -> None:
    """Let held bullets be shown to agents.

    Who said so and why stands in the journal. With them the playbook is another candidate, which has to be examined as one.

    \b
    Examples:
      journeyman playbook approve playbooks/oslo.json b-3f2a --reason "the fee is in our price list"
      journeyman playbook approve playbooks/oslo.json b-3f2a b-77c0 --reason "read both, both are right" --who ada
    """
    from journeyman.optimizers.playbook import edit

    _decide(edit.approve, "approved", **given)


@click.command()
@_deciding
def reject(**given: Any) -> None:
    """Retire held bullets: a person does not want them.

    They stay in the file with the reason, so that the same thing is not learned again.

    \b
    Example:
      journeyman playbook reject playbooks/oslo.json b-3f2a --reason "nobody gets a discount for asking"
    """
    from journeyman.optimizers.playbook import edit

    _decide(edit.reject, "rejected", **given)


def _decide(
    act: "Callable[..., Edited]", done: str, *, file: Path, bullets: Sequence[str], as_json: bool, **given: Any
) -> None:
    from journeyman.optimizers.playbook import edit

    why, name = given["reason"].strip(), person(given["who"])
    if not why:
        raise InputError("--reason says nothing; write why, for those who come later")
    playbook = edit.editable(file)
    chosen = list(dict.fromkeys(edit.waiting(playbook, bullet, file).id for bullet in bullets))
    edited = act(file, chosen, by=name, why=why, at=datetime.now(UTC).isoformat(timespec="seconds"))
    if edited.moved:
        say(f"the journal did not know {file} as it is now; a new one begins, and the old one is {edited.moved}")
    for bullet in edited.playbook.bullets:
        if bullet.id in chosen:
            say(f"{bullet.id} is {done} by {name}{_warning(bullet)}")
    left = len(edited.playbook.held)
    say(f"{file} is written; {counted(left, 'bullet')} still {'waits' if left == 1 else 'wait'} for a person")
    if any(bullet.id in chosen and bullet.provenance.traces and not bullet.retired for bullet in edited.playbook.bullets):
        say("to examine it as it is now, run what taught it once more: journeyman train playbook --from traces")
    result = {"output": str(file), "revision": edited.revision, "bullets": len(edited.playbook.active)}
    emit({**result, "ids": chosen, "held": left, "by": name, "reason": why}, as_json=as_json)


def _warning(bullet: Bullet) -> str:
    """What a person may have overlooked in a bullet that is shown from now on."""
    from journeyman.optimizers.playbook.personal import personal_data

    kinds = [] if bullet.retired else dict.fromkeys(found.kind for found in personal_data(bullet.content))
    return f"; it holds what may be personal data ({', '.join(kinds)}), and whoever reads a prompt reads it" if kinds else ""


# What is told of one bullet.


def _told(bullet: Bullet, playbook: Playbook, file: str, url: str) -> dict[str, Any]:
    from journeyman.stores.urls import is_nowhere

    origin, nowhere = bullet.provenance, is_nowhere(url)
    return {
        "file": file,
        "id": bullet.id,
        "content": bullet.content,
        "domain": bullet.domain,
        "section": bullet.section,
        "stage": bullet.stage.value,
        "version": bullet.version,
        "state": "retired" if bullet.retired else "held" if bullet.held else "active",
        "retired": bullet.retired,
        "held": bullet.held,
        "locked": bullet.locked,
        "expires_at": bullet.expires_at,
        "origin": origin.origin,
        "evidence": origin.evidence,
        "model": origin.model,
        "run": origin.run,
        "tasks": list(origin.tasks),
        "principals": origin.principals,
        "trace_count": max(origin.trace_count, len(origin.traces)),
        "documents": list(origin.documents),
        "traces": [{"id": id, "kept": kept} for id, kept in _kept(origin.traces, None if nowhere else url)],
        "votes": {name: getattr(bullet, name) for name in ("shown", "cited", "helpful", "harmful", "support", "confidence")},
        "examined": None if nowhere else _examined(bullet, playbook, url),
        "changes": list(_changes(bullet.id, file)),
    }


def _kept(ids: Sequence[str], url: str | None) -> Iterator[tuple[str, bool | None]]:
    """Whether each trace is in the store still; `None` where there is none."""
    from journeyman.stores.traces import open_traces

    if not ids or url is None:
        yield from ((id, None) for id in ids)
        return
    with open_traces(url, make=False) as traces:
        yield from ((id, traces.line(id) is not None) for id in ids)


def _examined(bullet: Bullet, playbook: Playbook, url: str) -> dict[str, Any] | None:
    """The latest examination of the playbook as it is; else of the last candidate in the store that had this bullet."""
    from journeyman.experiments.agents import candidate_of
    from journeyman.stores import open_store

    with open_store(url, make=False) as store:
        whole = candidate_of(playbook) if not bullet.held and not bullet.retired else None
        last = _latest(store, whole.id) if whole else None
        last = last or next(filter(None, map(partial(_latest, store), _with_bullet(store, bullet))), None)
    if last is None:
        return None
    alone = next((each for each in last.report.get("bullets", ()) if each.get("bullet_id") == bullet.id), None)
    return {
        "id": last.id,
        **{name: getattr(last, name) for name in ("candidate_id", "baseline_id", "passed", "reason")},
        "verdict": last.report.get("verdict", "passed" if last.passed else "refused"),
        "without_it": alone and {name: alone.get(name) for name in ("tasks", "gain", "low", "high")},
        "at": last.at.isoformat(),
        "as_it_is": whole is not None and last.candidate_id == whole.id,
    }


def _latest(store: "Store", candidate_id: str) -> "EvaluationRecord | None":
    return next(iter(store.evaluations(candidate_id=candidate_id, newest_first=True)), None)


def _with_bullet(store: "Store", bullet: Bullet) -> Iterator[str]:
    from itertools import islice

    from journeyman.optimizers.playbook import files

    for candidate in islice(store.candidates(Kind.PLAYBOOK, newest_first=True), _CANDIDATES):
        # Reading a playbook is dear, and most do not have the id anywhere.
        if bullet.id in candidate.body and any(
            each.id == bullet.id and each.content == bullet.content and not each.retired
            for each in files.loads(candidate.body, f"candidate {candidate.id}").bullets
        ):
            yield candidate.id


def _changes(id: str, file: str) -> Iterator[dict[str, Any]]:
    """The entries of the journal that speak of a bullet, oldest first; none where there is no journal."""
    from journeyman.optimizers.playbook import edit

    path = Path(file) if Path(file).exists() else Path(file.rpartition("@")[0] or file)
    if edit.journal_of(path).exists():
        for entry in edit.revisions(path):
            if isinstance(entry.change, Batch) and any(id in _about(delta) for delta in entry.change.deltas):
                yield {"revision": entry.revision, "at": edit.time_of(entry), "what": edit.change_of(entry)}


def _about(delta: Any) -> tuple[str, ...]:
    match delta:
        case Add():
            return (delta.bullet.id,)
        case Merge():
            return (delta.kept, *delta.gone)
        case _:
            return (delta.bullet_id,)


# What people are shown.


def _trace_lines(told: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How many traces a bullet was learned from, and how to see some of them."""
    if not told["trace_count"]:
        return
    whom = f" of {counted(told['principals'], 'principal')}" if told["principals"] else ""
    yield "learned", f"from {counted(told['trace_count'], 'trace')}{whom}"
    kept, named = [trace["id"] for trace in told["traces"] if trace["kept"]], len(told["traces"])
    for id in kept[:_NAMED]:
        yield "", f"journeyman traces show {id}"
    if any(trace["kept"] is None for trace in told["traces"]):
        yield "", f"{counted(named, 'trace')} named, and there is no store here to see them in: --store names it"
    elif len(kept) < named:
        yield "pruned", f"{named - len(kept)} of the {named} traces that are named are not in the store any more"


def _show(bullet: Bullet, told: dict[str, Any]) -> None:
    origin, votes = told["origin"], told["votes"]
    head(
        ("bullet", told["id"]),
        ("says", bullet.content),
        ("place", f"{bullet.domain}, {bullet.section}, {bullet.stage.value}, version {bullet.version}"),
        ("retired", bullet.retired),
        ("held", "" if bullet.retired else bullet.held),
        ("locked", "by a person: nothing changes it" if bullet.locked else ""),
        ("origin", _ORIGINS[BulletOrigin(origin)] if origin in set(BulletOrigin) else origin),
        ("evidence", "" if told["documents"] else told["evidence"]),
        *(("document", f"journeyman documents show {id}") for id in told["documents"][:_NAMED]),
        ("written by", told["model"]),
        ("run", told["run"]),
        ("tasks", short(", ".join(told["tasks"]))),
    )
    for name, line in _trace_lines(told):
        click.echo(click.style(f"{name:<10} ", dim=True) + short(line, 200))
    confidence = f"confidence {votes['confidence']:.2f}"
    head(
        ("votes", f"{votes['helpful']} helpful, {votes['harmful']} harmful ({confidence})"),
        ("shown", f"{counted(votes['shown'], 'time')}, cited {votes['cited']}; written {counted(votes['support'], 'time')}"),
        ("examined", _examination(told)),
        ("expires", bullet.expires_at and f"{bullet.expires_at}, unless what it is about is met again"),
        *(("changed", f"{each['at'] or ''} {each['what']}".strip()) for each in told["changes"]),
    )
    if told["state"] == "held":
        say(f"To decide: journeyman playbook approve {told['file']} {told['id']} --reason … (or reject)")


def _examination(told: dict[str, Any]) -> str:
    found = told["examined"]
    if found is None:
        return "no: while it is held it is in no candidate" if told["state"] == "held" else "not yet, or not in this store"
    which = "" if found["as_it_is"] else f"as a part of candidate {found['candidate_id']}, not of the playbook as it is now: "
    word = found["verdict"].replace("_", " ")
    without, alone = found["without_it"], ""
    if without:
        span = f"{without['low']:+.3f} to {without['high']:+.3f}"
        alone = f". Without this bullet {without['gain']:+.3f} on {counted(without['tasks'], 'request')}, {span}"
    return f"{minute(datetime.fromisoformat(found['at']))}: {which}{word}: {found['reason']}{alone}"
