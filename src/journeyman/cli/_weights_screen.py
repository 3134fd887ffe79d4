"""What a training of weights shows while it runs: a bar on a terminal, a few lines elsewhere. All of it on stderr."""

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from journeyman.learn.weights.job import TrainingReport as Report

_TIMES = 10
"""How often it is told where there is no terminal, beside each look at the validation tasks."""
_QUARTERS = 4


class Screen:
    """Watches a run. Its methods are those of a `weights.training.Watcher`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._console = Console(stderr=True, quiet=quiet, markup=False, highlight=False, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
        )
        self._task = self._bar.add_task("loading the model", total=None, state="")
        self._first: tuple[int, float] | None = None
        """The first update that was seen, and when: time left is told from what happens here."""
        self._validation: float | None = None
        self._told = -1
        self._quarter = 0

    def __enter__(self) -> "Screen":
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def metrics(self, update: Mapping[str, Any]) -> None:
        """After each update: a line of metrics.jsonl."""
        step, of = int(update["step"]), int(update["of"])
        looked = update.get("validation") is not None
        if looked:
            self._validation = float(update["validation"])
        first, since = self._first = self._first or (step, time.monotonic())
        left = (time.monotonic() - since) / (step - first) * (of - step) if step > first else None
        state = _state(update, self._validation, left)
        self._bar.update(self._task, description="training", total=of, completed=step, state=state)
        if not self._console.is_terminal and (looked or step * _TIMES // max(1, of) > self._told):
            self._told = step * _TIMES // max(1, of)
            self._console.print(f"{step}/{of} updates  {state}".rstrip())

    def trained(self, report: Report) -> None:
        self._bar.update(self._task, description="trained", total=report.steps or 1, completed=report.steps or 1, state="")
        self._console.print(f"training {_ENDED[report.ended.value]}: {report.reason}")

    def examined(self, done: int, total: int) -> None:
        """An attempt at a held-out task is done."""
        self._bar.update(self._task, description="evaluating", total=total, completed=done, state="")
        if not self._console.is_terminal and _QUARTERS * done // total > self._quarter:
            self._quarter = _QUARTERS * done // total
            self._console.print(f"{done}/{total} attempts at held-out tasks")

    def say(self, text: str) -> None:
        self._console.print(text)


_ENDED = {"finished": "finished", "early": "stopped early", "guarded": "was stopped by a guard"}


def _state(update: Mapping[str, Any], validation: float | None, left: float | None) -> str:
    shown = {
        "loss": update.get("loss"),
        "reward": update.get("reward"),
        "validation": validation,
        "entropy": update.get("entropy"),
    }
    if shown["reward"] is not None:
        # GRPO's loss is near 0 by construction and says nothing.
        shown.pop("loss")
    parts = [f"{name} {value:.3f}" for name, value in shown.items() if value is not None]
    if update.get("broken"):
        parts.append(f"no number: {', '.join(update['broken'])}")
    if left is not None and left >= 1:
        parts.append(_time(left))
    return "  ".join(parts)


def _time(seconds: float) -> str:
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s left"
    return f"{whole // 60} min left" if whole < 6000 else f"{whole / 3600:.1f} h left"
