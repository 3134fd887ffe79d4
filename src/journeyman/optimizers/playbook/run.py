"""A training run on the disk, so that it can be killed at any moment and go on.

runs/<id>/
    config.json         the settings as resolved, and a digest of the tasks
    journal.jsonl       every merged batch; its line is the commit. At the end what the gate decided
    batches/00012.json  what the batch added to the metrics, written just before its line in the journal
    checkpoints/        the whole playbook, every so many examples, for people and for older tools
    result.json         when it is over
"""

import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from journeyman.core.errors import InputError, JourneymanError, PlaybookError, boundary
from journeyman.core.playbook import Batch, MoveTo, Playbook
from journeyman.core.release import Stage
from journeyman.core.trace import ModelCall
from journeyman.io.atomic import write_json
from journeyman.io.files import check_writable, locked
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.journal import Entry, Journal, read, replay

# How far a training run is, and what it has cost: sums over merged batches.


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What the calls of one role took."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    uncounted: int = 0
    """Calls whose tokens the provider did not count; they are not in the sums."""
    cost: float = 0.0
    """US dollars of the calls with a known price."""
    unpriced: int = 0
    """Calls without a known price: with any, `cost` is a lower bound."""

    @classmethod
    def of(cls, calls: Iterable[ModelCall]) -> "Spent":
        found = list(calls)
        return cls(
            calls=len(found),
            input_tokens=sum(call.input_tokens or 0 for call in found),
            output_tokens=sum(call.output_tokens or 0 for call in found),
            uncounted=sum(call.input_tokens is None or call.output_tokens is None for call in found),
            cost=sum(call.cost or 0.0 for call in found),
            unpriced=sum(call.cost is None for call in found),
        )

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def unknown(self) -> int:
        """Calls of which it is not known what they cost."""
        return max(self.uncounted, self.unpriced)

    def json(self) -> dict[str, Any]:
        """The cost is unknown, and said to be, when a call had no price."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | ({"cost": None} if self.unpriced else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Attempts and how they went."""

    attempts: int = 0
    correct: int = 0
    wrong: int = 0
    unknown: int = 0
    """Attempts that broke off or could not be verified: neither right nor wrong."""

    @classmethod
    def of(cls, scores: Iterable[float | None]) -> "Tally":
        """Of attempts with these scores; `None` where one could not be judged."""
        totals = list(scores)
        return cls(
            attempts=len(totals),
            correct=sum(total is not None and total >= 1 for total in totals),
            wrong=sum(total is not None and total < 1 for total in totals),
            unknown=totals.count(None),
        )

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)})

    @property
    def accuracy(self) -> float | None:
        """Of the attempts that could be verified; `None` when there were none."""
        known = self.correct + self.wrong
        return self.correct / known if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Everything that adds up. A run's is the sum of its batches'."""

    attempts: Tally = Tally()
    by_epoch: Mapping[str, Tally] = field(default_factory=dict)
    by_domain: Mapping[str, Tally] = field(default_factory=dict)
    helpful: int = 0
    harmful: int = 0
    neutral: int = 0
    unusable: int = 0
    """Reflections whose text could not be used."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Insights that were not taken, by reason."""
    added: int = 0
    incremented: int = 0
    retired: int = 0
    generator: Spent = Spent()
    reflector: Spent = Spent()
    seconds: float = 0.0

    def __add__(self, other: "Progress") -> "Progress":
        return Progress(**{f.name: _add(getattr(self, f.name), getattr(other, f.name)) for f in fields(self)})

    @property
    def extracted(self) -> int:
        return self.helpful + self.harmful + self.neutral

    @property
    def cost(self) -> float:
        """US dollars, at least."""
        return self.generator.cost + self.reflector.cost

    @property
    def unknown_costs(self) -> int:
        """Calls of which it is not known what they cost: with any, `cost` is a lower bound and no limit can be kept."""
        return self.generator.unknown + self.reflector.unknown


