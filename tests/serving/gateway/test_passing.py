"""What goes through comes out as it went in, and is recorded."""

import gzip
import http.client
import json
import socket
import time
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.tracing.wire.dialects import Dialect
from tests.support.examples import examples
from tests.support.gateways import Running, gateway, quick
from tests.support.upstream import EVENTS, JSON, Asked, Reply, Upstream, events, failed, ok

pytestmark = pytest.mark.service

CHAT = "/v1/chat/completions"
BODY = b'{"model": "m",  "messages": [], "unknown": {"\\u00e9": 1e3}}'


def ask(
    url: str, path: str = CHAT, body: bytes | None = BODY, method: str = "POST", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    with closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)) as connection:
        connection.request(method, path, body, {"content-type": "application/json", **(headers or {})})
        response = connection.getresponse()
        return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()


@examples(one_fixture=True)
@given(
    request=st.binary(max_size=300),
    pieces=st.lists(st.binary(min_size=1, max_size=200), max_size=5),
    path=st.sampled_from([CHAT, "/v1/responses", "/v1/embeddings", "/v1/messages", "/v1/threads/x%2Fy/runs", "/v1/files"]),
    status=st.sampled_from([200, 201, 400, 404, 422]),
    sized=st.booleans(),
)
def test_bytes_are_untouched_both_ways_and_in_the_record(
    running: Running, up: Upstream, request: bytes, pieces: list[bytes], path: str, status: int, sized: bool
) -> None:
    body = b"".join(pieces)
    length = ((b"content-length", str(len(body)).encode()),) if sized else ()
    up.replies.append(Reply(status=status, headers=(EVENTS, *length), pieces=tuple(pieces)))
    before = len(running.memory.exchanges)
    given_status, _, answer = ask(running.url, path, request)
    assert (given_status, answer) == (status, body)
    assert (up.asked[-1].path, up.asked[-1].body) == (path, request)
    if path in (CHAT, "/v1/responses", "/v1/embeddings", "/v1/messages"):
        recorded = running.memory.some(before + 1)[-1]
        assert (recorded.request, recorded.response, recorded.status) == (request, body, status)


def test_headers_pass_but_those_of_a_connection_and_ours(running: Running, up: Upstream) -> None:
    up.replies.append(Reply(headers=(JSON, (b"x-ratelimit-remaining", b"7"), (b"set-cookie", b"a=b"), (b"date", b"then"))))
    sent = {
        "X-Custom": "caf\u00e9", "OpenAI-Beta": "x=1", "Cookie": "journeyman=secret", "Connection": "x-mine", "X-Mine": "1",
        "X-Journeyman-Task": "t1", "X-Journeyman-Other": "o", "Accept-Encoding": "gzip", "User-Agent": "me/1",
    }  # fmt: skip
    _, headers, _ = ask(running.url, f"{CHAT}?a=%20b&c", headers=sent)
    asked = up.asked[0]
    assert asked.query == "a=%20b&c"
    assert asked.header("user-agent") == "me/1"
    assert asked.header("openai-beta") == "x=1"
    assert asked.header("accept-encoding") == "identity"
    assert not {"cookie", "x-mine", "x-journeyman-task", "x-journeyman-other"} & {name.decode() for name, _ in asked.headers}
    assert asked.header("host") == urlsplit(up.url).netloc
    assert headers["x-ratelimit-remaining"] == "7"
    assert headers["date"] == "then"
    assert headers["x-journeyman-upstream"] == "up"
    assert headers["x-journeyman-request-id"] == running.memory.one().id
    assert "set-cookie" not in headers


def test_labels_are_recorded(running: Running) -> None:
    names = ("task", "session", "agent", "domain", "parent", "candidate", "trace")
    ask(running.url, headers={f"x-journeyman-{name}": f"the {name}" for name in names})
    recorded = running.memory.one()
    assert recorded.labels == {name: f"the {name}" for name in names}
    assert recorded.dialect is Dialect.CHAT
    assert recorded.upstream == "up"
    assert recorded.error is None


