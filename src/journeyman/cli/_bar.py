"""How far it has come: a bar on a terminal, a few lines elsewhere, on stderr."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_TIMES = 10
"""How often it is said where there is no terminal."""


@contextmanager
def bar(what: str, total: int, *, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Something to call with how many more are done."""
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
    count = 0

    def done(more: int) -> None:
        nonlocal count
        before, count = count, count + more
        shown.advance(row, more)
        if not screen.is_terminal and count * _TIMES // total > before * _TIMES // total:
            screen.print(f"{count}/{total} {what}")

    with shown:
        yield done
