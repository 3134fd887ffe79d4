"""A training of weights on the disk: what goes into the program, and what comes out of it.

runs/<id>/
    config.json         the settings as resolved
    tasks.jsonl         the tasks to train on and to validate by, a line each; never a held-out one
    rows.jsonl          the rows to train on, where there were any
    metrics.jsonl       a line for each update
    checkpoints/        step-00010 and so on, each whole: adapter, optimizer, random states
    tensorboard/        what TensorBoard reads
    adapter/            what was learned, in PEFT's form, and `adapter.json`
    report.json         how the program ended
    log.txt             what the program printed
    run.json            how what it learned is to be proven; the training program does not read it
    launch.yaml         how `accelerate` starts it, where it runs in several processes
    pipeline.json       what a pipeline is to do with it, where it is part of one
    result.json         what the gate made of it, when all is over
    deployments.jsonl   where it was deployed, and whether against the gate
"""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO, Any

from journeyman.core.errors import InputError, TrainingError
from journeyman.core.task import Split, Task
from journeyman.io.jsonl import iter_jsonl
from journeyman.optimizers.weights import metrics
from journeyman.optimizers.weights.config import TrainingConfig


class Ended(StrEnum):
    """How the program ended."""

    FINISHED = "finished"
    """All updates were made."""
    EARLY = "early"
    """The validation reward did not rise any more; the best checkpoint is the adapter."""
    GUARDED = "guarded"
    """A guard stopped it; the last good checkpoint is the adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """What the program found. Times in seconds, memory in bytes; `None` is unknown."""

    ended: Ended
    reason: str
    """One sentence."""
    steps: int
    """Updates made."""
    kept_step: int
    """The update after which the adapter was as it is now; 0 for the start."""
    seconds: float
    cpu_seconds: float
    peak_memory: int | None
    """The largest resident set of the process."""
    peak_gpu_memory: int | None
    parameters: int
    """Of the base model."""
    trained: int
    """Of the adapter."""
    tokens: int
    """That were written and learned from."""
    validation_before: float | None
    """Mean reward on the validation tasks."""
    validation_after: float | None

    def json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """The folder of one training."""

    folder: Path

    @property
    def config(self) -> TrainingConfig:
        return TrainingConfig.of(self._read("config.json"))

    @property
    def tasks(self) -> Path:
        return self.folder / "tasks.jsonl"

    @property
    def rows(self) -> Path:
        return self.folder / "rows.jsonl"

    @property
    def metrics(self) -> Path:
        return self.folder / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    @property
    def adapter(self) -> Path:
        return self.folder / "adapter"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def report(self) -> TrainingReport | None:
        """How it ended; `None` while it has not."""
        if not (self.folder / "report.json").is_file():
            return None
        fields = self._read("report.json")
        return TrainingReport(**{**fields, "ended": Ended(fields["ended"])})

    def read_tasks(self, split: Split) -> list[Task]:
        """The tasks of a split; none where the file is missing."""
        return [task for task in _tasks(self.tasks) if task.split is split] if self.tasks.is_file() else []

    def _read(self, name: str) -> Mapping[str, Any]:
        path = self.folder / name
        try:
            value: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(f"{path} is missing: this is not the folder of a training of weights") from None
        except ValueError as error:
            raise InputError(f"{path} is not what was written: {error}") from None
        return value


def task_lines(tasks: Iterable[Task]) -> Iterator[str]:
    """Tasks as lines of JSON.

    Raises:
        InputError: One is held out.
    """
    for task in tasks:
        if task.split is Split.HELD_OUT:
            raise InputError(f"the task {task.id} is held out: no weights may learn from it")
        yield json.dumps(asdict(task), ensure_ascii=False) + "\n"


def _tasks(path: Path) -> Iterator[Task]:
    return (line.value for line in iter_jsonl(path, _task, what="not a task as it was written"))


def _task(line: str) -> Task:
    fields = json.loads(line)
    return Task(**{**fields, "split": Split(fields["split"])})


# The side of the training program that starts it, follows it and says how it ended. No torch is loaded here.
#
# The program runs in a process group of its own. Its standard input is a pipe that this process holds: when it is closed, by
# Ctrl-C here or because this process is gone, however that came, the program stops after a checkpoint (`end_with_parent`).
# That reaches every process that `accelerate launch` starts, and not the launcher, which would leave them behind.

MODULE = "journeyman.experiments.weights"
PARENT = "JOURNEYMAN_TRAINING_PARENT"
"""Set for the program: whose pipe its standard input is."""
REFUSED = 2
INTERRUPTED = 130
_PASSIVE_WAIT = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait for each other sleep instead of spinning: on a busy machine that is half of the processor time."""
_POLL = 0.2
_GRACE = 120.0
"""Seconds for a checkpoint, after which a program without a parent is killed."""
_LAST_LINES = 200
_PREFIX = "journeyman: "
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)
_SHORTEST_SECRET = 8
"""Shorter values are words like "none", and would blot the log."""
_RAISED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Warning)\b.*")
_LAUNCHER = re.compile(r"[WEI]\d{4} .*torch/distributed/elastic/.*")
_FIRST_TO_FAIL = re.compile(r"\s*exitcode\s*: (-?\d+) \(pid: \d+\).*")
"""The last such line stands under "Root Cause (first observed failure)"."""
_RANK = re.compile(r"\[rank\d+\]: ")
_NO_MEMORY = re.compile(r"out of memory|can't allocate memory|cannot allocate memory|MemoryError", re.IGNORECASE)