def test_a_piece_is_passed_on_at_once(running: Running, up: Upstream) -> None:
    up.replies.append(events("one", "two", "[DONE]", pause=0.4))
    with closing(http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=20)) as connection:
        began = time.monotonic()
        connection.request("POST", CHAT, BODY)
        response = connection.getresponse()
        assert response.read1() == b"data: one\n\n"
        assert time.monotonic() - began < 0.35
        assert response.read() == b"data: two\n\ndata: [DONE]\n\n"
    recorded = running.memory.one()
    assert recorded.streamed
    assert recorded.first_byte_seconds is not None
    assert recorded.first_byte_seconds < 0.35 < 0.8 <= recorded.seconds
    assert recorded.response == b"data: one\n\ndata: two\n\ndata: [DONE]\n\n"


def test_a_request_that_came_compressed_passes_so_and_is_recorded_plain(running: Running, up: Upstream) -> None:
    up.replies.append(Reply(headers=(JSON, (b"content-encoding", b"gzip")), pieces=(gzip.compress(b'{"a": 1}'),)))
    _, headers, answer = ask(running.url, body=gzip.compress(BODY), headers={"content-encoding": "gzip"})
    assert gzip.decompress(up.asked[0].body) == BODY
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(answer) == b'{"a": 1}'
    assert (running.memory.one().request, running.memory.one().response) == (BODY, b'{"a": 1}')


def test_a_record_is_bounded_and_says_so(up: Upstream) -> None:
    up.replies.append(Reply(pieces=(b"x" * 700, b"y" * 700)))
    with gateway(up.url, record_limit=1000) as running:
        assert ask(running.url)[2] == b"x" * 700 + b"y" * 700
        recorded = running.memory.one()
    assert recorded.response == b"x" * 700 + b"y" * 300
    assert recorded.error == "the record is cut after 1000 of 1400 bytes"


def test_a_body_that_is_too_large_is_refused(up: Upstream) -> None:
    with gateway(up.url, request_limit=2 << 20) as running:
        status, _, answer = ask(running.url, body=b"x" * ((2 << 20) + 1))
        assert status == 413
        assert "serve.max_request_mb" in json.loads(answer)["error"]["message"]
        assert ask(running.url, body=b"x" * (2 << 20))[0] == 200
    assert [len(each.body) for each in up.asked] == [2 << 20]


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_what_an_upstream_says_of_an_error_is_passed_on_as_it_is(running: Running, up: Upstream, status: int) -> None:
    up.replies.append(failed(status, None, (b"retry-after", b"17"), (b"x-request-id", b"r1")))
    said, headers, body = ask(running.url)
    assert (said, headers["retry-after"], headers["x-request-id"]) == (status, "17", "r1")
    assert json.loads(body)["error"]["message"] == "as the upstream says"
    assert (running.memory.one().status, running.memory.one().error) == (status, None)


def test_a_cut_is_passed_on_as_a_cut_and_recorded(running: Running, up: Upstream) -> None:
    up.replies.append(events("one", "two", cut=True))
    with closing(http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=20)) as connection:
        connection.request("POST", CHAT, BODY)
        response = connection.getresponse()
        with pytest.raises(http.client.IncompleteRead) as caught:
            response.read()
    assert caught.value.partial == b"data: one\n\ndata: two\n\n"
    recorded = running.memory.one()
    assert (recorded.status, recorded.response) == (200, b"data: one\n\ndata: two\n\n")
    assert recorded.error is not None
    assert recorded.error.startswith("the upstream up broke off")


