"""What is released is seen and changed over HTTP, by whom may, and the gateway that is asked serves accordingly at once."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from journeyman.core.candidate import BASE
from journeyman.experiments.settings import Project
from journeyman.serving.gateway.releases import ReleaseConfig
from journeyman.serving.releases.artifacts import CandidateLoader
from journeyman.serving.releases.live import LiveContext
from journeyman.stores import open_store
from journeyman.stores.rollouts import open_rollouts
from tests.cli.test_releases_live import NEW, OLD, SYSTEM, USER, evaluation
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import COMPLETION, served
from tests.support.gateways import Running, gateway
from tests.support.upstream import Upstream, ok

pytestmark = pytest.mark.service
TOKEN = "0123456789abcdef0123456789abcdef"
MAY = {"x-journeyman-release-token": TOKEN}
WHERE = {"agent": "desk", "domain": "oslo"}
HEADERS = {"X-Journeyman-Agent": "desk", "X-Journeyman-Domain": "oslo", "X-Journeyman-Session": "s-17"}
WHY = "I looked at it"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / ".journeyman" / "journeyman.db"
    with open_store(found) as store:
        for each in (NEW, OLD):
            store.add_candidate(each)
        store.add_evaluation(evaluation())
    return found


@contextmanager
def desk(path: Path, up: Upstream, *, tokens: tuple[str, ...] = (), may: tuple[str, ...] = (TOKEN,)) -> Iterator[Running]:
    loader = CandidateLoader(Project(root=path.parent))
    releases = LiveContext(str(path), path.parent / "releases", loader.load, poll_seconds=3600)
    control = ReleaseConfig(store_url=f"sqlite:///{path}", tokens=may, refresh=releases.refresh)
    try:
        with gateway(up.url, tokens=tokens, releases=releases, control=control) as running:
            yield running
    finally:
        releases.close()


def post(url: str, address: str, said: object = None, **headers: str) -> tuple[int, dict[str, str], Any]:
    body = said if isinstance(said, bytes) else json.dumps({"reason": WHY} if said is None else said).encode()
    status, told, answer = ask(url, address, body, headers={**MAY, **{n.replace("_", "-"): v for n, v in headers.items()}})
    return status, told, json.loads(answer)


def get(url: str, address: str, **headers: str) -> tuple[int, dict[str, str], Any]:
    status, told, answer = ask(url, address, None, "GET", headers={n.replace("_", "-"): v for n, v in headers.items()})
    return status, told, json.loads(answer)


def rows(path: Path) -> int:
    tables = ("rollouts", "rollout_events", "slot_moves", "audit", "candidates", "moves")
    with closing(sqlite3.connect(path)) as database:
        return sum(database.execute(f"select count(*) from {table}").fetchone()[0] for table in tables)


def test_a_candidate_is_brought_to_production_and_back_by_requests_alone(path: Path, tmp_path: Path, up: Upstream) -> None:
    (tmp_path / "journeyman.toml").write_text('[serve]\nrelease_token_env = "RELEASE_TOKEN"\nmonitor = false\n')
    up.answer = lambda asked: ok(COMPLETION)
    with served(tmp_path, "--upstream", up.url, "--no-pages", "--no-record", RELEASE_TOKEN=TOKEN) as (url, _):
        client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, default_headers=HEADERS)
        with client:

            def asked() -> Any:
                client.chat.completions.create(model="m", messages=USER)
                return json.loads(up.asked[-1].body)["messages"]

            assert asked() == USER
            assert get(url, "/releases.json")[2] == {"slots": [], "rollouts": []}
            status, headers, begun = post(url, "/releases", {"candidate": NEW.id[:8], "share": 1, **WHERE, "reason": WHY})
            id = begun["rollout"]["id"]
            assert (status, headers["location"], headers["etag"]) == (201, f"/releases/{id}.json", '"2"')
            assert (begun["done"], begun["gate"]["verdict"], begun["rollout"]["shares"]) == (True, "passed", {"canary": 1.0})
            # The next request already is served it, in this gateway.
            assert asked() == [*SYSTEM, *USER]
            told = get(url, headers["location"])
            assert (told[2]["rollout"], told[1]["etag"]) == (begun["rollout"], '"2"')
            (slot,) = get(url, "/releases.json")[2]["slots"]
            assert (slot["slot"], slot["production"], slot["rollout"]["id"]) == ("context:desk/oslo", BASE, id)
            assert get(url, f"/releases/{id}/evidence.json")[2] == {"rollout": id, "evidence": None}
            held = post(url, f"/releases/{id}/hold")
            assert (held[0], held[1]["etag"], held[2]["rollout"]["state"]) == (200, '"3"', "held")
            assert post(url, f"/releases/{id}/resume", if_match='"3"')[2]["rollout"]["state"] == "canary"
            promoted = post(url, f"/releases/{id}/promote", if_match="4")
            assert (promoted[2]["production"], promoted[2]["rollout"]["state"]) == (NEW.id, "holdback")
            assert post(url, f"/releases/{id}/rollback")[2]["production"] == BASE
            assert asked() == USER
            events = get(url, f"/releases/{id}.json")[2]["rollout"]["events"]
            assert [each["kind"] for each in events] == ["start", "ramp", "hold", "resume", "promote", "rollback"]
            assert {(each["cause"]["actor"], each["cause"]["reason"]) for each in events[2:]} == {("api", WHY)}
    with open_rollouts(path) as store:
        assert store.verify() is None
    assert TOKEN not in (tmp_path / "stderr").read_text()


def test_of_two_who_decide_the_second_is_told_what_happened_meanwhile(path: Path, up: Upstream) -> None:
    with desk(path, up) as running:
        id = post(running.url, "/releases", {"candidate": NEW.id, "reason": WHY})[2]["rollout"]["id"]
        read = get(running.url, f"/releases/{id}.json")[1]["etag"]
        assert post(running.url, f"/releases/{id}/ramp", {"share": 0.3, "reason": WHY}, if_match=read)[0] == 200
        before = rows(path)
        status, _, answer = post(running.url, f"/releases/{id}/promote", if_match=read)
        assert status == 409
        assert f"{id}: its last event is 3, a ramp ({WHY}), and not 2" in answer["error"]["message"]
        assert post(running.url, f"/releases/{id}/resume")[0] == 409
        again = post(running.url, "/releases", {"candidate": NEW.id, "reason": WHY})
        assert (again[0], "is open there" in again[2]["error"]["message"]) == (409, True)
        unexamined = post(running.url, "/releases", {"candidate": OLD.id, "agent": "x", "reason": WHY})
        assert (unexamined[0], "never examined" in unexamined[2]["error"]["message"]) == (409, True)
        assert rows(path) == before


def test_several_candidates_are_begun_and_moved_by_their_arms(path: Path, up: Upstream) -> None:
    with desk(path, up) as running:
        said = {"candidates": [NEW.id, OLD.id], "force": True, "plan": {"shares": "top_two"}, "reason": WHY}
        dry = post(running.url, "/releases", {**said, "dry_run": True})
        assert (dry[0], dry[2]["done"], get(running.url, "/releases.json")[2]["slots"]) == (200, False, [])
        rollout = post(running.url, "/releases", said)[2]["rollout"]
        assert rollout["events"][0]["cause"]["forced"]
        assert post(running.url, f"/releases/{rollout['id']}/promote")[0] == 400
        out = post(running.url, f"/releases/{rollout['id']}/rollback", {"arm": "canary-2", "reason": WHY})[2]["rollout"]
        assert out["shares"] == {"canary-1": 0.01}
        assert post(running.url, f"/releases/{rollout['id']}/close")[2]["rollout"]["state"] == "closed"


@pytest.mark.parametrize(
    ("address", "said", "status", "sentence"),
    [
        ("/releases", b"{", 400, "the body is no JSON"),
        ("/releases", [], 400, "the body is a JSON object"),
        ("/releases", {"candidate": NEW.id}, 400, "reason is missing"),
        ("/releases", {"candidate": NEW.id, "reason": " "}, 400, "reason is missing"),
        ("/releases", {"candidate": NEW.id, "reason": 3}, 400, "reason is a text, not 3"),
        ("/releases", {"reason": WHY}, 400, "candidate is an id, or candidates a list of ids"),
        ("/releases", {"candidates": [3], "reason": WHY}, 400, "candidate is an id, or candidates a list of ids"),
        ("/releases", {"candidate": "/etc/passwd", "reason": WHY}, 400, "no candidate has an id that begins so"),
        ("/releases", {"candidate": NEW.id, "share": True, "reason": WHY}, 400, "share is a number, not True"),
        ("/releases", {"candidate": NEW.id, "share": 2, "reason": WHY}, 400, "share is above 0 and at most 1, not 2"),
        ("/releases", {"candidate": NEW.id, "plan": {"stepps": []}, "reason": WHY}, 400, "plan: there is no 'stepps'"),
        ("/releases", {"candidate": NEW.id, "agent": "a/b", "reason": WHY}, 400, "no / in the agent's name"),
        ("/releases", {"candidate": NEW.id, "by": "eve", "reason": WHY}, 400, "there is no 'by'; there are reason, candidate"),
        ("/releases/2099/hold", None, 404, "2099: no rollout has an id that begins so"),
        ("/releases/ID/hold", {"share": 0.5, "reason": WHY}, 400, "there is no 'share'; there are reason"),
        ("/releases/ID/ramp", {"share": 7, "reason": WHY}, 400, "a share is above 0 and at most 1, not 7"),
        ("/releases/ID/ramp", {}, 400, "reason is missing"),
        ("/releases/ID/explode", None, 404, "there is no /releases/"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_one_sentence_and_moves_nothing(
    path: Path, up: Upstream, address: str, said: object, status: int, sentence: str
) -> None:
    with desk(path, up) as running:
        id = post(running.url, "/releases", {"candidate": NEW.id, "reason": WHY})[2]["rollout"]["id"]
        before = rows(path)
        answered, _, answer = post(running.url, address.replace("ID", id), said)
        assert answered == status
        assert sentence in answer["error"]["message"]
        assert "\n" not in answer["error"]["message"]
        assert post(running.url, f"/releases/{id}/hold", if_match="soon")[0] == 400
        assert rows(path) == before


def test_only_who_has_the_token_changes_anything_and_looking_needs_the_gateways(path: Path, up: Upstream) -> None:
    door = "fedcba9876543210fedcba9876543210"
    begin = {"candidate": NEW.id, "reason": WHY}
    with desk(path, up, tokens=(door,)) as running:
        before = rows(path)
        for headers in ({}, {"x-journeyman-release-token": door}, {"x-journeyman-token": TOKEN}):
            assert ask(running.url, "/releases", json.dumps(begin).encode(), headers=headers)[0] == 401
        assert ask(running.url, "/releases", json.dumps(begin).encode(), headers={"x-journeyman-token": door})[0] == 403
        assert rows(path) == before
        assert [get(running.url, each)[0] for each in ("/releases.json", "/releases/x.json")] == [401, 401]
        assert get(running.url, "/releases.json", x_journeyman_token=door)[0] == 200
        assert get(running.url, "/releases/x.json", x_journeyman_token=door)[0] == 404
        assert ask(running.url, "/releases", json.dumps(begin).encode(), headers={"Authorization": f"Bearer {TOKEN}"})[0] == 201
    with desk(path, up, may=()) as running:
        status, _, answer = post(running.url, "/releases", begin)
        assert (status, "serve.release_token_env" in answer["error"]["message"]) == (403, True)
        # A page of another site has no say, whatever it knows.
        assert post(running.url, "/releases", begin, origin="https://evil.example")[0] == 403


def test_while_the_store_is_away_it_is_said_and_nothing_is_lost(path: Path, up: Upstream) -> None:
    with desk(path, up) as running:
        path.write_bytes(b"no database at all" * 100)
        for beside in path.parent.glob("journeyman.db-*"):
            beside.unlink()
        status, headers, _ = get(running.url, "/releases.json")
        assert (status, headers["retry-after"]) == (503, "5")
        assert post(running.url, "/releases", {"candidate": NEW.id, "reason": WHY})[0] == 503