def launch(
    job: TrainingJob,
    *,
    command: Sequence[str] | None = None,
    on_metrics: Callable[[Mapping[str, Any]], None] = lambda _: None,
    env: Mapping[str, str] | None = None,
) -> TrainingReport:
    """Run the training program to its end, or go on with what it left.

    Args:
        command: What runs the program, before the job's folder; for several processes
            `accelerate launch … -m journeyman.experiments.weights`.
        on_metrics: Is called with each new line of metrics.jsonl.
        env: What is added to this process's environment.

    Raises:
        InputError: The program cannot use its input.
        TrainingError: It failed, or was killed. What it had kept stays, and it can go on from there.
        KeyboardInterrupt: It was interrupted here, and has stopped after a checkpoint.
    """
    started = [*(command or (sys.executable, "-m", MODULE)), str(job.folder.resolve())]
    surroundings = {**_PASSIVE_WAIT, **os.environ, "PYTHONUNBUFFERED": "1", **(env or {}), PARENT: str(os.getpid())}
    kills = _oom_kills()
    follower = _MetricsFollower(job, on_metrics)
    process = subprocess.Popen(
        started,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=surroundings,
        start_new_session=True,
        text=True,
        errors="replace",
    )
    log = _Log(process, job.log, _secrets(surroundings))
    try:
        _follow(process, follower)
    except KeyboardInterrupt:
        _stop(process)
        raise
    finally:
        # Whatever was raised, and whatever is left of the group: nothing goes on without this process.
        _kill(process)
        log.close()
    code, last = _first_to_fail(process.returncode, list(log.last))
    return _outcome(job, code, last, killed_for_memory=kills < _oom_kills())


def end_with_parent() -> None:
    """In the program: stop after a checkpoint when the process that started it is gone. Called by hand it does nothing."""
    if PARENT not in os.environ:
        return

    def wait() -> None:
        with suppress(OSError):
            while os.read(sys.stdin.fileno(), 1):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_GRACE)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="parent", daemon=True).start()


