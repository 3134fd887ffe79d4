"""`journeyman traces forget`: traces of somebody or something go, and what was learned from them stands on what is left."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from journeyman.cli.console import say, short
from journeyman.cli.shared import read_store_url
from journeyman.cli.trace_filters import id_of, opened, reading
from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.format import counted
from journeyman.stores.traces.base import Pruned, Query, TraceStore

if TYPE_CHECKING:
    from journeyman.core.playbook import Bullet, Delta, Playbook
    from journeyman.optimizers.playbook.edit import Difference
    from journeyman.optimizers.playbook.evidence import EvidenceGroup

_PAGE = 500


@click.command("forget")
@click.option("--trace", "traces", multiple=True, metavar="ID", help="This one; may be given more than once.")
@click.option("--session", metavar="ID", help="Of one session.")
@click.option("--agent", metavar="NAME", help="Of one agent.")
@click.option("--customer", metavar="NAME", help="Made for this one: the user that the requests name.")
@click.option("--words", "text", metavar="TEXT", help='With all these words; "in quotes" for a phrase.')
@click.option(
    "--playbook", "playbooks", multiple=True, type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="A playbook that was learned from them; may be given more than once.  [default: those in playbooks/]",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Say what would go, and let nothing go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reading
def command(
    *, playbooks: tuple[Path, ...], dry_run: bool, yes: bool, store: str | None, quiet: bool, **wanted: Any
) -> dict[str, Any]:
    """Forget traces of somebody or something, and lower what was learned from them.

    Traces for which everything holds that is named go, with their spans and contents, with what was said of them, and with
    what tells the same calls. Bullets of playbooks then count those that are left, and are retired where fewer people are left
    behind them than a rule needs; it is in the playbook's journal. What a run attempted goes with the run: journeyman runs rm.
    What is served is not changed: of a bullet in production that has lost its support it is said.

    \b
    Examples:
      journeyman traces forget --customer ada@example.org --dry-run
      journeyman traces forget --session 7f3a --yes
      journeyman traces forget --agent desk --words '"wrong address"' --playbook playbooks/desk-oslo.json
    """
    with opened(store) as kept:
        meant = _meant(kept, wanted)
        files = _playbooks(playbooks)
        lost = _lost(kept, meant, read_store_url(store), files)
        would = kept.forget(meant, dry_run=True)
        if not dry_run and would.traces:
            if not yes:
                click.confirm(f"Forget {counted(would.traces, 'trace')} for good?", abort=True, err=True)
            # Playbooks first: what stops in between leaves no rule that stands on nothing, and is gone on with by the same
            # command.
            for file in lost.files:
                lost.lower(file)
            would = kept.forget(meant)
    if not quiet:
        say(*_lines(would, lost, dry_run=dry_run))
    return {**asdict(would), "dry_run": dry_run, **lost.json()}


# Which traces.


class _Named(NamedTuple):
    """Where a trace belongs."""

    agent: str | None
    domain: str


def _meant(store: TraceStore, wanted: Mapping[str, Any]) -> dict[str, _Named]:
    """The traces that are to go.

    Raises:
        InputError: Nothing says which, or one that is named is not there.
    """
    given = {name: value for name, value in wanted.items() if value not in (None, ())}
    if not given:
        raise InputError("say which traces: --trace, --session, --agent, --customer or --words")
    for name, value in given.items():
        if not all(each.strip() for each in ([value] if isinstance(value, str) else value)):
            raise InputError(f"--{ {'text': 'words', 'traces': 'trace'}.get(name, name) } is empty, and would mean everything")
    ids = {id_of(store, each) for each in given.pop("traces", ())}
    customer = given.pop("customer", None)
    if ids and not given and customer is None:
        lines = [line for id in sorted(ids) if (line := store.line(id))]
        return {line.id: _Named(line.agent, line.domain) for line in lines}
    found = _listed(store, Query(**given)) if customer is None else _made_for(store, customer, Query(**given))
    return {id: where for id, where in found if not ids or id in ids}


def _listed(store: TraceStore, query: Query) -> Iterator[tuple[str, _Named]]:
    after: str | None = None
    while True:
        page = store.page(query, limit=_PAGE, after=after)
        yield from ((line.id, _Named(line.agent, line.domain)) for line in page.lines)
        if (after := page.next) is None:
            return


def _made_for(store: TraceStore, customer: str, query: Query) -> Iterator[tuple[str, _Named]]:
    from journeyman.tracing.evidence import principal_named, principal_of

    wanted = principal_named(customer), True
    for trace in store.traces(query):
        if principal_of(trace) == wanted:
            yield trace.id, _Named(trace.agent, trace.domain)


# What was learned from them.


def _playbooks(named: Sequence[Path]) -> "dict[Path, Playbook]":
    """
    Raises:
        InputError: One that is named cannot be changed in place.
        PlaybookError: It holds no playbook.
    """
    from journeyman.experiments import settings
    from journeyman.optimizers.playbook import edit

    if named:
        return {path: edit.editable(path) for path in named}
    found: dict[Path, Playbook] = {}
    for path in sorted((settings.load().root / "playbooks").glob("*.json")):
        try:
            found[path] = edit.editable(path)
        except (InputError, PlaybookError) as error:
            say(f"journeyman: left as it is: {error}")
    return found


@dataclass(kw_only=True)
class _Lost:
    """What loses its support."""

    before: "list[EvidenceGroup]"
    after: "list[EvidenceGroup]"
    least: int
    files: "dict[Path, Playbook]"
    """Playbooks that stand on the traces."""
    changes: "dict[Path, Sequence[Difference]]"
    production: "list[tuple[str, str, Sequence[Bullet]]]"
    """Slot, candidate, and its bullets that lost their support."""

    def deltas(self, playbook: "Playbook") -> "list[Delta]":
        from journeyman.optimizers.playbook.decay import forgotten

        return forgotten(playbook, self.before, self.after, self.least)

    def lower(self, file: Path) -> None:
        """Write into a playbook's file, and its journal, what is left behind its bullets."""
        from journeyman.optimizers.playbook import edit

        at = datetime.now(UTC).isoformat(timespec="seconds")
        was = self.files[file]
        self.files[file] = edit.merge(file, lambda newest: edit.batch(newest, "forget", self.deltas(newest), at)).playbook
        self.changes[file] = edit.differences(was, self.files[file])

    def json(self) -> dict[str, Any]:
        return {
            "playbooks": [
                {
                    "file": str(file),
                    "changes": [{"kind": each.kind, "id": each.bullet_id, "words": each.words} for each in changes],
                }
                for file, changes in self.changes.items()
            ],
            "production": [
                {"slot": slot, "candidate": candidate, "bullets": [bullet.id for bullet in bullets]}
                for slot, candidate, bullets in self.production
            ],
        }


