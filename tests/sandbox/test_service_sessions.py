"""Sessions of the code service: whose they are, and when they end."""

import base64
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from tests.support.code_service import SLEEP, Running, eventually, in_thread

pytestmark = pytest.mark.service

TOKENS = ("a-token-of-the-first-one", "a-token-of-the-second-one")
FIRST, SECOND = ({"authorization": f"Bearer {token}"} for token in TOKENS)


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with in_thread(tokens=TOKENS, per_client=3) as running:
        yield running


def opened(running: Running, body: Any = None, **more: Any) -> str:
    answer = running.post("/sessions", body or {}, **more)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def execute(running: Running, id: str, code: str, **more: Any) -> httpx2.Response:
    return running.post(f"/sessions/{id}/execute", {"code": code}, **more)


def close(running: Running, id: str, **more: Any) -> int:
    return httpx2.delete(f"{running.url}/sessions/{id}", timeout=30, **more).status_code


def test_a_session_remembers_and_an_error_does_not_end_it(running: Running) -> None:
    files = {"data.bin": {"base64": base64.b64encode(b"\xff").decode()}}
    id = opened(running, {"files": files}, headers=FIRST)
    assert execute(running, id, "data = open('data.bin', 'rb').read()", headers=FIRST).json()["ok"]
    failed = execute(running, id, "1/0", headers=FIRST).json()
    assert (failed["exit_code"], failed["limit"]) == (1, None)
    assert "ZeroDivisionError" in failed["stderr"]
    assert execute(running, id, "data", headers=FIRST).json()["stdout"] == "b'\\xff'\n"
    assert close(running, id, headers=FIRST) == 204


def test_a_session_is_its_clients_alone(running: Running) -> None:
    id = opened(running, headers=FIRST)
    assert execute(running, id, "1", headers=SECOND).status_code == 404
    assert close(running, id, headers=SECOND) == 404
    assert running.get("/sessions", headers=SECOND).json()["sessions"] == []
    mine = running.get("/sessions", headers=FIRST).json()["sessions"]
    assert [kept["id"] for kept in mine] == [id]
    assert close(running, id, headers=FIRST) == 204
    assert close(running, id, headers=FIRST) == 410
    assert close(running, id, headers=SECOND) == 404


def test_where_an_address_is_all_that_tells_clients_apart_the_list_gives_no_keys_away() -> None:
    with in_thread() as running:
        id = opened(running)
        [listed] = running.get("/sessions").json()["sessions"]
        assert listed["id"] != id
        assert execute(running, str(listed["id"]), "1").status_code == 404


def test_a_client_has_its_share_of_sessions(running: Running) -> None:
    ids = [opened(running, headers=FIRST) for _ in range(3)]
    refused = running.post("/sessions", {}, headers=FIRST)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    other = opened(running, headers=SECOND)
    assert close(running, other, headers=SECOND) == 204
    assert [close(running, id, headers=FIRST) for id in ids] == [204] * 3


def test_there_are_only_so_many_sessions() -> None:
    with in_thread(sessions=1) as running:
        opened(running)
        assert running.post("/sessions", {}).status_code == 503


def test_an_idle_session_is_ended() -> None:
    with in_thread(idle_seconds=0.3) as running:
        id = opened(running, {"idle_seconds": 1000})
        assert execute(running, id, "1").json()["ok"]
        assert eventually(lambda: len(running.service.sessions) == 0)
        refused = execute(running, id, "1")
        assert refused.status_code == 410
        assert "nothing was asked of it for 0.3 seconds" in refused.json()["error"]
        assert "journeyman_sessions 0" in running.get("/metrics").text


def test_a_limit_ends_the_session(running: Running) -> None:
    id = opened(running, {"limits": {"wall_seconds": 0.3}}, headers=FIRST)
    assert execute(running, id, "while True: pass", headers=FIRST).json()["limit"] == "wall"
    assert "limit of wall" in execute(running, id, "1", headers=FIRST).json()["error"]
    assert running.get("/sessions", headers=FIRST).json()["sessions"] == []


def test_a_session_outlives_a_limit_that_ends_nothing(running: Running) -> None:
    id = opened(running, {"limits": {"output": 1000}}, headers=FIRST)
    assert execute(running, id, "x = 3\nprint('#' * 5000)", headers=FIRST).json()["limit"] == "output"
    assert execute(running, id, "x", headers=FIRST).json()["stdout"] == "3\n"
    assert close(running, id, headers=FIRST) == 204


def test_a_session_does_one_thing_at_a_time_and_ends_with_a_caller_that_hangs_up() -> None:
    with in_thread() as running:
        id = opened(running)
        line = running.ask(path=f"/sessions/{id}/execute")
        assert eventually(lambda: running.service.gate.running == 1)
        assert execute(running, id, "1").status_code == 409
        line.close()
        assert eventually(lambda: running.service.gate.empty)
        assert execute(running, id, "1").status_code == 410


def test_a_wall_limit_for_one_call_is_checked(running: Running) -> None:
    id = opened(running, headers=FIRST)
    answer = running.post(f"/sessions/{id}/execute", {**SLEEP, "wall_seconds": 1e9}, headers=FIRST)
    assert answer.status_code == 422
    answer = running.post(f"/sessions/{id}/execute", {**SLEEP, "wall_seconds": 0.2}, headers=FIRST)
    assert answer.json()["limit"] == "wall"
