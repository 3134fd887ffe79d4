"""What is done to those who write: they are killed, their server stops, their disk is full, their clock jumps."""

import ctypes
import http.client
import itertools
import json
import os
import random
import runpy
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks import kill_resume
from benchmarks.soak_children import Acknowledge, Child, Counts, Ground, Skipped, Turn, asked
from benchmarks.soak_readers import store_file
from benchmarks.soak_writers import LIAR, WRITERS, Place, Writer
from journeyman.core.errors import JourneymanError
from journeyman.stores.traces import open_traces
from tests.support.full_disk import no_file_larger_than
from tests.support.postgres import Cluster, cluster

Piece = Callable[[Turn], Counts]
_SOON = 60.0
"""Seconds for a first acknowledgement, on a machine that others use as well."""
_SPREAD = 0.4
"""Seconds after the first acknowledgement within which a kill falls."""


class Campaign:
    """What all turns share: an upstream that answers, and a PostgreSQL of its own, each started when somebody needs it."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self._ground, self._folder = ground, folder
        self._held = ExitStack()
        self._upstream = ""
        self._cluster: Cluster | None = None

    def __enter__(self) -> Self:
        store_file()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._held.close()

    @property
    def upstream(self) -> str:
        """The address of a model server that answers every chat with its question's number."""
        if not self._upstream:
            child = Child(self._folder, _answering)
            self._ground.known.add(child.pid)
            self._held.callback(child.kill)
            if not child.until(1, _SOON):
                raise RuntimeError(f"the upstream did not start: {child.traceback}")
            self._upstream = child.acknowledged[0]
        return self._upstream

    @property
    def cluster(self) -> Cluster:
        """The server of PostgreSQL.

        Raises:
            Skipped: There is none to start.
        """
        if self._cluster is None:
            try:
                # Not where the programs under test leave their files.
                self._cluster = self._held.enter_context(cluster(self._folder / "postgres"))
            except LookupError as why:
                raise Skipped(str(why)) from None
            self.server_started()
        return self._cluster

    def server_started(self) -> None:
        """Its processes are not what a piece left behind."""
        assert self._cluster is not None
        self._ground.known.add(self._cluster.pid)


# kill


def _writing(writer: Writer, place: Place, tell: Acknowledge, *, first: int = 0, last: int | None = None) -> None:
    with writer.opened(place) as write:
        for number in itertools.count(first) if last is None else range(first, last):
            write(number)
            tell(number)


def _judged(counts: Counts, writer: Writer, place: Place, child: Child) -> None:
    """Whether all that was acknowledged is there, and whether somebody else can go on."""
    counts.tried += 1
    if child.traceback:
        counts.tracebacks += 1
        counts.notes.append(child.traceback)
    numbers = list(child.acknowledged)
    if not numbers:
        counts.tracebacks += 1
        counts.notes.append(f"nothing was acknowledged: {child.said.read_text(errors='replace')[-500:]}")
        return
    missing, wrong = asked(place.folder, lambda: list(writer.missing(place, numbers)))
    if wrong:
        counts.tracebacks += 1
        counts.notes.append(f"what was written cannot be read: {wrong}")
        return
    if missing:
        counts.lost += len(missing)
        counts.notes.append(f"acknowledged and lost, of {len(numbers)}: {', '.join(missing[:5])}")
        return
    after = Child(place.folder, partial(_writing, writer, place, first=max(numbers) + 2, last=max(numbers) + 3))
    if after.wait(_SOON) or len(after.acknowledged) != 1:
        counts.tracebacks += 1
        counts.notes.append(f"nobody can go on afterwards: {after.said.read_text(errors='replace')[-800:]}")
        return
    counts.survived += 1


def _conclude(counts: Counts, wrong: str, missing: Sequence[str], lost: str) -> None:
    """What came of a turn: something ended wrong, or something is missing (`lost` says of what), or it survived."""
    if wrong:
        counts.tracebacks += 1
        counts.notes.append(wrong)
    elif missing:
        counts.lost += len(missing)
        counts.notes.append(f"{lost}: {', '.join(missing[:5])}")
    else:
        counts.survived += 1