def _lost(store: TraceStore, meant: Mapping[str, _Named], url: str, files: "dict[Path, Playbook]") -> _Lost:
    from journeyman.core.playbook import Retire
    from journeyman.experiments import settings
    from journeyman.optimizers.playbook import edit

    least = settings.load().settings.traces.min_principals
    lost = _Lost(before=[], after=[], least=least, files={}, changes={}, production=[])
    served = [(slot, id, playbook) for slot, id, playbook in _served(url) if _is_learned(playbook)]
    learned = {file: playbook for file, playbook in files.items() if _is_learned(playbook)}
    if not meant or not (served or learned):
        # Reading all traces of an agent takes its time.
        return lost
    lost.before, lost.after = _evidence(store, meant)
    for file, playbook in learned.items():
        if deltas := lost.deltas(playbook):
            lost.files[file] = playbook
            lost.changes[file] = edit.differences(playbook, playbook.apply(edit.batch(playbook, "forget", deltas, "")))
    for slot, id, playbook in served:
        gone = {delta.bullet_id for delta in lost.deltas(playbook) if isinstance(delta, Retire)}
        if bullets := [bullet for bullet in playbook.active if bullet.id in gone]:
            lost.production.append((slot, id, bullets))
    return lost


def _is_learned(playbook: "Playbook") -> bool:
    return any(bullet.provenance.evidence and not bullet.retired for bullet in playbook.bullets)


def _evidence(store: TraceStore, meant: Mapping[str, _Named]) -> "tuple[list[EvidenceGroup], list[EvidenceGroup]]":
    """With these traces and without them, of the agents and domains that they are of."""
    from journeyman.experiments.playbook.from_traces import TrafficSlot, support_without

    slots = {TrafficSlot(*where) for where in meant.values()}
    one = next(iter(slots)) if len(slots) == 1 else None
    query = Query(agent=one.agent, domain=one.domain) if one else Query()
    return support_without(store.traces(query), meant, slots)


def _served(url: str) -> "Iterator[tuple[str, str, Playbook]]":
    """Every playbook in production: its slot, its id, and it."""
    from journeyman.core.rollout import SlotKind
    from journeyman.optimizers.playbook import files
    from journeyman.stores import open_store
    from journeyman.stores.rollouts import open_rollouts

    with open_rollouts(url, make=False) as rollouts:
        moves = [move for slot, move in rollouts.live().production.items() if slot.kind is SlotKind.CONTEXT and move.serves]
    with open_store(url, make=False) as store:
        for move in moves:
            if (candidate := store.candidate(move.candidate_id)) is not None:
                playbook = files.loads(candidate.body, f"the playbook in production of {move.slot}")
                yield str(move.slot), candidate.id, playbook


# In words.


def _lines(gone: Pruned, lost: _Lost, *, dry_run: bool) -> Iterator[str]:
    spans = f", {counted(gone.spans, 'span')}" if gone.spans else ""
    bytes_ = f" and {gone.bytes / 1e6:.1f} MB of contents" if gone.bytes else ""
    verb = "would go" if dry_run else ("is forgotten" if gone.traces == 1 else "are forgotten")
    yield f"{counted(gone.traces, 'trace')}{spans}{bytes_} {verb}"
    if gone.kept:
        stay = "stays: a run attempted it, and it goes" if gone.kept == 1 else "stay: runs attempted them, and they go"
        yield f"{gone.kept} {stay} with it, by journeyman runs rm"
    for file, changes in lost.changes.items():
        yield f"{file}{' would change' if dry_run else ''}:"
        yield from (f"  {each.bullet_id} {each.words}" for each in changes)
    for slot, candidate, bullets in lost.production:
        told = ", ".join(f"{bullet.id} ({short(bullet.content)})" for bullet in bullets)
        yield f"{slot} still shows what has lost its support, in {candidate[:12]}: {told}"
        yield _mend(slot, lost.files)


def _mend(slot: str, files: Collection[Path]) -> str:
    agent, _, domain = slot.partition(":")[2].partition("/")
    named = "".join(f" --{name} {value}" for name, value in (("agent", agent), ("domain", domain)) if value != "*")
    file = next(iter(files), None)
    if file is None:
        return f'Nothing that is served was changed: journeyman releases undo {slot} --reason "traces were forgotten"'
    return f"Nothing that is served was changed: journeyman releases start {file}{named} brings what is left there"