@pytest.mark.parametrize("after", [0, 1])
def test_a_client_that_hangs_up_ends_the_upstreams_work_and_is_recorded(running: Running, up: Upstream, after: int) -> None:
    """Before the answer has begun, and in the middle of it."""
    up.replies.append(events("one", "two", wait=0 if after else 3.0, pause=3.0))
    address = urlsplit(running.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(BODY)}\r\n\r\n".encode() + BODY)
        while after and b"one" not in connection.recv(4096):
            pass
        deadline = time.monotonic() + 5
        while not up.asked and time.monotonic() < deadline:
            time.sleep(0.005)
    assert up.abandoned.wait(2)
    recorded = running.memory.one()
    assert recorded.error == "the client hung up"
    assert (recorded.status, recorded.response) == ((200, b"data: one\n\n") if after else (None, b""))
    assert 'status="499"' in running.gateway.metrics.text()


def test_unknown_paths_and_methods_pass_and_are_not_recorded(running: Running, up: Upstream) -> None:
    for method, path in [("GET", "/v1/models"), ("DELETE", "/v1/files/f%20x?a=1"), ("GET", "/v1/chat/completions/c1")]:
        assert ask(running.url, path, None, method)[0] == 200
    assert [(each.method, each.path) for each in up.asked] == [
        ("GET", "/v1/models"), ("DELETE", "/v1/files/f%20x"), ("GET", "/v1/chat/completions/c1"),
    ]  # fmt: skip
    assert running.memory.exchanges == []


@pytest.mark.parametrize(
    "path", ["/v1/../admin", "/v1/x/%2e%2e/%2E%2e/admin", "/v1/..%2fadmin", "/v1/..", "/v1/.\\x", "/v1/..;a/x", "/v1/.%3B/x"]
)
def test_a_path_cannot_climb_out_of_the_upstreams_address(running: Running, up: Upstream, path: str) -> None:
    assert ask(running.url, path)[0] == 400
    assert up.asked == []


def test_an_answer_is_no_page_of_ours(running: Running, up: Upstream) -> None:
    page = b"<script>fetch('/traces')</script>"
    up.replies.append(Reply(headers=((b"content-type", b"text/html"),), pieces=(page,)))
    _, headers, body = ask(running.url, "/v1/files/x/content", None, "GET")
    assert (body, headers["content-security-policy"]) == (page, "sandbox")


def test_a_redirect_is_passed_on_and_not_followed(running: Running, up: Upstream, other: Upstream) -> None:
    up.replies.append(Reply(status=307, headers=((b"location", f"{other.url}/chat/completions".encode()),), pieces=()))
    status, headers, _ = ask(running.url, headers={"authorization": "Bearer sk-secret"})
    assert (status, headers["location"]) == (307, f"{other.url}/chat/completions")
    assert other.asked == []


def test_connections_are_used_again_whatever_came_before(running: Running, up: Upstream) -> None:
    with closing(http.client.HTTPConnection(urlsplit(running.url).netloc, timeout=20)) as connection:
        for status in (200, 400, 503, 200):
            up.replies.append(failed(status))
            connection.request("POST", CHAT, BODY)
            response = connection.getresponse()
            assert (response.status, response.will_close) == (status, False)
            response.read()


def test_many_at_once_get_their_own_answers(running: Running, up: Upstream) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def echoed(asked: Asked) -> Reply:
        return ok({"said": json.loads(asked.body)["n"]}, wait=0.02)

    up.answer = echoed
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda n: json.loads(ask(running.url, body=json.dumps({"n": n}).encode())[2]), range(100)))
    assert [each["said"] for each in answers] == list(range(100))
    assert {json.loads(each.request)["n"] for each in running.memory.some(100)} == set(range(100))
    assert all(json.loads(each.request)["n"] == json.loads(each.response)["said"] for each in running.memory.exchanges)


def test_nothing_is_recorded_where_that_is_not_wanted(up: Upstream) -> None:
    with gateway({"up": quick(up.url)}, record=False) as running:
        assert ask(running.url)[0] == 200
        assert ask(running.url, "/v1/traces")[0] == 404
    assert running.memory.exchanges == []