class _MetricsFollower:
    """Hands on the new lines of metrics.jsonl. A run that goes on writes the file anew, and it is read from its beginning."""

    def __init__(self, job: TrainingJob, on_metrics: Callable[[Mapping[str, Any]], None]) -> None:
        self._path = job.metrics
        self._on_metrics = on_metrics
        self._file, self._read = self._now()

    def _now(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except FileNotFoundError:
            return 0, 0
        return status.st_ino, status.st_size

    def look(self) -> None:
        file, size = self._now()
        if file != self._file:
            self._file, self._read = file, 0
        if size <= self._read:
            return
        with self._path.open("rb") as lines:
            lines.seek(self._read)
            for line in lines:
                if not line.endswith(b"\n"):
                    break
                self._read += len(line)
                self._deliver(line)

    def _deliver(self, line: bytes) -> None:
        try:
            update = json.loads(line)
        except ValueError:
            return
        self._on_metrics(update)


class _Log:
    """Writes what the program says to its log, without secrets, and remembers the last lines."""

    def __init__(self, process: "subprocess.Popen[str]", path: Path, secrets: Sequence[str]) -> None:
        self.last: deque[str] = deque(maxlen=_LAST_LINES)
        self._path = path
        self._hidden = re.compile("|".join(map(re.escape, secrets))) if secrets else None
        assert process.stdout is not None
        self._thread = threading.Thread(target=self._copy, args=(process.stdout,), name="log", daemon=True)
        self._thread.start()

    def _copy(self, output: IO[str]) -> None:
        with output:
            for line in output:
                clean = self._hidden.sub("[redacted]", line) if self._hidden else line
                self.last.append(clean.rstrip())
                # A full disk must not keep the program's words from being read: it would wait for that.
                with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
                    file.write(clean)

    def close(self) -> None:
        self._thread.join(timeout=_GRACE)


def _secrets(surroundings: Mapping[str, str]) -> list[str]:
    values = {value for name, value in surroundings.items() if _SECRET.search(name) and len(value) >= _SHORTEST_SECRET}
    return sorted(values, key=len, reverse=True)


def _follow(process: "subprocess.Popen[str]", follower: _MetricsFollower) -> None:
    while True:
        try:
            process.wait(timeout=_POLL)
        except subprocess.TimeoutExpired:
            follower.look()
        else:
            follower.look()
            return


def _stop(process: "subprocess.Popen[str]") -> None:
    """Ask for an end after a checkpoint, and wait for it; a second Ctrl-C has it at once."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(KeyboardInterrupt):
        process.wait()


def _kill(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


def _outcome(job: TrainingJob, code: int, last: Sequence[str], *, killed_for_memory: bool) -> TrainingReport:
    if code in (0, 3) and (report := job.report) is not None:
        return report
    messages = [line.removeprefix(_PREFIX) for line in last if line.startswith(_PREFIX)]
    if code == REFUSED and messages:
        raise InputError(messages[-1])
    updates = metrics.read(job.metrics)
    after = f"after update {updates[-1].step} of {updates[-1].of}" if updates else "before its first update"
    raised = next(_last_errors(last), "")
    if killed_for_memory or code in (-signal.SIGKILL, 128 + signal.SIGKILL) or _NO_MEMORY.search(raised):
        advice = "a smaller --per-device-batch-size or --max-completion-tokens, or a smaller --base-model, needs less"
        sure = killed_for_memory or _NO_MEMORY.search(raised)
        why = "ran out of memory" if sure else "was killed, as the system does when memory runs out,"
        raise TrainingError(f"the training {why} {after}: {advice}")
    if code in (-signal.SIGINT, -signal.SIGTERM, INTERRUPTED, 128 + signal.SIGTERM):
        raise TrainingError(f"the training was interrupted {after}, and goes on from its newest checkpoint with --resume")
    raise TrainingError(f"the training failed {after} with exit code {code}: {raised or 'it said nothing'} (see {job.log})")


def _first_to_fail(code: int, last: list[str]) -> tuple[int, list[str]]:
    """The exit code and the last words of the process that failed first, where a launcher of several says that one did.

    torch's launcher itself always ends with 1, and what it says comes after all that its processes have said.
    """
    codes = [match[1] for line in last if (match := _FIRST_TO_FAIL.fullmatch(line))]
    if code == 0 or not codes:
        return code, last
    lines = itertools.takewhile(lambda line: not _LAUNCHER.fullmatch(line), last)
    return int(codes[-1]), [_RANK.sub("", line) for line in lines]


def _last_errors(last: Sequence[str]) -> Iterator[str]:
    """What the last traceback ends with, then any last line."""
    yield from (line for line in reversed(last) if _RAISED.fullmatch(line))
    yield from (line for line in reversed(last) if line.strip())


def _oom_kills() -> int:
    """How many processes of this control group the system has killed for want of memory; 0 where it does not tell."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    top = Path("/sys/fs/cgroup")
    below = next((line.removeprefix("0::/") for line in own if line.startswith("0::")), "")
    for path in (top / below / "memory.events", top / "memory.events", top / "memory/memory.oom_control"):
        with suppress(OSError):
            if match := re.search(r"^oom_kill (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE):
                return int(match[1])
    return 0
