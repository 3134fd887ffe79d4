"""Watches one run from outside its walls, and tells the host what happened.

python -I inside supervisor FOLDER      one run without walls, its socket on file descriptor 0
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from . import files, wire
from .init import InitProcess
from .isolation import Isolation, ProcessUsage
from .runner import HINTS
from .tools import MAX_MESSAGE

LOOK_SECONDS = 0.015
"""Between two looks at what a run uses."""
CHUNK = 1 << 16
GRACE_SECONDS = 1.0
"""For which a run may stay at its number of processes before it counts as a bomb; and a host may take to hear the result."""
MAX_NAME = 1000
"""Letters of a tool's name."""
MAX_CALLS = 64
"""Of tools, under way at once; the code waits with the next: what it says and does not hear fills nobody else's memory."""


class OutputBuffer:
    """What was written to one stream, of any length in constant memory: its beginning and its end."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def write(self, data: bytes) -> None:
        self._seen += len(data)
        room = self._limit - self._limit // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > self._limit:
            self._tail = self._tail[len(self._tail) - self._limit // 2 :] if self._limit > 1 else bytearray()

    @property
    def shortened(self) -> bool:
        """Whether more came than is kept."""
        return self._seen > self._limit

    def take(self) -> bytes:
        """What was kept, and begin anew."""
        kept = self._kept()
        self._head, self._tail, self._seen = bytearray(), bytearray(), 0
        return kept

    def _kept(self) -> bytes:
        if not self.shortened:
            return bytes(self._head + self._tail)
        size = self._limit // 2
        head, tail = _without_half_a_letter(bytes(self._head)), self._tail[len(self._tail) - size :] if size else b""
        tail = bytes(tail)
        while tail and tail[0] & 0xC0 == 0x80:
            tail = tail[1:]
        lost = self._seen - len(head) - len(tail)
        return b"%s\n[... %d bytes left out ...]\n%s" % (head, lost, tail)


def _without_half_a_letter(text: bytes) -> bytes:
    """UTF-8 that was cut, less the letter that the cut went through."""
    for back in range(1, min(4, len(text)) + 1):
        byte = text[-back]
        if byte & 0xC0 == 0x80:
            continue
        needed = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
        return text if needed <= back else text[:-back]
    return text


def set_handler(selector: selectors.BaseSelector, fd: int, event: int, handler: Callable[[], Any] | None) -> bool:
    """Call this when a file descriptor can be read (or written), or no longer; whether anything is still waited for there."""
    key = selector.get_map().get(fd)
    handlers = {each: known for each, known in (key.data if key else {}).items() if each != event}
    if handler is not None:
        handlers[event] = handler
    if key:
        selector.unregister(fd)
    if handlers:
        selector.register(fd, sum(handlers), handlers)
    return bool(handlers)


class Outlet:
    """Bytes that wait until somebody reads them, so that the supervisor never does."""

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
        watched = set_handler(self._selector, self._fd, selectors.EVENT_WRITE, self.flush if self._waiting else None)
        if not watched and self._last and not self._waiting:
            self.closed = True
            os.close(self._fd)


class Supervisor:
    """One run, or one session, from the request to the last word."""

    def __init__(self, channel: socket.socket, isolation: Isolation, job: Mapping[str, Any]) -> None:
        self.channel = channel
        self.isolation = isolation
        self.job = job
        self.limits: Mapping[str, Any] = job["limits"]
        self.session = job["kind"] == "session"
        self.selector = selectors.DefaultSelector()
        self.inbox = wire.Inbox()
        self.out = OutputBuffer(self.limits["output"])
        self.err = OutputBuffer(self.limits["output"])
        self.limit: str | None = None
        """What it was stopped by."""
        self.hint: str | None = None
        """What it may have been refused."""
        self.peak = 0
        self.cpu = 0.0
        self.status: dict[str, Any] = {}
        """Word from the first process within: that it is ready, how the code ended, or what failed."""
        self.status_text = b""
        self.received = b""
        self.calls = 0
        """Tool calls that wait for an answer."""
        self.paused = False
        """While there are too many of them."""
        self.over = False
        self.idle = self.session
        self.full_since: float | None = None
        self.started = self.called = self.looked = time.monotonic()

    def start(self, process: InitProcess, stdin: bytes, contents: Sequence[bytes]) -> None:
        self.pid, self.pipes = process.pid, process.pipes
        self.isolation.allow(self.limits)
        process.begin(dict(self.job), contents)
        self._on_read(self.pipes.out, lambda: self._record(self.pipes.out, self.out))
        self._on_read(self.pipes.err, lambda: self._record(self.pipes.err, self.err))
        self._on_read(self.pipes.status, self._read_status)
        self._on_read(self.pipes.line, self._read_code)
        self._on_read(self.channel.fileno(), self._read_host)
        self.to_code = Outlet(self.pipes.line, self.selector)
        Outlet(self.pipes.feed, self.selector).put(stdin, last=True)

    def watch(self) -> None:
        """Until it is over."""
        try:
            while not self.over:
                self._poll(LOOK_SECONDS)
                if self.paused and not self.busy and not self._handle_received():
                    self._listen_to_code(no_more=True)
                self._check_limits()
        finally:
            self.isolation.kill(self.pid)
            _, _, self.rusage = os.wait4(self.pid, 0)
        self.hint = self.isolation.refused() or self.hint
        for fd, buffer in ((self.pipes.out, self.out), (self.pipes.err, self.err)):
            while self._record(fd, buffer):
                pass

    def _poll(self, seconds: float) -> None:
        for key, events in self.selector.select(seconds):
            for event, handle in key.data.items():
                if event & events:
                    handle()

    def _on_read(self, fd: int, handle: Callable[[], Any]) -> None:
        os.set_blocking(fd, False)
        set_handler(self.selector, fd, selectors.EVENT_READ, handle)

    def _read(self, fd: int) -> bytes | None:
        """What is there; nothing at the end; `None` when there is nothing yet."""
        try:
            return os.read(fd, CHUNK)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _record(self, fd: int, buffer: OutputBuffer) -> bool:
        data = self._read(fd)
        if data == b"" and fd in self.selector.get_map():
            self.selector.unregister(fd)
        buffer.write(data or b"")
        return bool(data)

    def _read_status(self) -> None:
        data = self._read(self.pipes.status)
        self.status_text += data or b""
        while b"\n" in self.status_text:
            text, _, self.status_text = self.status_text.partition(b"\n")
            self.status = wire.parse_line(text) | self.status
        if data == b"" or {"ended", "fault"} & set(self.status):
            self.over = True
        elif "ready" in self.status:
            self.started = self.called = time.monotonic()

    def _read_code(self) -> None:
        """Word from the code, which may be anything."""
        data = self._read(self.pipes.line)
        self.received += data or b""
        if data == b"" or not self._handle_received() or len(self.received) > 2 * MAX_MESSAGE:
            # Whoever does not keep to the protocol is no longer listened to.
            self._listen_to_code(no_more=True)

    def _handle_received(self) -> bool:
        """Hear what was said, as far as the calls under way allow; no when it made no sense."""
        while b"\n" in self.received and not self.busy:
            text, _, self.received = self.received.partition(b"\n")
            try:
                self._handle(wire.parse_line(text))
            except Exception:  # noqa: BLE001 - the boundary to the code: nothing that it says may end its supervisor
                return False
        self._listen_to_code()
        return True

    @property
    def busy(self) -> bool:
        return self.calls >= MAX_CALLS or self.to_code.full

    def _listen_to_code(self, *, no_more: bool = False) -> None:
        """To the code, while it is not too far ahead of the answers."""
        self.to_code.closed |= no_more
        self.paused = self.busy and not self.to_code.closed
        heard = not (self.paused or self.to_code.closed)
        set_handler(self.selector, self.pipes.line, selectors.EVENT_READ, self._read_code if heard else None)

    def _handle(self, message: Mapping[str, Any]) -> None:
        if "hint" in message:
            hint = next(hint for hint in HINTS.values() if hint == message["hint"])
            space = self.isolation.free_space()
            # One error stands for both.
            self.hint = self.hint or ("inodes" if hint == "disk" and space and space.out_of_inodes else hint)
        elif "done" in message:
            code = int(message["done"])
            if self.session and not self.idle:
                self.idle, self.calls = True, 0
                self._drain()
                self._send_result(exit_code=code, signal_name=None, over=False)
        else:
            # As text: how deep arguments may be nested is for those to say who read them.
            arguments = json.dumps(dict(message["arguments"]))
            self._send({"call": int(message["call"]), "tool": str(message["tool"])[:MAX_NAME], "arguments": arguments})
            self.calls += 1

    def _drain(self) -> None:
        """What was written before a call ended belongs to it."""
        for fd, buffer in ((self.pipes.out, self.out), (self.pipes.err, self.err)):
            for _ in range(64):
                if not self._record(fd, buffer):
                    break

    def _send(self, message: wire.Message, blobs: Sequence[bytes] = ()) -> None:
        self.channel.setblocking(True)
        try:
            wire.send(self.channel, message, blobs)
        except OSError:
            self.over = True
        finally:
            self.channel.setblocking(False)

    def _read_host(self) -> None:
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

    def _check_limits(self) -> None:
        """Is it still within its limits?"""
        now = time.monotonic()
        if "ready" not in self.status or now - self.looked < LOOK_SECONDS:
            return
        self.looked = now
        used = self.isolation.usage(self.pid)
        space = self.isolation.free_space()
        memory = used.memory + (space.used if space else 0)
        self.peak = max(self.peak, memory)
        self.cpu = max(self.cpu, used.cpu_seconds)
        if not self.idle and now - self.called > self.limits["wall_seconds"]:
            self._stop("wall")
        elif used.cpu_seconds > self.limits["cpu_seconds"]:
            self._stop("cpu")
        elif memory > self.limits["memory"] or self.isolation.refused() == "memory":
            # The kernel may have killed but one process, and the others would wait for it.
            self._stop("memory")
        elif self._too_many_processes(used, now):
            self._stop("processes")
        if space and (space.full or space.out_of_inodes):
            self.hint = self.hint or ("inodes" if space.out_of_inodes else "disk")

    def _too_many_processes(self, used: ProcessUsage, now: float) -> bool:
        if used.processes < self.limits["processes"]:
            self.full_since = None
            return False
        self.hint = self.hint or "processes"
        self.full_since = self.full_since or now
        return now - self.full_since > GRACE_SECONDS

    def _stop(self, limit: str) -> None:
        self.limit, self.over = self.limit or limit, True

    def finish(self) -> None:
        """Tell the host how it ended, and leave nothing behind."""
        if "fault" in self.status:
            self._send({"fault": self.status["fault"]})
        else:
            self._send_result(*self._exit_status(self.status.get("ended")), over=True)

    def _exit_status(self, status: int | None) -> tuple[int | None, str | None]:
        """Exit code and signal. Who was stopped has no exit code, whatever it said last."""
        if self.limit or status is None:
            return None, "SIGKILL"
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            self.limit = {int(signal.SIGXCPU): "cpu", int(signal.SIGXFSZ): "file_size"}.get(number)
            named = next((each.name for each in signal.Signals if each == number), f"SIG{number}")
            return None, named
        return os.WEXITSTATUS(status), None

    def _send_result(self, exit_code: int | None, signal_name: str | None, *, over: bool) -> None:
        shortened = self.out.shortened or self.err.shortened
        found = files.collect(self.isolation.work, self.job["collect"], self.limits["disk"]) if over else {}
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
        return self.isolation.peak_memory() or max(self.peak, self.rusage.ru_maxrss * 1024)


def serve(
    channel: socket.socket, isolation: Isolation, kind: type[Supervisor] = Supervisor, init: InitProcess | None = None
) -> None:
    """One run, from the request to the result; `init` where its walls stand already."""
    job, (stdin, *contents) = wire.receive(channel)
    try:
        supervisor = kind(channel, isolation, job)
        supervisor.start(init or InitProcess(isolation), stdin, contents)
        supervisor.watch()
        supervisor.finish()
    except OSError as error:
        wire.send(channel, {"fault": f"the walls could not be built: {error}"})
    finally:
        isolation.clean()
    _hear_out(channel)


def _hear_out(channel: socket.socket) -> None:
    """Read until the host has gone. A socket that is closed with something unread in it breaks at its other end, and the result
    is lost where the host still answers calls and has not read that far."""
    until = time.monotonic() + GRACE_SECONDS
    channel.settimeout(GRACE_SECONDS)
    with suppress(OSError):
        while channel.recv(CHUNK) and time.monotonic() < until:
            pass


def main(arguments: Sequence[str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=os.dup(0)), Isolation(arguments[0]))
    sys.stdout.flush()
