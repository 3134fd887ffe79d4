"""What the playbook commands show to people."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from journeyman.core.playbook import Batch, Bullet, Merge, Playbook, Retire
from journeyman.optimizers.playbook.edit import Duplicates
from journeyman.optimizers.playbook.journal import Entry, Restore


def table(bullets: Sequence[Bullet], rivals: Mapping[str, Sequence[str]], title: str) -> None:
    """One row a bullet. A bullet that contradicts another names it; a retired one says why."""
    shown = Table(title=title, title_justify="left")
    shown.add_column("id", no_wrap=True)
    shown.add_column("section", max_width=18)
    shown.add_column("strategy", ratio=1)
    shown.add_column("votes", no_wrap=True)
    shown.add_column("shown", justify="right")
    domains = {bullet.domain for bullet in bullets}
    stages = {bullet.stage for bullet in bullets}
    for bullet in bullets:
        marks = [f"retired: {bullet.retired}"] * bool(bullet.retired) + ["locked"] * bullet.locked
        marks += [f"contradicts {other}" for other in rivals.get(bullet.id, ())]
        text = Text(bullet.content)
        for mark in marks:
            text.append(f"\n({mark})", style="bold")
        # What is the same for all is said once, below the table.
        where = [bullet.domain] * (len(domains) > 1) + [bullet.section] + [bullet.stage.value] * (len(stages) > 1)
        votes = f"+{bullet.helpful} -{bullet.harmful}\n{bullet.confidence:.2f}"
        style = "dim" if bullet.retired else "yellow" if rivals.get(bullet.id) else None
        shown.add_row(bullet.id, "\n".join(where), text, votes, str(bullet.shown), style=style)
    same = [next(iter(values)) for values in (domains, stages) if len(values) == 1]
    shown.caption = ", ".join(["votes: helpful, harmful and confidence", *same])
    _print(shown)


def log(entries: Iterable[Entry]) -> None:
    shown = Table("revision", "when", "what")
    for entry in entries:
        shown.add_row(str(entry.revision), when(entry) or "", what(entry))
    _print(shown)


def _print(shown: Table) -> None:
    # What stands in brackets is data, and no markup.
    Console(highlight=False, markup=False, emoji=False).print(shown)


def when(entry: Entry) -> str | None:
    return None if isinstance(entry.change, Playbook) else entry.change.at or None


def what(entry: Entry) -> str:
    """An entry of a journal in a few words."""
    match entry.change:
        case Playbook():
            return f"begun with {len(entry.change.bullets)} bullets"
        case Restore():
            return f"revision {entry.change.revision} brought back"
        case Batch():
            kinds = Counter(type(delta).__name__.casefold() for delta in entry.change.deltas)
            return f"{entry.change.id}: " + (", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "nothing")


def merges(found: Duplicates, playbook: Playbook) -> list[str]:
    texts = {bullet.id: bullet.content for bullet in playbook.bullets}
    lines = []
    for merge in found.merges:
        lines.append(f"{merge.kept} stays: {_short(texts[merge.kept])}")
        lines += [f"  {id} goes: {_short(texts[id])}" for id in merge.gone]
    return lines


def retirements(retires: Iterable[Retire], playbook: Playbook) -> list[str]:
    texts = {bullet.id: bullet.content for bullet in playbook.bullets}
    return [f"{one.bullet_id} goes: {_short(texts[one.bullet_id])}\n  {one.reason}" for one in retires]


def merge_json(merge: Merge) -> dict[str, object]:
    return {"kept": merge.kept, "gone": list(merge.gone)}


def _short(text: str, length: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1] + "…"