def kill(writer: Writer, turn: Turn) -> Counts:
    counts, place = Counts(), Place(folder=turn.folder)
    child = Child(turn.folder, partial(_writing, writer, place))
    child.until(1, _SOON)
    until = time.monotonic() + turn.chance.uniform(0, _SPREAD)
    while (left := until - time.monotonic()) > 0:
        child.hear(left)
    child.kill()
    _judged(counts, writer, place, child)
    return counts


# kill/gateway


def _answering(tell: Acknowledge) -> None:
    from tests.support.upstream import Asked, Reply, events, ok, upstream

    def answer(given: Asked) -> Reply:
        body = json.loads(given.body)
        said = f"answer {body['messages'][-1]['content']}"
        if body.get("stream"):
            told = [{"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": piece}}]} for piece in (said, ".")]
            return events(*map(json.dumps, told), "[DONE]")
        message = {"role": "assistant", "content": said}
        return ok(
            {
                "id": f"c{said}",
                "object": "chat.completion",
                "model": "m",
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            }
        )

    with upstream() as served:
        served.answer = answer
        tell(served.url)
        while True:
            time.sleep(60)
            served.asked.clear()


def _command(*arguments: str) -> Callable[[Acknowledge], None]:
    """`journeyman …` in a fork, which is already warm."""

    def run(_: Acknowledge) -> None:
        sys.argv = ["journeyman", *arguments]
        runpy.run_module("journeyman", run_name="__main__", alter_sys=True)

    return run


@dataclass(slots=True)
class _Served:
    url: str
    child: Child


def _served(turn: Turn, upstream: str) -> _Served:
    os.environ["JOURNEYMAN_STORE"] = ""
    arguments = (
        "serve",
        "--port",
        "0",
        "--json",
        "--no-pages",
        "--durable",
        "--upstream",
        upstream,
        "--store",
        str(turn.folder / "journeyman.db"),
    )
    run = _command(*arguments)

    def serve(tell: Acknowledge) -> None:
        os.chdir(turn.folder)
        run(tell)

    child = Child(turn.folder, serve)
    deadline = time.monotonic() + _SOON
    while time.monotonic() < deadline:
        for line in child.said.read_text().splitlines() if child.said.exists() else ():
            if line.startswith('{"url"'):
                return _Served(json.loads(line)["url"], child)
        if child.hear(0.02) or child.ended:
            break
    said = child.said.read_text(errors="replace")[-800:]
    child.kill()
    raise RuntimeError(f"the gateway did not start: {said}")


