"""Watches one run from outside its walls, and tells the host what happened.

python -I inside warden FOLDER      one run without walls, its socket on file descriptor 0
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import files, wire
from .runner import HINTS
from .tape import Tape
from .toolbox import MAX_MESSAGE
from .walls import ProcessUsage, Walls
from .within import Within

LOOK_SECONDS = 0.015
"""Between two looks at what a run uses."""
CHUNK = 1 << 16
GRACE_SECONDS = 1.0
"""For which a run may stay at its number of processes before it counts as a bomb."""
MAX_NAME = 1000
"""Letters of a tool's name."""
MOST_CALLS = 64
"""Of tools, under way at once; the code waits with the next: what it says and does not hear fills nobody else's memory."""


class Outlet:
    """Bytes that wait until somebody reads them, so that the warden never does."""

    def __init__(self, fd: int, selector: selectors.BaseSelector) -> None:
        os.set_blocking(fd, False)
        self._fd = fd
        self._selector = selector
        self._waiting = bytearray()
        self._last = False
        self.closed = False

    @property
    def full(self) -> bool:
        """Whether whoever reads is far behind."""
        return len(self._waiting) > MAX_MESSAGE

    def put(self, data: bytes, *, last: bool = False) -> None:
        """Write soon; with `last` close after it."""
        if self.closed:
            return
        self._waiting += data
        self._last = last
        self.flush()

    def flush(self) -> None:
        try:
            while self._waiting:
                del self._waiting[: os.write(self._fd, self._waiting[:CHUNK])]
        except BlockingIOError:
            pass
        except OSError:
            self._waiting.clear()
            self._last = True
        self._watch()

    def _watch(self) -> None:
        key = self._selector.get_map().get(self._fd)
        events = (key.events if key else 0) & ~selectors.EVENT_WRITE
        handlers = dict(key.data) if key else {}
        if self._waiting:
            events |= selectors.EVENT_WRITE
            handlers[selectors.EVENT_WRITE] = self.flush
        if key:
            self._selector.unregister(self._fd)
        if events:
            self._selector.register(self._fd, events, handlers)
        elif self._last and not self._waiting:
            self.closed = True
            os.close(self._fd)