def _add(one: Any, other: Any) -> Any:
    if isinstance(one, Mapping):
        return {
            key: _add(one[key], other[key]) if key in one and key in other else one.get(key, other.get(key))
            for key in {**one, **other}
        }
    return one + other


log = logging.getLogger(__name__)
_PROGRESS = TypeAdapter(Progress)


class PlaybookRun:
    """One run, open for going on. `Run.begin` makes one."""

    def __init__(self, folder: Path, *, checkpoint_interval: int = 0, checkpoints: Path | None = None) -> None:
        """Read what is there. `checkpoint_interval` is in examples; 0 writes none. `checkpoints` is where they go."""
        self.folder = folder
        self.config: Mapping[str, Any] = _read(folder / "config.json")
        self._interval = checkpoint_interval
        self._checkpoints = checkpoints or folder / "checkpoints"
        self._journal = Journal(self.journal)
        decided = sum(map(_decided, read(self.journal)))
        self.batches = self._journal.revision - decided
        """How many are merged. What the gate decided is in the journal too, behind them, and is none."""
        self.playbook = replay(self.journal, self.batches) if decided else self._journal.playbook
        """What was learned, before the gate."""
        self.progress = Progress()
        self.refused: frozenset[str] = frozenset()
        """Ids of what was refused, so that it is not considered again."""
        self.tasks = 0
        """Behind the run."""
        for number in range(1, self.batches + 1):
            record = _read(self._record(number))
            with boundary(PlaybookError, f"{self._record(number)} is not what was written"):
                self._add(record)

    @classmethod
    def begin(cls, folder: Path, config: Mapping[str, Any], initial: Playbook, **options: Any) -> "PlaybookRun":
        """Make the folder of a new run.

        Raises:
            PlaybookError: There is a run in it already.
            InputError: The folder cannot be made.
        """
        if (folder / "config.json").exists():
            raise PlaybookError(f"{folder} holds a run already; resume it, or give the new one another name")
        check_writable(folder / "config.json")
        (folder / "batches").mkdir(parents=True, exist_ok=True)
        if (folder / "journal.jsonl").exists():
            # A run that was killed before it had its config never began.
            (folder / "journal.jsonl").unlink()
        Journal.create(folder / "journal.jsonl", initial)
        write_json(folder / "config.json", config)
        return cls(folder, **options)

    @property
    def journal(self) -> Path:
        """Every revision of its playbook; the last one of a run that is over is what it put out."""
        return self.folder / "journal.jsonl"

    @property
    def initial(self) -> Playbook:
        """What it started from."""
        return replay(self.journal, 0)

    @property
    def finished(self) -> bool:
        return (self.folder / "result.json").exists()

    @property
    def result(self) -> Mapping[str, Any]:
        """How it ended, once it is finished."""
        found: Mapping[str, Any] = _read(self.folder / "result.json")
        return found

    def commit(self, batch: Batch, progress: Progress, refused: frozenset[str], *, tasks: int) -> None:
        """Merge a batch for good. `tasks` is how many are behind the run with it."""
        record = {"tasks": tasks, "refused": sorted(refused), "progress": _PROGRESS.dump_python(progress, mode="json")}
        write_json(self._record(self.batches + 1), record)
        self.playbook = self._journal.append(batch)
        self.batches += 1
        before = self.tasks
        self._add(record)
        if self._interval and tasks // self._interval > before // self._interval:
            self._checkpoint(tasks)

    def settle(self, stage: Stage, examined: Collection[str] | None = None, *, name: str, at: str) -> Playbook:
        """Write what the gate decided of what was learned, and give the playbook with it. Once more changes nothing.

        Args:
            examined: Ids of the bullets that it decided on, all when they are not named; the others stay where they were.
            name: Of the run, as in the ids of its batches.
        """
        batch = staged(self._journal.playbook, stage, examined, id=f"{name}/gate.{self._journal.revision + 1}", at=at)
        return self._journal.append(batch) if batch.deltas else self._journal.playbook

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the one process that goes on with this run.

        Raises:
            PlaybookError: Another one does, or did since this one read what is there.
        """
        name = self.folder.name
        with locked(self.journal, patience=0, busy=f"the run {name} is under way in another process; wait for it or stop it"):
            if self.finished or not self._journal.newest:
                raise PlaybookError(f"the run {name} was gone on with by another process; look at it, then resume it")
            yield

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write that the run is over, and how it ended."""
        write_json(self.folder / "result.json", result)

    def _checkpoint(self, tasks: int) -> None:
        checkpoint = {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "config": self.config,
            "metrics": {
                "total_examples": tasks,
                "correct_answers": self.progress.attempts.correct,
                "playbook_size": len(self.playbook.active),
            },
            "playbook": files.bullets_json(self.playbook),
        }
        write_json(self._checkpoints / f"{self.folder.name}-{tasks:06d}.json", checkpoint)

    def _add(self, record: Mapping[str, Any]) -> None:
        self.progress += _PROGRESS.validate_python(record["progress"])
        self.refused |= frozenset(record["refused"])
        self.tasks = record["tasks"]

    def _record(self, number: int) -> Path:
        return self.folder / "batches" / f"{number:05d}.json"


