"""`journeyman serve` as a process."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from journeyman.stores.alerts import open_alerts
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query
from tests.serving.gateway.test_passing import BODY, CHAT, ask
from tests.support.processes import below
from tests.support.upstream import Upstream, events, ok
from tests.tracing.otel import made

pytestmark = pytest.mark.service
KEY = "sk-proj-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGH"
A_WHILE_AGO = datetime.now(UTC) - timedelta(hours=1)
COMPLETION = {
    "id": "c1", "object": "chat.completion", "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "an answer to find"}}],
}  # fmt: skip


@contextmanager
def served(folder: Path, *arguments: str, command: str = "serve", **env: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    words = [sys.executable, "-m", "journeyman", command, "--port", "0", "--json", *arguments]
    log = (folder / "stderr").open("w")
    with (
        log,
        subprocess.Popen(
            words, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **env}
        ) as process,
    ):
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line, (folder / "stderr").read_text()
            yield json.loads(line)["url"], process
        finally:
            process.kill()
            process.wait(30)


def stopped(process: "subprocess.Popen[str]") -> int:
    process.send_signal(signal.SIGTERM)
    return process.wait(40)


def until(true: Callable[[], object], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.05)
    return False


def stored(url: str) -> int:
    return int(json.loads(ask(url, "/health", None, "GET")[2])["intake"]["stored"])


def test_what_passed_is_in_the_store_without_a_key_and_on_the_page(tmp_path: Path, up: Upstream) -> None:
    up.answer = lambda asked: ok(COMPLETION)
    with served(tmp_path, "--upstream", up.url) as (url, process):
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": f"my key is {KEY}, keep it"}]}).encode()
        assert ask(url, body=body, headers={"authorization": f"Bearer {KEY}"})[0] == 200
        assert up.asked[0].body == body
        assert until(lambda: stored(url) == 1)
        status, _, page = ask(url, "/traces", None, "GET")
        assert status == 200
        assert b"my key is" in page
        assert stopped(process) == 0
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"my key is" in kept or b"answer" in kept
    assert KEY.encode() not in kept


def test_told_to_stop_it_lets_an_answer_end_and_stores_what_passed(tmp_path: Path, up: Upstream) -> None:
    up.replies.append(events("one", "two", "three", pause=0.7))
    with served(tmp_path, "--upstream", up.url, "--no-pages") as (url, process):
        got: list[bytes] = []
        thread = threading.Thread(target=lambda: got.append(ask(url)[2]))
        thread.start()
        assert until(lambda: up.asked)
        time.sleep(0.2)
        assert stopped(process) == 0
        thread.join(10)
        assert got == [b"data: one\n\ndata: two\n\ndata: three\n\n"]
        with pytest.raises(OSError, match="refused"):
            ask(url)
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        assert store.count(Query()) == 1


def test_answers_flow_while_the_store_is_locked_and_are_stored_after(tmp_path: Path, up: Upstream) -> None:
    up.answer = lambda asked: ok(COMPLETION)
    with served(tmp_path, "--upstream", up.url) as (url, _):
        ask(url)
        assert until(lambda: stored(url) == 1)
        with closing(sqlite3.connect(tmp_path / ".journeyman" / "journeyman.db")) as other:
            other.execute("begin immediate")
            for number in range(20):
                body = BODY.replace(b"[]", json.dumps([{"role": "user", "content": f"n{number}"}]).encode())
                began = time.monotonic()
                assert ask(url, body=body)[0] == 200
                assert time.monotonic() - began < 2
            time.sleep(0.5)
            assert stored(url) == 1
            other.rollback()
        assert until(lambda: stored(url) >= 21)


@pytest.mark.parametrize("order", [("/v1/traces", "/v1/logs"), ("/v1/logs", "/v1/traces")])
def test_what_was_said_in_logs_joins_the_call_that_it_was_said_in(tmp_path: Path, up: Upstream, order: tuple[str, str]) -> None:
    silent = {name: each for name, each in made.chat("", "").items() if not name.endswith("messages")}
    asked = made.record(1, "gen_ai.user.message", {"role": "user", "content": "Where is order 7?"})
    said = made.record(2, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"content": "In Oslo."}})
    sent = {"/v1/traces": made.request([made.span(1, silent)]), "/v1/logs": made.logs([asked, said])}
    with served(tmp_path, "--upstream", up.url) as (url, _):
        for path in order:
            assert ask(url, path, json.dumps(sent[path]).encode(), headers={"content-type": "application/json"})[0] == 200
            time.sleep(0.5)
        assert until(lambda: b"Where is order 7?" in ask(url, "/traces", None, "GET")[2])
        assert b"In Oslo." in ask(url, f"/traces/{made.TRACE}", None, "GET")[2]
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        (trace,) = store.traces()
    assert [(call.messages[0].text, call.reply) for call in trace.calls] == [("Where is order 7?", "In Oslo.")]


def test_when_the_recording_process_dies_answers_flow_and_another_records(tmp_path: Path, up: Upstream) -> None:
    up.answer = lambda asked: ok(COMPLETION)
    with served(tmp_path, "--upstream", up.url, "--no-pages") as (url, process):
        ask(url)
        assert until(lambda: stored(url) == 1)
        (recorder,) = below(process.pid)
        os.kill(recorder, signal.SIGKILL)
        assert until(lambda: ask(url)[0] == 200 and stored(url) >= 2, 30)
        assert stopped(process) == 0


def test_what_records_watches_too_without_what_only_releases_need(tmp_path: Path, up: Upstream) -> None:
    up.answer = lambda asked: ok(COMPLETION)
    (tmp_path / "journeyman.toml").write_text('[alerts]\nevery = "1s"\n')
    with served(tmp_path, "--upstream", up.url, "--no-pages") as (url, process):
        ask(url)
        assert until(lambda: stored(url) == 1)
        with open_alerts(tmp_path / ".journeyman" / "journeyman.db") as kept:
            assert until(lambda: {"recorder", "serve"} <= {each.process for each in kept.samples(A_WHILE_AGO)}, 30)
        # Else whoever is to be told that no monitor is there any more would be told so for ever.
        assert b"\njourneyman_monitor_age_seconds " in ask(url, "/metrics", None, "GET")[2]
        (recorder,) = below(process.pid)
        for pid in (recorder, process.pid):
            loaded = Path(f"/proc/{pid}/maps").read_text()
            assert "numpy" not in loaded
            assert "psycopg" not in loaded
        assert stopped(process) == 0
    assert "Traceback" not in (tmp_path / "stderr").read_text()


def test_where_nothing_is_recorded_the_monitor_is_a_process_of_its_own(tmp_path: Path, up: Upstream) -> None:
    with served(tmp_path, "--upstream", up.url, "--no-pages", "--no-record") as (_, process):
        assert until(lambda: [pid for pid in below(process.pid) if b"monitor" in Path(f"/proc/{pid}/cmdline").read_bytes()])
        assert stopped(process) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "0.0.0.0"], "name --token-env"),
        (["--host", "0.0.0.0", "--token-env", "SHORT"], "too short"),
        (["--upstream", "nonsense"], "should be an address such as"),
    ],
)
def test_what_is_not_safe_or_cannot_be_meant_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    command = [sys.executable, "-m", "journeyman", "serve", "--port", "0", *arguments]
    ended = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "SHORT": "abc"}, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert said in ended.stderr


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        command = [sys.executable, "-m", "journeyman", "serve", "--port", str(taken.getsockname()[1])]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert "choose another --port" in ended.stderr


def test_settings_of_the_file_and_a_token(tmp_path: Path, up: Upstream) -> None:
    (tmp_path / "journeyman.toml").write_text(f'[upstreams.mine]\nbase_url = "{up.url}"\nkey_env = "MINE"\n')
    token = "a-token-of-the-gateway"
    with served(tmp_path, "--token-env", "TOKEN", "--no-record", MINE="sk-ours", TOKEN=token) as (url, process):
        assert urlsplit(url).hostname == "127.0.0.1"
        assert ask(url, CHAT)[0] == 401
        assert ask(url, CHAT, headers={"authorization": f"Bearer {token}"})[0] == 200
        assert ask(url, "/", None, "GET")[0] in (302, 303, 307, 401)
        assert stopped(process) == 0
    assert up.asked[0].header("authorization") == "Bearer sk-ours"
    said = (tmp_path / "stderr").read_text()
    assert "is sent the key in MINE" in said
    assert said.endswith("journeyman: stopped\n")
    assert token not in said
    assert "sk-ours" not in said
