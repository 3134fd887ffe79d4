"""What commands print: data on stdout as tables, words and progress for people on stderr. It loads rich when it draws a bar.

A table stays readable on a narrow terminal: it leaves columns out rather than cutting all of them to dots.
"""

import codecs
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from io import TextIOWrapper
from itertools import zip_longest
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from journeyman.core import format
from journeyman.core.installation import advised

if TYPE_CHECKING:
    from journeyman.agents.attempt import Attempt
    from journeyman.core.playbook import Playbook
    from journeyman.experiments.weights.pipeline import PipelineResult
    from journeyman.experiments.weights.training import WeightsResult, WeightsWatcher
    from journeyman.optimizers.playbook.run import Progress
    from journeyman.optimizers.weights.job import TrainingReport

_TIMES = 10
"""How often progress is told where there is no terminal."""
_QUARTERS = 4
"""The same of an evaluation."""
_PIPED = 200
"""Characters a line may have where it goes to a file or another program, which no terminal narrows."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Without tab and line feed. With what turns the direction of writing, which can make a line read as another."""


_SIGNS = {"→": "->", "…": "...", "✗": "x", "✓": "v", "·": "-", "−": "-", "–": "-", "×": "x", "≤": "<=", "≥": ">=", "█": "#"}
"""What is written for signs of ours where a terminal has none of them."""


def speak_plainly() -> None:
    """Where standard output cannot hold every character (LANG=C, a console of Windows), it holds the others, and signs for
    those: no command ends in the middle for a letter of a trace."""
    codecs.register_error("plainly", _plainly)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.casefold().replace("-", "") != "utf8":
            stream.reconfigure(errors="plainly")


def _plainly(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_SIGNS.get(each) or ascii(each)[1:-1] for each in missing), error.end


def say(*lines: str, colour: str | None = None) -> None:
    """Words for people, on stderr: a line each, in a colour where there is a terminal. None is taken for markup."""
    for line in lines:
        click.secho(plain(advised(line)), err=True, fg=colour)


def say_some(lines: Sequence[str], most: int, what: str, *, colour: str | None = None) -> None:
    """The first `most` of them, and how many more `what` there are; `--json` has all."""
    say(*lines[:most], colour=colour)
    if len(lines) > most:
        say(f"and {len(lines) - most} more {what}; --json names all", colour=colour)


def write(*lines: str) -> None:
    """What a command was asked for, on stdout: a line each."""
    for line in lines:
        click.echo(plain(line))


def pour(text: str) -> None:
    """A whole file on stdout: as it is for another program or a file, and on a terminal without what that would obey."""
    click.echo(plain(text) if sys.stdout.isatty() else text, nl=False)


class Screen:
    """How far something is, on stderr: a bar on a terminal, a few lines elsewhere."""

    def __init__(self, what: str, total: int | None = None, *, quiet: bool = False, pause: float = 0) -> None:
        """
        Args:
            what: Is counted, up to `total`.
            pause: Seconds that pass at least before a line and between two, where there is no terminal.
        """
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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
        self._task = self._bar.add_task(what, total=total, state="")
        self._pause = pause
        self.begin(what, total)

    def begin(self, what: str, total: int | None, *, done: int = 0, times: int = _TIMES) -> None:
        """Count something else from now on.

        Args:
            done: Of it before; the time that is left follows from what is done here.
            times: How often it is told where there is no terminal.
        """
        self.what, self._total, self._times = what, total, times
        self.done = self.before = done
        self._since = self._told = time.monotonic()
        self._bar.reset(self._task, total=total, completed=done, description=what, state="")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def advance(self, more: int = 1) -> None:
        self.show(self.done + more)

    def show(self, done: int, *, state: str = "", line: bool | None = None) -> None:
        """So many are done. Where there is no terminal, `line` says whether that is told; else it is as often as was said."""
        last, self.done, total = self.done, done, self._total or 1
        self._bar.update(self._task, completed=done, state=state)
        if line is None:
            line = done * self._times // total > last * self._times // total and time.monotonic() >= self._told + self._pause
        if line and not self._console.is_terminal:
            self._told = time.monotonic()
            self.say("  ".join(part for part in (f"{done}/{total} {self.what}", state, self._left() if state else "") if part))

    def evaluated(self, done: int, total: int, what: str = "attempts at held-out tasks") -> None:
        """An attempt at a held-out task is done."""
        if self.what != what:
            self.begin(what, total, times=_QUARTERS)
        self.show(done)

    def say(self, text: str) -> None:
        self._console.print(plain(text))

    def _left(self) -> str:
        here, rest = self.done - self.before, (self._total or 0) - self.done
        left = (time.monotonic() - self._since) / here * rest if here > 0 else 0
        return f"{format.seconds(left)} left" if left >= 1 else ""


