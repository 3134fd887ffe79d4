"""What the code service answers."""

import base64
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest

from journeyman.sandbox.base import Limits
from tests.support.code_service import Running, eventually, in_thread

pytestmark = pytest.mark.service

TOKENS = ("a-token-of-the-first-one", "a-token-of-the-second-one")
HEAD = b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with in_thread(max_request=100_000, request_seconds=1.0, most=Limits(wall_seconds=30.0)) as running:
        yield running


def test_a_program_goes_in_and_all_that_happened_comes_back(running: Running) -> None:
    blob = bytes(range(256))
    answer = running.post(
        "/execute",
        {
            "code": "import sys\nprint(sys.argv[1:], sys.stdin.read(), open('in.bin','rb').read() == bytes(range(256)))\n"
            "open('out.txt','w').write('né'); open('out.bin','wb').write(b'\\xff'); sys.exit(3)",
            "files": {"in.bin": {"base64": base64.b64encode(blob).decode()}},
            "stdin": "hello",
            "arguments": ["-x", "1"],
            "collect": ["out.*"],
        },
    )
    said = answer.json()
    assert answer.status_code == 200
    assert said["stdout"] == "['-x', '1'] hello True\n"
    assert (said["ok"], said["exit_code"], said["signal"], said["limit"]) == (False, 3, None, None)
    assert said["files"] == {"out.txt": "né", "out.bin": {"base64": "/w=="}}
    assert said["level"]["name"] == "none"
    assert said["wall_seconds"] > 0


@pytest.mark.parametrize(("value", "ok"), [(1, True), (2, False)])
def test_a_test_file_finds_the_code_as_solution(running: Running, value: int, ok: bool) -> None:
    body = {"code": f"def f(): return {value}", "test": "from solution import f\ndef test_f(): assert f() == 1"}
    assert running.post("/execute", body).json()["ok"] is ok


def test_every_bad_field_is_named_at_once(running: Running) -> None:
    body = {
        "cod": "1",
        "language": "ruby",
        "test": "1",
        "stdin": {"base64": "!"},
        "files": {"../up": "", "/etc/x": "", "solution.py": 7},
        "limits": {"memory": -1, "wall_seconds": 31, "cpu_seconds": "many"},
        "arguments": [1],
        "tools": [{"name": "no name"}],
    }
    answer = running.post("/execute", body)
    assert answer.status_code == 422
    named = {fault.split()[0] for fault in answer.json()["faults"]}
    assert named == {
        "code",
        "cod",
        "language",
        "stdin",
        "files.../up",
        "files./etc/x",
        "files.solution.py",
        "limits.memory",
        "limits.wall_seconds",
        "limits.cpu_seconds",
        "arguments.0",
        "tools.0.name",
    }
    assert "limits.wall_seconds should be at most 30 on this service" in answer.json()["faults"]
    assert "code is missing" in answer.json()["error"]


def test_a_limit_that_is_not_asked_for_stays_below_the_services_bound(running: Running) -> None:
    with in_thread(most=Limits(wall_seconds=0.5)) as strict:
        said = strict.post("/execute", {"code": "while True: pass"}).json()
    assert said["limit"] == "wall"


@pytest.mark.parametrize("announced", [True, False], ids=["by its length", "piece by piece"])
def test_a_body_that_is_too_large_is_refused_while_it_is_read(running: Running, announced: bool) -> None:
    body = b'{"code": "' + b"#" * 150_000 + b'"}'
    content: Any = body if announced else (body[i : i + 1000] for i in range(0, len(body), 1000))
    with httpx2.Client() as client:
        headers = {"content-type": "application/json"}
        assert client.post(running.url + "/execute", content=content, headers=headers).status_code == 413
        assert client.get(running.url + "/health").status_code == 200


def test_an_endless_body_is_not_read_to_the_end(running: Running) -> None:
    with running.connect() as line:
        line.sendall(HEAD + b"99999999999\r\n\r\n")
        sent = 0
        with suppress(OSError):
            while sent < 100_000_000:
                sent += line.send(b"#" * 65536)
        assert sent < 20_000_000


def test_a_body_that_does_not_arrive_is_not_waited_for(running: Running) -> None:
    with running.connect() as line:
        line.sendall(HEAD + b"100\r\n\r\n{")
        assert line.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_a_web_page_cannot_ask(running: Running) -> None:
    plain = httpx2.post(running.url + "/execute", content='{"code": "1"}', headers={"content-type": "text/plain"})
    assert plain.status_code == 415
    assert running.post("/execute", {"code": "1"}, headers={"host": "rebound.example:80"}).status_code == 421


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/nowhere", 404, "there is no /nowhere here; code is run by POST /execute"),
        ("/execute", 405, "/execute cannot be asked by GET"),
    ],
)
def test_an_address_that_is_none_is_a_404_or_405_and_says_so_in_json(
    running: Running, path: str, status: int, sentence: str
) -> None:
    answer = running.get(path)
    assert (answer.status_code, answer.json()) == (status, {"error": sentence})
    assert status == 404 or answer.headers["Allow"] == "POST"


