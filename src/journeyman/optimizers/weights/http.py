"""A little HTTP, for servers of models: JSON there, JSON or a line of it at a time back, and files of many gigabytes there."""

import json
import select
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any

CHUNK = 2**20
"""Bytes of a file sent at a time."""
LONGEST = 2**24
"""Bytes of an answer, or of one line of it."""


class ModelServerUnreachable(Exception):
    """Nobody answers, or the connection broke; says why in a few words."""


class RequestRefused(Exception):
    """The server answered, and said no."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said or f"status {status}")
        self.status = status
        self.said = said
        """Its own words, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """One server. Each call has a connection of its own."""

    host: str
    port: int
    path: str = ""
    """Before every path that is asked for, as `/ollama`."""
    tls: bool = False
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent along: here stand secrets."""
    timeout: float = 30.0
    """Seconds in which something must come, unless a call says otherwise."""

    @property
    def url(self) -> str:
        """As it is typed, without secrets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"

    def call(self, method: str, path: str, body: Any = None, *, timeout: float | None = None) -> Any:
        """The answer's JSON, `None` where it has none.

        Raises:
            Unreachable: There is no answer.
            Refused: Its status is not one of success.
        """
        content = None if body is None else json.dumps(body).encode()
        with self._answer(method, path, content, timeout=timeout) as answer:
            text = answer.read(LONGEST)
        with suppress(ValueError):
            return json.loads(text)
        return None

    def lines(self, method: str, path: str, body: Any, *, timeout: float | None = None) -> Iterator[Mapping[str, Any]]:
        """The objects of an answer in JSON lines, as they come. Raises like `call`."""
        with self._answer(method, path, json.dumps(body).encode(), timeout=timeout) as answer:
            while line := answer.readline(LONGEST):
                with suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict):
                        yield found

    def send(self, path: str, file: Path, sent: Callable[[int], None], *, timeout: float | None = None) -> None:
        """POST a file; `sent` is told how many bytes have gone so far. Raises like `call`."""

        def write(connection: HTTPConnection) -> None:
            self._open(connection, "POST", path, file.stat().st_size, "application/octet-stream")
            done = 0
            with file.open("rb") as content:
                while (chunk := content.read(CHUNK)) and not self._answers_early(connection):
                    connection.send(chunk)
                    done += len(chunk)
                    sent(done)

        with self._answered(write, timeout) as answer:
            answer.read(LONGEST)

    @contextmanager
    def _answer(self, method: str, path: str, content: bytes | None, *, timeout: float | None) -> Iterator[HTTPResponse]:
        def write(connection: HTTPConnection) -> None:
            self._open(connection, method, path, len(content or b""), "application/json")
            if content:
                connection.send(content)

        with self._answered(write, timeout) as answer:
            yield answer

    def _open(self, connection: HTTPConnection, method: str, path: str, length: int, kind: str) -> None:
        connection.putrequest(method, self.path + path)
        for name, value in {**self.headers, "Content-Type": kind, "Content-Length": str(length)}.items():
            connection.putheader(name, value)
        connection.endheaders()

    def _answers_early(self, connection: HTTPConnection) -> bool:
        """Whether the server says no in the middle of a file. Through TLS that cannot be seen: it speaks for itself."""
        return not self.tls and bool(select.select([connection.sock], [], [], 0)[0])

    @contextmanager
    def _answered(self, write: Callable[[HTTPConnection], None], timeout: float | None) -> Iterator[HTTPResponse]:
        made = HTTPSConnection if self.tls else HTTPConnection
        with closing(made(self.host, self.port, timeout=timeout or self.timeout)) as connection:
            try:
                # A server that hangs up in the middle of a file may have said why: that is still there to be read.
                with suppress(BrokenPipeError, ConnectionResetError):
                    write(connection)
                answer = connection.getresponse()
                if not 200 <= answer.status < 300:
                    raise RequestRefused(answer.status, _said(answer.read(LONGEST)))
                yield answer
            except TimeoutError:
                raise ModelServerUnreachable(f"nothing came for {timeout or self.timeout:g} s") from None
            except (OSError, HTTPException, ValueError) as error:
                raise ModelServerUnreachable(_why(error)) from None


def _said(text: bytes) -> str:
    """What a server gives as its reason: the `error` of Ollama, or the `error.message` of OpenAI's protocol, or its words."""
    spoken = text.decode("utf-8", "replace").strip()
    with suppress(ValueError, AttributeError):
        found = json.loads(text).get("error", "")
        spoken = str(found.get("message", found) if isinstance(found, dict) else found)
    return " ".join(spoken.split())[:300]


def _why(error: Exception) -> str:
    if isinstance(error, socket.gaierror):
        return "there is no such host"
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
