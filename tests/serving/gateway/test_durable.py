"""With `record.durable`, whoever has read the end of an answer knows that it is kept."""

import http.client
import json
import os
import signal
import threading
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import StoreError
from journeyman.serving.gateway import forwarding
from journeyman.stores.traces import open_traces
from tests.serving.gateway.test_passing import BODY, CHAT, ask
from tests.serving.gateway.test_process import COMPLETION, served, stopped
from tests.support.gateways import gateway
from tests.support.upstream import Asked, Reply, Upstream, events, ok

pytestmark = pytest.mark.service

STREAM = [
    json.dumps({"id": "c", "model": "m", "choices": [{"index": 0, "delta": {"content": piece}, "finish_reason": None}]})
    for piece in ("In ", "Oslo.")
]


def _answer(asked: Asked) -> Reply:
    body = json.loads(asked.body)
    number = body["messages"][0]["content"]
    if body.get("stream"):
        return events(*STREAM, "[DONE]")
    said = {"role": "assistant", "content": f"answer {number}"}
    return ok({**COMPLETION, "id": f"c{number}", "choices": [{"index": 0, "finish_reason": "stop", "message": said}]})


def _chat(number: int, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": str(number)}], **more}).encode()


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_chat_whose_answer_was_read_is_lost_by_kill_9(tmp_path: Path, up: Upstream) -> None:
    up.answer = _answer
    read: list[int] = []
    with served(tmp_path, "--upstream", up.url, "--no-pages", "--durable") as (url, process):

        def converse(first: int) -> None:
            for number in range(first, 10_000, 4):
                try:
                    status, _, body = ask(url, body=_chat(number))
                except (OSError, http.client.HTTPException):
                    return
                if status == 200 and json.loads(body)["choices"][0]["message"]["content"] == f"answer {number}":
                    read.append(number)

        threads = [threading.Thread(target=converse, args=(first,)) for first in range(4)]
        for thread in threads:
            thread.start()
        deadline = time.monotonic() + 20
        while len(read) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
        for pid in (*_children(process.pid), process.pid):
            os.kill(pid, signal.SIGKILL)
        for thread in threads:
            thread.join(20)
    assert len(read) >= 40
    # What had not reached the store stands in the spill file, and is stored by whoever starts next.
    with served(tmp_path, "--upstream", up.url, "--no-pages") as (_, process):
        assert stopped(process) == 0
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        kept = {trace.query for trace in store.traces()}
    assert {str(number) for number in read} <= kept


@pytest.mark.parametrize("streamed", [False, True])
def test_the_end_of_an_answer_waits_for_its_record(up: Upstream, streamed: bool) -> None:
    up.answer = _answer
    with gateway(up.url, durable=True) as running:
        running.memory.keeping = kept = Future[None]()
        got = bytearray()
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)
        connection.request("POST", CHAT, _chat(1, stream=streamed), {"content-type": "application/json"})
        response = connection.getresponse()
        reader = threading.Thread(target=lambda: got.extend(response.read()))
        reader.start()
        assert len(running.memory.some(1)) == 1
        time.sleep(0.2)
        assert reader.is_alive()
        assert b"[DONE]" not in got
        kept.set_result(None)
        reader.join(10)
        connection.close()
        assert bytes(got).endswith(b"data: [DONE]\n\n") if streamed else json.loads(got)["id"] == "c1"
        assert len(running.memory.exchanges) == 1
        assert b"undurable_total 0.0" in ask(running.url, "/metrics", None, "GET")[2]


def test_a_stream_flows_while_it_is_not_at_its_end(up: Upstream) -> None:
    up.replies.append(events(*STREAM, "[DONE]", pause=0.3))
    with gateway(up.url, durable=True) as running:
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)
        connection.request("POST", CHAT, _chat(1, stream=True), {"content-type": "application/json"})
        response = connection.getresponse()
        first = response.read1()
        assert b"In " in first
        assert b"Oslo" not in first
        assert not running.memory.exchanges
        assert response.read().endswith(b"data: [DONE]\n\n")
        connection.close()


def test_an_answer_does_not_wait_for_a_store_without_end(up: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    up.answer = _answer
    monkeypatch.setattr(forwarding, "DURABLE_SECONDS", 0.2)
    with gateway(up.url, durable=True) as running:
        running.memory.keeping = Future[None]()
        assert ask(running.url, body=_chat(1))[0] == 200
        running.memory.keeping = refused = Future[None]()
        refused.set_exception(StoreError("no room"))
        assert ask(running.url, body=_chat(2))[0] == 200
        assert b"undurable_total 2.0" in ask(running.url, "/metrics", None, "GET")[2]


def test_a_cut_is_passed_on_with_all_that_came_before_it(up: Upstream) -> None:
    up.replies.append(Reply(pieces=(b'{"id": ', b'"c1"'), pause=0.1, cut=True))
    with gateway(up.url, durable=True) as running:
        connection = http.client.HTTPConnection(running.url.removeprefix("http://"), timeout=10)
        connection.request("POST", CHAT, BODY, {"content-type": "application/json"})
        with pytest.raises(http.client.IncompleteRead) as cut:
            connection.getresponse().read()
        connection.close()
        assert cut.value.partial == b'{"id": "c1"'
        assert running.memory.one().error is not None