class PlaybookScreen(Screen):
    """Shows a training of a playbook. Implements `trainer.Watcher`."""

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        super().__init__("examples", total, quiet=quiet)
        self._attempted = set[str]()
        """Tasks of the first batch."""
        self._batches = 0

    def attempted(self, attempt: "Attempt") -> None:
        if not self._batches:
            self._attempted.add(attempt.task.id)
        self.show(self.done + 1, line=False)

    def merged(self, playbook: "Playbook", progress: "Progress", tasks: int) -> None:
        if not self._batches:
            # What an interrupted run had done before says nothing of how long the rest takes.
            self.before = max(0, tasks - len(self._attempted))
        self._batches += 1
        self.show(tasks, state=_learning_state(playbook, progress), line=True)


def _learning_state(playbook: "Playbook", progress: "Progress") -> str:
    accuracy = progress.attempts.accuracy
    right = "accuracy unknown" if accuracy is None else f"{accuracy:.0%} right so far"
    unpriced = progress.generator.unpriced or progress.reflector.unpriced
    cost = f"${progress.cost:.4f}"
    if unpriced:
        cost = f"at least {cost}" if progress.cost else "cost unknown"
    unusable = f"  {progress.unusable} unusable reflections" if progress.unusable else ""
    broken = f"  {progress.attempts.unknown} attempts broke off" if progress.attempts.unknown else ""
    return f"{right}  {format.counted(len(playbook.active), 'bullet')}  {cost}{unusable}{broken}"


class WeightsScreen(Screen):
    """Shows a training of weights: each look at the validation tasks, beside how far it is."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("loading the model", quiet=quiet)
        self._validation: float | None = None

    def watcher(self) -> "WeightsWatcher":
        from journeyman.experiments.weights.training import WeightsWatcher

        return WeightsWatcher(metrics=self.metrics, trained=self.trained, examined=self.evaluated, said=self.say)

    def metrics(self, update: Mapping[str, Any]) -> None:
        """After each update: a line of metrics.jsonl."""
        step, total, line = int(update["step"]), int(update["of"]), None
        if update.get("validation") is not None:
            self._validation, line = float(update["validation"]), True
        if self.what != "updates":
            # Time left is told from what happens here.
            self.begin("updates", total, done=step)
            line = True
        self.show(step, state=_update_state(update, self._validation), line=line)

    def trained(self, report: "TrainingReport") -> None:
        self.say(f"training {_ENDED[report.ended.value]}: {report.reason}")


_ENDED = {"finished": "finished", "early": "stopped early", "guarded": "was stopped by a guard"}


def _update_state(update: Mapping[str, Any], validation: float | None) -> str:
    # GRPO's loss is near 0 by construction and says nothing.
    measure = "loss" if update.get("reward") is None else "reward"
    values = {measure: update.get(measure), "validation": validation, "entropy": update.get("entropy")}
    parts = [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
    if update.get("broken"):
        parts.append(f"no number: {', '.join(update['broken'])}")
    return "  ".join(parts)


def weights_lines(result: "WeightsResult") -> Iterator[str]:
    """What was trained, and what the gate says."""
    trained = result.trained
    yield f"{trained.steps} updates in {trained.seconds:.0f} s ({trained.cpu_seconds:.0f} s CPU): {trained.reason}"
    if trained.ended.value == "guarded":
        yield "A guard stopped it: try a lower --learning-rate, or a higher --beta."
    if result.adapter is None:
        yield f"{result.reason[:1].upper()}{result.reason[1:]}."
        return
    yield f"adapter: {result.adapter} ({result.stage.value}), {trained.trained:,} beside {trained.parameters:,} parameters"
    report = result.evaluation
    if report is None or report.baseline is None or report.candidate is None:
        yield result.reason
    else:
        yield f"held-out tasks: {report.baseline:.1%} before, {report.candidate:.1%} with the adapter"
        yield f"{'passed' if report.passed else 'not passed'}: {report.reason}"
    for domain, earlier in result.earlier.items():
        if earlier.gain is not None and earlier.low is not None:
            yield f"learned before, {domain}: {earlier.gain:+.1%} ({earlier.low:+.1%} to {earlier.high:+.1%})"


def pipeline_lines(result: "PipelineResult") -> Iterator[str]:
    """What was made, in words."""
    if result.trained is not None:
        yield from weights_lines(result.trained)
    else:
        yield f"{result['run_id']} was trained before: {result['reason']}"
    yield from result.notes
    if result.exported is not None:
        file = result.exported
        cost = f", {file.cost.divergence:.4f} nats from the original" if file.cost else ""
        yield f"GGUF: {file.path} ({file.path.stat().st_size / 1e6:.1f} MB{cost})"
    if result.answered is not None:
        yield f"served by llama.cpp, asked over OpenAI's API: {result.answered.question}"
        yield f"answered: {result.answered.reply}"
    if result.ollama_model:
        yield f"in Ollama: ollama run {result.ollama_model}"


@contextmanager
def bar(what: str, total: int, *, quiet: bool = False, pause: float = 0) -> Iterator[Callable[[int], None]]:
    """Something to call with how many more are done, as `Screen` shows it."""
    with Screen(what, total, quiet=quiet, pause=pause) as screen:
        yield screen.advance


# Tables, on stdout.


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column, with what is to become of it where there is no room for all."""

    name: str
    spare: int = 0
    """Left out where there is no room: those with the highest number first, those with 0 never. What is empty in every
    row is left out before them, if it may be."""
    words: bool = False
    """Text that is cut where it must be, left aligned; else it is a number, whole and right aligned."""
    wraps: bool = False
    """Words that go on in the next line instead of being cut."""
    least: int = 20
    """Characters that words keep. What room is left then goes to the last columns first."""
    cells: Sequence[str] = ()

    @cached_property
    def width(self) -> int:
        return max(_wide(line) for cell in (self.name, *self.cells) for line in cell.split("\n"))

    @property
    def needs(self) -> int:
        return min(self.width, self.least) if self.words else self.width

    @property
    def empty(self) -> bool:
        return not any(self.cells)

    def lines(self, cell: str, width: int) -> list[str]:
        """A cell in lines of exactly so many characters of a terminal."""
        lines = cell.split("\n")
        if self.wraps:
            lines = [part for line in lines for part in _wrapped(line, width)]
        return [_padded(line, width, right=not self.words) for line in lines]


