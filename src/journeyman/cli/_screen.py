"""What a training run shows while it runs: a bar on a terminal, plain lines elsewhere. All of it on stderr."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from journeyman.learn.playbook import progress as words
from journeyman.playbook import Playbook
from journeyman.rollout import Attempt


class Screen:
    """Watches a run. Implements `trainer.Watcher`."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, markup=False, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeRemainingColumn(),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._total = total
        self._started = time.monotonic()
        self._attempted = 0
        self._quarter = 0
        self._task = self._bar.add_task("training", total=total, state="")

    def __enter__(self) -> "Screen":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def attempted(self, attempt: Attempt) -> None:
        self._attempted += 1
        self._bar.advance(self._task)

    def merged(self, playbook: Playbook, progress: words.Progress, tasks: int) -> None:
        state = _state(playbook, progress)
        self._bar.update(self._task, completed=tasks, state=state)
        if not self._console.is_terminal:
            left = (time.monotonic() - self._started) / max(1, self._attempted) * (self._total - tasks)
            self._console.print(f"{tasks}/{self._total} examples  {state}{f'  {left:.0f} s left' if left >= 1 else ''}")

    def evaluated(self, done: int, total: int) -> None:
        """An attempt at a held-out task is done."""
        self._bar.update(self._task, description="evaluating", total=total, completed=done, state="")
        if not self._console.is_terminal and 4 * done // total > self._quarter:
            self._quarter = 4 * done // total
            self._console.print(f"{done}/{total} attempts at held-out tasks")

    def say(self, text: str) -> None:
        self._console.print(text)


def unused(reflections: int) -> list[str]:
    """Why there is less learned than was attempted, where replies of the reflector were of no use."""
    if not reflections:
        return []
    counted = "1 reflection" if reflections == 1 else f"{reflections} reflections"
    return [f"{counted} could not be used: no reply of the reflector came, or none that could be read"]


def _state(playbook: Playbook, progress: words.Progress) -> str:
    accuracy = progress.attempts.accuracy
    right = "accuracy unknown" if accuracy is None else f"{accuracy:.0%} right so far"
    unpriced = progress.generator.unpriced or progress.reflector.unpriced
    cost = (
        f"at least ${progress.cost:.4f}"
        if unpriced and progress.cost
        else "cost unknown"
        if unpriced
        else f"${progress.cost:.4f}"
    )
    unusable = f"  {progress.unusable} unusable reflections" if progress.unusable else ""
    broken = f"  {progress.attempts.unknown} attempts broke off" if progress.attempts.unknown else ""
    return f"{right}  {len(playbook.active)} bullets  {cost}{unusable}{broken}"