def test_a_full_queue_is_a_503_that_says_when_to_come_back() -> None:
    with in_thread(concurrency=1, queue=1) as running:
        running.ask()
        running.ask()
        assert eventually(lambda: running.service.gate.waiting == 1)
        answer = running.post("/execute", {"code": "1"})
        assert answer.status_code == 503
        assert 1 <= int(answer.headers["retry-after"]) <= 30
        assert 'rejected_total{reason="queue_full"} 1' in running.service.metrics.text()


def test_nobody_waits_for_a_turn_for_ever() -> None:
    with in_thread(concurrency=1, queue_seconds=0.2) as running:
        running.ask()
        assert eventually(lambda: running.service.gate.running == 1)
        answer = running.post("/execute", {"code": "1"})
        assert answer.status_code == 503
        assert "no turn came" in answer.json()["error"]


def test_one_client_cannot_take_what_is_there_for_all() -> None:
    first, second = ({"authorization": f"Bearer {token}"} for token in TOKENS)
    with in_thread(per_client=1, tokens=TOKENS) as running:
        line = running.ask(token=TOKENS[0])
        assert eventually(lambda: running.service.gate.running == 1)
        refused = running.post("/execute", {"code": "1"}, headers=first)
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        assert running.post("/execute", {"code": "1"}, headers=second).json()["ok"]
        line.close()
        assert eventually(lambda: running.service.gate.empty)
        assert running.post("/execute", {"code": "1"}, headers=first).json()["ok"]


@pytest.mark.parametrize("given", ["", "Bearer wrong", f"Basic {TOKENS[0]}", f"Bearer {TOKENS[0]}x", "Bearer né"])
def test_without_a_known_token_nothing_is_told_but_health(given: str) -> None:
    with in_thread(tokens=TOKENS) as running:
        headers = {"authorization": given.encode()} if given else {}
        for answer in (running.post("/execute", {"code": "1"}, headers=headers), running.get("/metrics", headers=headers)):
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        assert running.get("/health").json()["ready"] is True


def test_a_caller_that_hangs_up_ends_its_run() -> None:
    with in_thread(concurrency=1) as running:
        runs, waits = running.ask(), running.ask()
        assert eventually(lambda: running.service.gate.waiting == 1)
        waits.close()
        assert eventually(lambda: running.service.gate.waiting == 0)
        runs.close()
        assert eventually(lambda: running.service.gate.empty)
        assert running.post("/execute", {"code": "print(1)"}).json()["stdout"] == "1\n"
        assert 'executions_total{language="python",outcome="abandoned"} 1' in running.service.metrics.text()


def test_bodies_in_memory_are_bounded_all_together() -> None:
    with in_thread(held=100_000) as running:
        assert running.post("/execute", {"code": "#" * 200_000}).status_code == 503
        assert running.post("/execute", {"code": "#" * 50_000}).status_code == 200
        assert running.post("/execute", {"code": "#" * 50_000}).status_code == 200


def test_more_files_than_fit_an_answer_are_not_sent() -> None:
    with in_thread(max_response=10) as running:
        answer = running.post("/execute", {"code": "open('a','w').write('x' * 11)", "collect": ["a"]})
        assert answer.status_code == 413
        assert "11 bytes" in answer.json()["error"]


def test_metrics_are_in_prometheus_own_format(running: Running) -> None:
    running.post("/execute", {"code": "1"})
    running.post("/execute", {"code": "1/0"})
    answer = running.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert answer.text.endswith("\n")
    sample = re.compile(r'[a-z_]+(\{[a-z]+="[^"\\\n]*"(,[a-z]+="[^"\\\n]*")*\})? [0-9.e+-]+')
    assert all(line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line) for line in lines)
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    counted = sum(
        float(value) for name, value in values.items() if name.startswith('journeyman_executions_total{language="python"')
    )
    assert float(values['journeyman_execution_seconds_count{language="python"}']) == counted
    assert float(values['journeyman_execution_seconds_bucket{language="python",le="+Inf"}']) == counted
    assert float(values['journeyman_executions_total{language="python",outcome="failed"}']) >= 1
    buckets = [float(value) for name, value in values.items() if 'seconds_bucket{language="python"' in name]
    assert buckets == sorted(buckets)


def test_health_tells_the_version_and_the_walls(running: Running) -> None:
    said = running.get("/health").json()
    assert said["ready"] is True
    assert said["version"]
    assert "no_network" in said["level"]["lacks"]


def test_many_at_once_are_not_mixed_up(running: Running) -> None:
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        answers[number] = running.post("/execute", {"code": f"print({number}, input())", "stdin": f"in{number}"}).json()[
            "stdout"
        ]

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert answers == {number: f"{number} in{number}\n" for number in range(10)}