_WHOLE, _LONGEST, _SHORTEST = 1000, 40, 20
"""Characters that the first column of a table keeps, as people copy it; the others, where they have as many; the last."""
_NARROWEST = 12
"""And that any other keeps."""


def named_columns(first: str, *others: str) -> list[Column]:
    """Columns of which the first holds words, and the others numbers."""
    return [Column(name=first, words=True), *(Column(name=name) for name in others)]


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    title: str = "",
    header: bool = True,
    styles: Sequence[str | None] = (),
) -> None:
    """Print rows on stdout, below the names of their columns, as wide as the terminal at most.

    Args:
        styles: One for each row: a colour, "bold" or "dim"; `None` for none.
    """
    shown = [[plain(cell).expandtabs() for cell in row] for row in rows]
    cells = list(zip(*shown, strict=True)) or [()] * len(columns)
    filled = [replace(column, cells=each) for column, each in zip(columns, cells, strict=True)]
    wide = shutil.get_terminal_size().columns if sys.stdout.isatty() or "COLUMNS" in os.environ else _PIPED
    head, *body = fitted(filled, wide)
    drawn = [*([([title], "bold")] if title else ()), *([(head, "bold")] if header else ())]
    for lines, style in (*drawn, *zip_longest(body, styles)):
        click.echo("\n".join(_styled(line, style) for line in lines))


def _styled(text: str, style: str | None) -> str:
    return click.style(text, **{style: True} if style in ("bold", "dim") else {"fg": style}) if style else text