def _chatting(url: str, tell: Acknowledge) -> None:
    """Three clients; a chat is acknowledged when its answer was read to its end."""
    address = url.removeprefix("http://")

    def converse(first: int) -> None:
        for number in range(first, 100_000, 3):
            body = {"model": "m", "messages": [{"role": "user", "content": str(number)}], "stream": bool(number % 2)}
            connection = http.client.HTTPConnection(address, timeout=30)
            try:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                return
            finally:
                connection.close()
            if answer.status == 200 and f"answer {number}".encode() in content and (not number % 2 or b"[DONE]" in content):
                tell(number)

    threads = [threading.Thread(target=converse, args=(first,)) for first in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def kill_gateway(campaign: Campaign, turn: Turn) -> Counts:
    counts = Counts(tried=1)
    (turn.folder / "journeyman.db").write_bytes(store_file())
    gateway = _served(turn, campaign.upstream)
    clients = Child(turn.folder, partial(_chatting, gateway.url))
    clients.until(1, _SOON)
    until = time.monotonic() + turn.chance.uniform(0, 2 * _SPREAD)
    while (left := until - time.monotonic()) > 0:
        clients.hear(left)
    gateway.child.kill()
    clients.wait(40)
    # What had not reached the store stands in the spill file, and is stored by whoever starts next.
    again = _served(turn, campaign.upstream)
    os.kill(again.child.pid, signal.SIGTERM)
    code = again.child.wait(40)
    numbers = {str(number) for number in clients.acknowledged}

    def kept() -> list[str]:
        with open_traces(turn.folder / "journeyman.db") as store:
            return sorted(numbers - {each.query for each in store.traces()})

    missing, wrong = asked(turn.folder, kept)
    wrong = (
        wrong
        or again.child.traceback
        or clients.traceback
        or (f"the gateway that was started again ended with {code}" if code else "")
    )
    wrong = wrong or ("" if numbers else "no chat was answered")
    _conclude(counts, wrong, missing, f"of {len(numbers)} chats whose answer was read these are lost")
    return counts


def kill_training(turn: Turn) -> Counts:
    """A training with a scripted model, killed and gone on with: what stood in the store when it was killed stands there."""
    training, counts = kill_resume.TRAININGS["playbook"], Counts(tried=1)
    os.environ["JOURNEYMAN_STORE"] = ""
    before = kill_resume.killed(training, turn.folder, turn.chance.uniform(0, 2))
    try:
        if before is not None:
            kill_resume.finish(training.resume, turn.folder)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        counts.tracebacks += 1
        counts.notes.append(str(error))
        return counts
    after = kill_resume.kept(turn.folder)
    counts.lost += sum(len(ids - after[name]) for name, ids in (before or {}).items())
    counts.survived += not counts.lost
    if counts.lost:
        counts.notes.append(f"{counts.lost} rows of the store are gone after a training was killed and gone on with")
    return counts


# postgres


def _insisting(writer: Writer, place: Place, tell: Acknowledge) -> None:
    """As `_writing`; what a server that is away refuses is written again, as its user would."""
    number, opened = 0, False
    while True:
        try:
            with writer.opened(place) as write:
                opened = True
                while True:
                    write(number)
                    tell(number)
                    number += 1
        except JourneymanError as error:
            if not str(error).strip() or not opened:
                raise
            tell(f"refused: {error}")
            time.sleep(0.05)


def stop_server(campaign: Campaign, writer: Writer, turn: Turn) -> Counts:
    server = campaign.cluster
    counts = Counts(tried=1)
    with server.database() as url:
        place = Place(folder=turn.folder, url=url)
        child = Child(turn.folder, partial(_insisting, writer, place))
        child.until(1, _SOON)
        until = time.monotonic() + turn.chance.uniform(0, _SPREAD)
        while (left := until - time.monotonic()) > 0:
            child.hear(left)
        server.stop()
        time.sleep(turn.chance.uniform(0, _SPREAD))
        before = len(child.acknowledged)
        server.start()
        campaign.server_started()
        child.until(before + 8, _SOON)
        child.kill()
        numbers = [each for each in child.acknowledged if isinstance(each, int)]
        refused = [each for each in child.acknowledged if isinstance(each, str)]
        missing, wrong = asked(turn.folder, lambda: list(writer.missing(place, numbers)))
    counts.refused += bool(refused)
    wrong = wrong or child.traceback or ("" if numbers else "nothing was acknowledged")
    _conclude(counts, wrong, missing, f"acknowledged and lost, of {len(numbers)}")
    return counts


# disk


def fill_disk(writer: Writer, turn: Turn) -> Counts:
    """In a fork: some writes, the disk is full, the error is a sentence, there is room again, and it goes on."""
    counts = Counts(tried=1)
    small = turn.chance.random() < 0.5
    found, wrong = asked(turn.folder, partial(_filled, writer, turn, small=small), 120)
    if wrong:
        counts.tracebacks += 1
        counts.notes.append(wrong)
        return counts
    counts.refused += bool(found["refused"])
    if found["strange"]:
        counts.tracebacks += 1
        counts.notes.append(f"on a full disk: {found['strange']}")
    if found["missing"]:
        counts.lost += len(found["missing"])
        counts.notes.append(f"acknowledged and lost on a full disk: {', '.join(found['missing'][:5])}")
    counts.survived += not found["strange"] and not found["missing"]
    return counts


def _filled(writer: Writer, turn: Turn, *, small: bool) -> dict[str, Any]:
    disk = turn.folder / "disk"
    disk.mkdir()
    full = _small_disk if small and _mounted(disk) else _limited
    place, acknowledged, refused, strange = Place(folder=disk), list[int](), list[str](), ""
    place.store  # noqa: B018 - makes it
    with writer.opened(place) as write:
        number = 0
        while number < 5:
            write(number)
            acknowledged.append(number)
            number += 1
        with full(disk, turn.chance):
            for number in range(5, 300):
                try:
                    write(number)
                    acknowledged.append(number)
                except JourneymanError as error:
                    refused.append(str(error))
                    if len(refused) == 2:
                        break
                except Exception as error:  # noqa: BLE001 - what is looked for
                    strange = f"{type(error).__name__}: {error}"
                    break
        deadline = time.monotonic() + 30
        while not strange:
            number += 1
            try:
                write(number)
                acknowledged.append(number)
                break
            except JourneymanError as error:
                if time.monotonic() > deadline:
                    strange = f"there is room again, and it says {error}"
                time.sleep(0.1)
    strange = strange or next((each for each in refused if not each.strip() or "\n" in each.strip()), "")
    return {"missing": list(writer.missing(place, acknowledged)), "refused": refused[:1], "strange": strange}


@contextmanager
def _limited(disk: Path, chance: random.Random) -> Iterator[None]:
    """No file of this process may grow beyond a size, in the middle of what is written next to one of those that are there."""
    sizes = sorted(path.stat().st_size for path in disk.rglob("*") if path.is_file())
    with no_file_larger_than(chance.choice(sizes) + chance.randrange(2048)):
        yield


_NEW_NAMESPACE = 0x00020000
_PRIVATE = 0x4000 | (1 << 18)


def _mounted(folder: Path) -> bool:
    """Mount a disk of some megabytes there, for this process alone; whether that may be done."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() != 0 or libc.unshare(_NEW_NAMESPACE) or libc.mount(b"none", b"/", None, _PRIVATE, None):
        return False
    return not libc.mount(b"tmpfs", str(folder).encode(), b"tmpfs", 0, b"size=8m")


@contextmanager
def _small_disk(disk: Path, chance: random.Random) -> Iterator[None]:
    """Nothing but a few pages of the disk are free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
        file.truncate(max(0, file.tell() - 4096 * chance.randrange(3)))
    try:
        yield
    finally:
        filler.unlink()


# clock

_CLOCK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *offset;
static int (*real)(clockid_t, struct timespec *);
__attribute__((constructor)) static void begin(void) {
  real = dlsym(RTLD_NEXT, "clock_gettime");
  const char *path = getenv("SOAK_CLOCK");
  int file = path ? open(path, O_RDONLY) : -1;
  if (file < 0) return;
  void *at = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (at != MAP_FAILED) offset = at;
}
int clock_gettime(clockid_t which, struct timespec *now) {
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int said = real(which, now);
  if (!said && offset && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
  return said;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec; now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *into) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (into) *into = exact.tv_sec;
  return exact.tv_sec;
}
"""
_JUMPS = (3600, 7 * 3600, 86400, 30 * 86400, 400 * 86400)


class Clock:
    """The wall clock of programs that are started with it, moved by whoever holds this."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise Skipped("there is no C compiler (Debian: build-essential), which makes the library that moves the clock")
        self._library, self._offset = folder / "clock.so", folder / "offset"
        if not self._library.exists():
            (folder / "clock.c").write_text(_CLOCK)
            command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(folder / "clock.c"), "-ldl"]
            subprocess.run(command, check=True, capture_output=True, env={**os.environ, "TMPDIR": str(folder)})
        self.jump(0)

    def jump(self, seconds: int) -> None:
        content = struct.pack("<q", seconds)
        if not self._offset.exists():
            self._offset.write_bytes(content)
        with self._offset.open("r+b") as file:
            file.write(content)

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "LD_PRELOAD": str(self._library), "SOAK_CLOCK": str(self._offset)}