class Warden:
    """One run, or one session, from the request to the last word."""

    def __init__(self, channel: socket.socket, walls: Walls, job: Mapping[str, Any]) -> None:
        self.channel = channel
        self.walls = walls
        self.job = job
        self.limits: Mapping[str, Any] = job["limits"]
        self.session = job["kind"] == "session"
        self.selector = selectors.DefaultSelector()
        self.inbox = wire.Inbox()
        self.out = Tape(self.limits["output"])
        self.err = Tape(self.limits["output"])
        self.limit: str | None = None
        """What it was stopped by."""
        self.hint: str | None = None
        """What it may have been refused."""
        self.peak = 0
        self.cpu = 0.0
        self.status: dict[str, Any] = {}
        """Word from the first process within: that it is ready, how the code ended, or what failed."""
        self.status_text = b""
        self.said = b""
        self.calls = 0
        """Tool calls that wait for an answer."""
        self.deaf = False
        """While there are too many of them."""
        self.over = False
        self.idle = self.session
        self.crowded_since: float | None = None
        self.started = self.called = self.looked = time.monotonic()

    def start(self, within: Within, stdin: bytes, contents: Sequence[bytes]) -> None:
        self.init, self.ends = within.init, within.ends
        self.walls.allow(self.limits)
        within.begin(dict(self.job), contents)
        self._on_read(self.ends.out, lambda: self._record(self.ends.out, self.out))
        self._on_read(self.ends.err, lambda: self._record(self.ends.err, self.err))
        self._on_read(self.ends.status, self._hear_status)
        self._on_read(self.ends.line, self._hear_code)
        self._on_read(self.channel.fileno(), self._hear_host)
        self.to_code = Outlet(self.ends.line, self.selector)
        Outlet(self.ends.feed, self.selector).put(stdin, last=True)

    def watch(self) -> None:
        """Until it is over."""
        try:
            while not self.over:
                self._turn(LOOK_SECONDS)
                if self.deaf and not self.busy and not self._understood():
                    self._listen(no_more=True)
                self._look()
        finally:
            self.walls.kill(self.init)
            _, _, self.rusage = os.wait4(self.init, 0)
        self.hint = self.walls.refused() or self.hint
        for fd, tape in ((self.ends.out, self.out), (self.ends.err, self.err)):
            while self._record(fd, tape):
                pass

    def _turn(self, seconds: float) -> None:
        for key, events in self.selector.select(seconds):
            for event, handle in key.data.items():
                if event & events:
                    handle()

    def _on_read(self, fd: int, handle: Callable[[], Any]) -> None:
        os.set_blocking(fd, False)
        self.selector.register(fd, selectors.EVENT_READ, {selectors.EVENT_READ: handle})

    def _read(self, fd: int) -> bytes | None:
        """What is there; nothing at the end; `None` when there is nothing yet."""
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _record(self, fd: int, tape: Tape) -> bool:
        data = self._read(fd)
        if data == b"" and fd in self.selector.get_map():
            self.selector.unregister(fd)
        tape.write(data or b"")
        return bool(data)

    def _hear_status(self) -> None:
        data = self._read(self.ends.status)
        self.status_text += data or b""
        while b"\n" in self.status_text:
            text, _, self.status_text = self.status_text.partition(b"\n")
            self.status = wire.parse_line(text) | self.status
        if data == b"" or {"ended", "fault"} & set(self.status):
            self.over = True
        elif "ready" in self.status:
            self.started = self.called = time.monotonic()

    def _hear_code(self) -> None:
        """Word from the code, which may be anything."""
        data = self._read(self.ends.line)
        self.said += data or b""
        if data == b"" or not self._understood() or len(self.said) > 2 * MAX_MESSAGE:
            # Whoever does not keep to the protocol is no longer listened to.
            self._listen(no_more=True)

    def _understood(self) -> bool:
        """Hear what was said, as far as the calls under way allow; no when it made no sense."""
        while b"\n" in self.said and not self.busy:
            text, _, self.said = self.said.partition(b"\n")
            try:
                self._heard(wire.parse_line(text))
            except Exception:  # noqa: BLE001 - the boundary to the code: nothing that it says may end its warden
                return False
        self._listen()
        return True

    @property
    def busy(self) -> bool:
        return self.calls >= MOST_CALLS or self.to_code.full

    def _listen(self, *, no_more: bool = False) -> None:
        """To the code, while it is not too far ahead of the answers."""
        self.to_code.closed |= no_more
        self.deaf = self.busy and not self.to_code.closed
        key = self.selector.get_map().get(self.ends.line)
        events = (key.events if key else 0) & ~selectors.EVENT_READ
        handlers = dict(key.data) if key else {}
        if not (self.deaf or self.to_code.closed):
            events |= selectors.EVENT_READ
            handlers[selectors.EVENT_READ] = self._hear_code
        if key:
            self.selector.unregister(self.ends.line)
        if events:
            self.selector.register(self.ends.line, events, handlers)

    def _heard(self, message: Mapping[str, Any]) -> None:
        if "hint" in message:
            hint = next(hint for hint in HINTS.values() if hint == message["hint"])
            room = self.walls.room()
            # One error stands for both.
            self.hint = self.hint or ("inodes" if hint == "disk" and room and room.out_of_inodes else hint)
        elif "done" in message:
            code = int(message["done"])
            if self.session and not self.idle:
                self.idle, self.calls = True, 0
                self._drain()
                self._tell(exit_code=code, signal_name=None, over=False)
        else:
            # As text: how deep arguments may be nested is for those to say who read them.
            arguments = json.dumps(dict(message["arguments"]))
            self._send({"call": int(message["call"]), "tool": str(message["tool"])[:MAX_NAME], "arguments": arguments})
            self.calls += 1

    def _drain(self) -> None:
        """What was written before a call ended belongs to it."""
        for fd, tape in ((self.ends.out, self.out), (self.ends.err, self.err)):
            for _ in range(64):
                if not self._record(fd, tape):
                    break

    def _send(self, message: wire.Message, blobs: Sequence[bytes] = ()) -> None:
        self.channel.setblocking(True)
        try:
            wire.send(self.channel, message, blobs)
        except OSError:
            self.over = True
        finally:
            self.channel.setblocking(False)

    def _hear_host(self) -> None:
        data = self._read(self.channel.fileno())
        if data == b"":
            # Nobody waits for the result any more.
            self.over = True
        for message, blobs in self.inbox.feed(data or b""):
            if "answer" in message:
                self.calls = max(0, self.calls - 1)
                self.to_code.put(wire.line(message))
            elif "execute" in message:
                self.idle, self.called, self.limits = False, time.monotonic(), {**self.limits, **message["limits"]}
                self.to_code.put(wire.line({"code": blobs[0].decode(errors="surrogateescape"), "tools": message["tools"]}))

    def _look(self) -> None:
        """Is it still within its limits?"""
        now = time.monotonic()
        if "ready" not in self.status or now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        used = self.walls.usage(self.init)
        room = self.walls.room()
        memory = used.memory + (room.used if room else 0)
        self.peak = max(self.peak, memory)
        self.cpu = max(self.cpu, used.cpu_seconds)
        if not self.idle and now - self.called > self.limits["wall_seconds"]:
            self._stop("wall")
        elif used.cpu_seconds > self.limits["cpu_seconds"]:
            self._stop("cpu")
        elif memory > self.limits["memory"] or self.walls.refused() == "memory":
            # The kernel may have killed but one process, and the others would wait for it.
            self._stop("memory")
        elif self._crowded(used, now):
            self._stop("processes")
        if room and (room.full or room.out_of_inodes):
            self.hint = self.hint or ("inodes" if room.out_of_inodes else "disk")

    def _crowded(self, used: ProcessUsage, now: float) -> bool:
        if used.processes < self.limits["processes"]:
            self.crowded_since = None
            return False
        self.hint = self.hint or "processes"
        self.crowded_since = self.crowded_since or now
        return now - self.crowded_since > GRACE_SECONDS

    def _stop(self, limit: str) -> None:
        self.limit, self.over = self.limit or limit, True

    def finish(self) -> None:
        """Tell the host how it ended, and leave nothing behind."""
        if "fault" in self.status:
            self._send({"fault": self.status["fault"]})
        else:
            self._tell(*self._verdict(self.status.get("ended")), over=True)

    def _verdict(self, status: int | None) -> tuple[int | None, str | None]:
        """Exit code and signal. Who was stopped has no exit code, whatever it said last."""
        if self.limit or status is None:
            return None, "SIGKILL"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            self.limit = {int(signal.SIGXCPU): "cpu", int(signal.SIGXFSZ): "file_size"}.get(number)
            named = next((each.name for each in signal.Signals if each == number), f"SIG{number}")
            return None, named
        return os.WEXITSTATUS(status), None

    def _tell(self, exit_code: int | None, signal_name: str | None, *, over: bool) -> None:
        shortened = self.out.shortened or self.err.shortened
        found = files.collect(self.walls.work, self.job["collect"], self.limits["disk"]) if over else {}
        result = {
            "exit_code": exit_code,
            "signal": signal_name,
            "limit": self.limit or self.hint or ("output" if shortened else None),
            "cpu_seconds": max(self.cpu, self.rusage.ru_utime + self.rusage.ru_stime) if over else None,
            "wall_seconds": time.monotonic() - self.called,
            "peak_memory": self._peak() if over else None,
            "files": list(found),
            "over": over,
        }
        self.hint = None
        self._send({"result": result}, (self.out.take(), self.err.take(), *found.values()))

    def _peak(self) -> int:
        return self.walls.peak_memory() or max(self.peak, self.rusage.ru_maxrss * 1024)


def serve(channel: socket.socket, walls: Walls, kind: type[Warden] = Warden, within: Within | None = None) -> None:
    """One run, from the request to the result; `within` where its walls stand already."""
    job, (stdin, *contents) = wire.receive(channel)
    try:
        warden = kind(channel, walls, job)
        warden.start(within or Within(walls), stdin, contents)
        warden.watch()
        warden.finish()
    except OSError as error:
        wire.send(channel, {"fault": f"the walls could not be built: {error}"})
    finally:
        walls.clean()


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=os.dup(0)), Walls(arguments[0]))
    sys.stdout.flush()