def staged(playbook: Playbook, stage: Stage, examined: Collection[str] | None = None, *, id: str, at: str) -> Batch:
    """The gate's word on what is active and was examined, as far as it stands at another stage."""
    decided = [bullet for bullet in playbook.active if examined is None or bullet.id in examined]
    moves = (MoveTo(bullet_id=b.id, stage=stage, by_gate=True) for b in decided if b.stage is not stage)
    return Batch(id=id, deltas=tuple(moves), at=at)


def _decided(entry: Entry) -> bool:
    """Whether the line is the gate's."""
    change = entry.change
    return isinstance(change, Batch) and any(isinstance(delta, MoveTo) and delta.by_gate for delta in change.deltas)


def newest_unfinished(runs: Path, mark: str = "journal.jsonl") -> Path | None:
    """The folder of the run that began last and is not over; `None` when all are.

    `mark` is a file that runs of the kind have and others do not: all kinds lie side by side.
    """
    return next(iter(unfinished(runs, mark)), None)


def unfinished(runs: Path, mark: str = "journal.jsonl") -> list[Path]:
    """The folders of all runs that are not over, the one that began last first."""
    folders = [path.parent for path in runs.glob("*/config.json") if (path.parent / mark).exists()]
    open_runs = [folder for folder in folders if not (folder / "result.json").exists()]
    return sorted(open_runs, key=lambda folder: (folder / "config.json").stat().st_mtime_ns, reverse=True)


_Opened = TypeVar("_Opened")


def reopened(runs: Path, reopen: Callable[[Path], _Opened], mark: str = "journal.jsonl") -> _Opened | None:
    """The newest run that is not over and can be gone on with; `None` when all are over. One that cannot end blocks no other.

    Raises:
        InputError: None of them can be gone on with: what is wrong with the newest.
    """
    refused: list[JourneymanError] = []
    for folder in unfinished(runs, mark):
        try:
            return reopen(folder)
        except (InputError, PlaybookError) as error:
            log.warning("the run %s is passed over: %s", folder.name, error)
            refused.append(error)
    if refused:
        raise refused[0]
    return None


def fresh(runs: Path, *parts: str) -> Path:
    """A folder for a new run, called by its parts; one of the same settings gets a number behind its name."""
    name = "-".join(filter(None, parts))
    number, folder = 1, runs / name
    while folder.exists():
        number, folder = number + 1, runs / f"{name}-{number + 1}"
    return folder


def spoken(text: str, most: int = 40) -> str:
    """What somebody typed, as a part of the name of a file or folder, of so many characters at most."""
    return re.sub(r"[^\w.-]+", "-", text)[:most].strip("-.")


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise PlaybookError(f"{path} is missing: this is not the folder of a run, or a part of it was deleted") from None
    except ValueError as error:
        raise PlaybookError(f"{path} is not what was written: {error}") from None
