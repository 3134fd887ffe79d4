"""How far it has come: a bar on a terminal, a few lines elsewhere, on stderr."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

_TIMES = 10
"""How often it is said where there is no terminal."""


@contextmanager
def bar(what: str, total: int, *, quiet: bool = False, pause: float = 0) -> Iterator[Callable[[int], None]]:
    """Something to call with how many more are done.

    `pause` is the seconds that pass at least before a line and between two, where there is no terminal.
    """
    screen = Console(stderr=True, highlight=False, quiet=quiet)
    shown = Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        disable=quiet or not screen.is_terminal,
    )
    row = shown.add_task(what, total=total)
    count, said = 0, time.monotonic()

    def done(more: int) -> None:
        nonlocal count, said
        before, count = count, count + more
        shown.advance(row, more)
        if screen.is_terminal or time.monotonic() < said + pause:
            return
        if count * _TIMES // total > before * _TIMES // total:
            said = time.monotonic()
            screen.print(f"{count}/{total} {what}")

    with shown:
        yield done


# A table that stays readable on a narrow terminal: it leaves columns out rather than cutting all of them to dots.

_PIPED = 200
"""Characters a line may have where it goes to a file or another program, which no terminal narrows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column, with what is to become of it where there is no room for all."""

    name: str
    spare: int = 0
    """Left out where there is no room: those with the highest number first, those with 0 never. What is empty in every
    row is left out before them, if it may be."""
    words: bool = False
    """Text that is cut where it must be, left aligned; else it is a number, whole and right aligned."""
    least: int = 20
    """Characters that words keep. What room is left then goes to the last columns first."""
    cells: list[Text] = field(default_factory=list)

    @property
    def width(self) -> int:
        return max(map(cell_len, (self.name, *(cell.plain for cell in self.cells))))

    @property
    def needs(self) -> int:
        return min(self.width, self.least) if self.words else self.width

    @property
    def empty(self) -> bool:
        return not any(cell.plain for cell in self.cells)


def console() -> Console:
    """Stdout, for data. Nothing in a text is taken for markup."""
    wide = None if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED
    return Console(highlight=False, markup=False, emoji=False, width=wide)


def fitted(columns: Sequence[Column], width: int, styles: Sequence[str | None] = ()) -> Table:
    """The table in at most `width` characters, as far as leaving columns out can make it so."""
    kept = [column for column in columns if not (column.spare and column.empty)]

    def left(gap: int) -> int:
        return width - sum(column.needs + gap for column in kept) + gap

    for column in sorted(columns, key=lambda column: -column.spare):
        if column in kept and column.spare and left(1) < 0:
            kept.remove(column)
    gap = 2 if left(2) >= 0 else 1
    shown, room = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0)), left(gap)
    widths = {}
    for column in reversed(kept):
        widths[column.name] = min(column.width, column.needs + max(0, room))
        room -= widths[column.name] - column.needs
    for column in kept:
        shown.add_column(
            column.name,
            justify="left" if column.words else "right",
            no_wrap=True,
            overflow="ellipsis",
            width=widths[column.name],
        )
    for number in range(len(columns[0].cells)):
        style = styles[number] if styles else None
        shown.add_row(*(column.cells[number] for column in kept), style=style)
    return shown