def move_clock(writer: Writer, turn: Turn) -> Counts:
    counts, place, clock = Counts(tried=1), Place(folder=turn.folder), Clock(turn.folder)
    place.store  # noqa: B018 - makes it
    seen = turn.folder / "seen"
    command = [sys.executable, "-m", "benchmarks.soak_faults", writer.name, str(turn.folder)]

    def exec_(tell: Acknowledge) -> None:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=clock.environment, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            tell(json.loads(line))
        raise SystemExit(process.wait())

    child = Child(turn.folder, exec_)
    child.until(1, _SOON)
    for _ in range(8):
        clock.jump(turn.chance.choice(_JUMPS) * turn.chance.choice((-1, 1)))
        child.until(len(child.acknowledged) + 2, 2)
    clock.jump(0)
    (turn.folder / "stop").touch()
    code = child.wait(_SOON)
    numbers = [number for number, _ in child.acknowledged]
    times = [at for _, at in child.acknowledged]
    missing, wrong = asked(turn.folder, lambda: list(writer.missing(place, numbers)))
    wrong = wrong or child.traceback or (f"it ended with {code}: {child.said.read_text()[-500:]}" if code else "")
    if not wrong and times == sorted(times):
        wrong = "the clock did not jump: the library that moves it was not taken"
    _conclude(counts, wrong, missing, f"acknowledged and lost, of {len(numbers)}")
    seen.unlink(missing_ok=True)
    return counts


