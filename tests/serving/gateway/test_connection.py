"""What a stranger who has no token can do to the server: little."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from journeyman.io import http_server
from journeyman.serving.gateway import app, request
from tests.serving.gateway.test_passing import ask
from tests.support.gateways import Running, gateway
from tests.support.upstream import Upstream

pytestmark = pytest.mark.service

TOKEN = b"a-token-of-ours-0123"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def closed(up: Upstream) -> Iterator[Running]:
    with gateway(up.url, tokens=(TOKEN.decode(),)) as running:
        yield running


@contextmanager
def connected(running: Running) -> Iterator[socket.socket]:
    with socket.create_connection((urlsplit(running.url).hostname, urlsplit(running.url).port), timeout=10) as client:
        yield client


def sent(client: socket.socket, piece: bytes, most: int) -> int:
    """How many bytes could be sent, `most` at most."""
    count = 0
    try:
        while count < most:
            client.sendall(piece)
            count += len(piece)
    except OSError:
        pass
    return count


def is_closed(client: socket.socket) -> bool:
    """Whether the other side closes, whatever it says before."""
    try:
        while client.recv(65_536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"GET / HTTP/1.1\r\n", b"X-A: " + b"a" * 60_000 + b"\r\n"),
        (b"GET / HTTP/1.1\r\nX-A: ", b"a" * 65_536),
        (b"GET /", b"a" * 65_536),
        (
            POST + b"X-Journeyman-Token: " + TOKEN + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
            b"X: " + b"a" * 60_000 + b"\r\n",
        ),
    ],
    ids=["headers", "one header", "address", "trailers"],
)
def test_a_head_without_end_is_cut_off(closed: Running, start: bytes, piece: bytes) -> None:
    with connected(closed) as client:
        client.sendall(start)
        # What the sockets hold between the two sides is a few megabytes.
        assert sent(client, piece, 64 << 20) < 32 << 20
        assert is_closed(client)
    assert ask(closed.url, headers={"x-journeyman-token": TOKEN.decode()})[0] == 200


def test_a_head_of_ordinary_size_is_taken(closed: Running) -> None:
    assert ask(closed.url, headers={"x-journeyman-token": TOKEN.decode(), "x-large": "a" * 50_000})[0] == 200


@pytest.mark.parametrize(
    "start",
    [b"", b"\r\n", b"GET / HTTP/1.1\r\nX-A: 1\r\n", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\n"],
    ids=["nothing", "a blank line", "half a head", "half of the next head"],
)
def test_a_connection_that_asks_nothing_is_closed(closed: Running, monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(app, "HEAD_SECONDS", 0.3)
    with connected(closed) as client:
        client.sendall(start)
        assert is_closed(client)


@pytest.mark.parametrize("begun", [b"", b"{"], ids=["never begins", "stops"])
def test_a_body_that_does_not_come_is_not_waited_for(closed: Running, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(request, "BODY_SECONDS", 0.3)
    with connected(closed) as client:
        client.sendall(POST + b"X-Journeyman-Token: " + TOKEN + b"\r\nContent-Length: 100\r\n\r\n" + begun)
        client.settimeout(5)
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_stalls_is_given_up(closed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (app.HEAD_SECONDS, http_server.STALLED_SECONDS) == (10, 10)
    monkeypatch.setattr(http_server, "STALLED_SECONDS", 0.4)
    with connected(closed) as client:
        client.settimeout(5)
        client.sendall(POST + b"X-Journeyman-Token: " + TOKEN + b"\r\nContent-Length: 100\r\n\r\n")
        # As long as something comes, it is waited for.
        for _ in range(4):
            client.sendall(b"{")
            time.sleep(0.2)
        assert client.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_body_that_goes_on_after_the_answer_is_cut_off(closed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LINGER_SECONDS", 0.3)
    with connected(closed) as client:
        client.sendall(POST + b"Content-Length: 1000000\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 401 ")
        deadline = time.monotonic() + 5
        while sent(client, b"a", 1) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert time.monotonic() < deadline


def test_a_connection_whose_body_ended_after_the_answer_is_used_again(closed: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "LINGER_SECONDS", 0.3)
    with connected(closed) as client:
        for _ in range(2):
            client.sendall(POST + b"Content-Length: 4\r\n\r\n")
            assert client.recv(1000).startswith(b"HTTP/1.1 401 ")
            client.sendall(b"body")
            time.sleep(0.5)