def rows_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose first column is never cut; of the others the last gives way first."""
    last = len(names) - 1
    least = [_WHOLE, *[_LONGEST] * (last - 1), _SHORTEST]
    columns = [
        Column(name=name, words=True, spare=place and last + 1 - place, least=least[place]) for place, name in enumerate(names)
    ]
    if rows:
        table(columns, [[short(cell, 300) for cell in row] for row in rows])


def fitted(columns: Sequence[Column], width: int) -> list[list[str]]:
    """The lines of the columns' names, and of each row, in at most `width` characters as far as leaving columns out can make
    it so."""
    shown = [column for column in columns if not (column.spare and column.empty)]

    def left(gap: int) -> int:
        return width - sum(column.needs + gap for column in shown) + gap

    for column in sorted(columns, key=lambda column: -column.spare):
        if column in shown and column.spare and left(1) < 0:
            shown.remove(column)
    gap = 2 if left(2) >= 0 else 1
    widths, room = [column.needs for column in shown], left(gap)
    for place in reversed(range(len(shown))):
        more = min(shown[place].width - widths[place], max(0, room))
        widths[place] += more
        room -= more
    yielding = [place for place, column in enumerate(shown) if column.words and column.least < _WHOLE]
    for _ in range(-room):
        # More than they were to keep: a line that the terminal breaks is worse.
        place = max(yielding, key=widths.__getitem__, default=-1)
        if place < 0 or widths[place] <= _NARROWEST:
            break
        widths[place] -= 1

    def row(cells: Iterable[str]) -> list[str]:
        lines = [column.lines(cell, wide) for column, cell, wide in zip(shown, cells, widths, strict=True)]
        high = max(map(len, lines), default=0)
        full = [[*each, *[" " * wide] * (high - len(each))] for each, wide in zip(lines, widths, strict=True)]
        return [(" " * gap).join(parts).rstrip() for parts in zip(*full, strict=True)]

    return [row(column.name for column in shown), *map(row, zip(*(column.cells for column in shown), strict=True))]


_WORD = re.compile(r"\s*\S+\s*")


def _wide(line: str) -> int:
    """Characters of a terminal that a line takes."""
    if line.isascii():
        return len(line)
    # Which characters are wide is a table that takes its time to load.
    from rich.cells import cell_len

    return cell_len(line)


def _begin(line: str, width: int) -> str:
    """What of a line has room in so many characters of a terminal; one character in any case."""
    if line.isascii():
        return line[:width]
    from rich.cells import chop_cells

    return next(iter(chop_cells(line, width)), "") or line[:1]


def _padded(line: str, width: int, *, right: bool) -> str:
    """A line in exactly so many characters, cut where it is longer."""
    room, end = width - _wide(line), ""
    if room < 0:
        line, end = _begin(line, width - 1), "…"
        room = width - 1 - _wide(line)
    return f"{' ' * room}{line}{end}" if right else f"{line}{end}{' ' * room}"


def _wrapped(line: str, width: int) -> Iterator[str]:
    """A line in several that are not wider, broken between words, and within a word that is."""
    row = ""
    for word in _WORD.findall(line):
        if row and _wide(row) + _wide(word.rstrip()) > width:
            yield row.rstrip()
            row = ""
        while _wide(word.rstrip()) > width:
            first = _begin(word, width)
            yield first
            word = word[len(first) :]
        row += word
    yield row.rstrip()


# What stands in a cell or a line. Anybody may have written it: nothing in it is a command to the terminal.


def plain(text: str) -> str:
    """The text with what a terminal would obey made visible."""
    return _CONTROL.sub(lambda found: "" if found[0] == "\r" else f"\\x{ord(found[0]):02x}", text)


def short(text: str, length: int = 100) -> str:
    """The text in one line, cut where it is longer."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def number(value: float | None, form: str = ".3f", unknown: str = "unknown") -> str:
    return unknown if value is None else f"{value:{form}}"


def local(at: datetime, form: str) -> str:
    """On this machine's clock, with how far that is from UTC where it is: pages say UTC, and both must be one moment."""
    here = at.astimezone()
    zone = f"{here:%z}"
    return f"{here:{form}}" + (f"{zone[:3]}:{zone[3:5]}" if here.utcoffset() else "")


def minute(at: datetime) -> str:
    return local(at, "%Y-%m-%d %H:%M")


def duration(seconds: float | None) -> str:
    """As `core.format.seconds`; nothing where it is not known."""
    return "" if seconds is None else format.seconds(seconds)


def head(*rows: tuple[str, str]) -> None:
    """Names and values below each other, those without a value left out."""
    wide = max([10, *(len(name) for name, value in rows if value)])
    for name, value in rows:
        if value:
            click.echo(click.style(f"{name:<{wide}} ", dim=True) + plain(value))