def under_clock(name: str, folder: Path) -> int:
    """What a program does whose clock is moved: it writes until it is told to stop."""
    with WRITERS[name].opened(Place(folder=folder)) as write:
        for number in itertools.count():
            write(number)
            print(json.dumps([number, time.time()]), flush=True)
            if (folder / "stop").exists():
                return 0
            time.sleep(0.005)
    return 1


# All together.


def pieces(campaign: Campaign | None) -> dict[str, Piece]:
    """Every piece by its name, in the order of their turns. Without a campaign they can be named, and not tried."""
    shared: Any = campaign
    found: dict[str, Piece] = {f"kill/{name}": partial(kill, writer) for name, writer in WRITERS.items()}
    found["kill/gateway"] = partial(kill_gateway, shared)
    found["kill/training"] = _seldom(kill_training, 10)
    found |= {f"disk/{name}": _seldom(partial(fill_disk, writer), 2) for name, writer in WRITERS.items()}
    found |= {f"clock/{name}": _seldom(partial(move_clock, WRITERS[name]), 2) for name in ("traces", "registry", "spans")}
    servers = [writer for writer in WRITERS.values() if writer.on_server]
    found |= {f"postgres/{writer.name}": _seldom(partial(stop_server, shared, writer), 2) for writer in servers}
    return found


def _seldom(piece: Piece, every: int) -> Piece:
    """The first turn, and then one of some: what is dear."""
    turns = itertools.count()
    return lambda turn: Counts() if next(turns) % every else piece(turn)


def _leaving(turn: Turn) -> Counts:
    with tempfile.NamedTemporaryFile(delete=False) as file:
        file.write(b"left")
    Child(turn.folder, lambda _: time.sleep(600))
    return Counts(tried=1, survived=1)


INJECTED: Mapping[str, tuple[str, Piece]] = {
    "loss": ("kill/injected", partial(kill, LIAR)),
    "left": ("kill/left", _leaving),
}
"""Faults that the campaign must find: by the word for it, its name and the piece that has it."""

if __name__ == "__main__":
    raise SystemExit(under_clock(sys.argv[1], Path(sys.argv[2])))
