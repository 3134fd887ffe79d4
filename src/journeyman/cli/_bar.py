"""How far it has come: a bar on a terminal, a few lines elsewhere, on stderr."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
