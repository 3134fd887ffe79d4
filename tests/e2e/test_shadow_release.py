"""What was learned is asked behind production first: `serve`, a stock client, and a candidate whose answers nobody is given."""

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.e2e.test_live_release import PLAN, desk, run, up
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import until
from tests.support.upstream import Asked, Reply, Upstream, failed, ok

__all__ = ["up"]
pytestmark = pytest.mark.service
SLOT = "context:*/oslo"
PRICED = """
from genai_prices.data_snapshot import get_snapshot

next(each for each in get_snapshot().providers if each.id == "openai").api_pattern = "http://127"
"""
"""Read by every interpreter at its start: the server on loopback has the prices of one that is in the list."""


def _answers(asked: Asked) -> Reply:
    content = "It is 700 cents." if b"in cents" in asked.body else "It is 7."
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    usage = {"prompt_tokens": 40_000, "completion_tokens": 10_000, "total_tokens": 50_000}
    body = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "gpt-4o-mini", "choices": [choice], "usage": usage}
    return ok(body)


def chat(url: str, session: str, **more: Any) -> tuple[str, dict[str, str]]:
    labels = {"X-Journeyman-Session": session, "X-Journeyman-Domain": "oslo", "X-Journeyman-Agent": "desk"}
    said: Any = [{"role": "user", "content": "What does it cost?"}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", default_headers=labels, max_retries=0) as client:
        raw = client.chat.completions.with_raw_response.create(model="gpt-4o-mini", messages=said, **more)
    return raw.parse().choices[0].message.content or "", dict(raw.headers)


def start(folder: Path, file: str, **shadow: Any) -> str:
    (folder / "plan.json").write_text(json.dumps(PLAN | {"shadow_share": 1.0} | shadow))
    why = ("--shadow", "--force", "--reason", "to see what it says")
    found = run(folder, "releases", "start", file, "--domain", "oslo", "--plan", "plan.json", *why)
    assert found["rollout"]["state"] == "shadow"
    return str(found["rollout"]["id"])


def is_mirrored(url: str) -> bool:
    return SLOT in json.loads(ask(url, "/health", None, "GET")[2])["releases"]["mirrored"]


def shown(folder: Path, id: str) -> dict[str, Any]:
    return run(folder, "releases", "show", id)


def events(told: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["kind"], each["cause"]["actor"].partition(":")[0]) for each in told["rollout"]["events"]]


def mirrored(up: Upstream) -> list[Asked]:
    return [each for each in up.asked if b"in cents" in each.body or b"Never say" in each.body]


def _has_come(up: Upstream, count: int) -> bool:
    return len(mirrored(up)) == count


def test_a_candidate_answers_behind_production_is_never_heard_and_then_gets_its_first_step(
    tmp_path: Path, up: Upstream
) -> None:
    up.answer = _answers
    with desk(tmp_path, up) as (url, _):
        before, _ = chat(url, "before")
        body, headers = up.asked[-1].body, up.asked[-1].headers
        id = start(tmp_path, "good.json", shadow_pairs=8, shadow_unpriced="go_on", shadow_rewards=["format_compliance"])
        assert until(lambda: is_mirrored(url))
        tools: Any = [{"type": "function", "function": {"name": "refund", "parameters": {"type": "object"}}}]
        assert chat(url, "with-tools", tools=tools)[0] == before
        for number in range(8):
            said, told = chat(url, f"s-{number}")
            # Of the client's request, and of the answer that it is given, nothing differs.
            assert said == before
            assert not {"x-journeyman-rollout", "x-journeyman-arm", "x-journeyman-release"} & told.keys()
            assert until(partial(_has_come, up, number + 1))
        ours = [each for each in up.asked if each not in mirrored(up) and b"refund" not in each.body]
        assert {each.body for each in ours} == {body}
        assert [sorted(name for name, _ in each.headers) for each in ours] == [sorted(name for name, _ in headers)] * 9
        assert not any(b"refund" in each.body for each in mirrored(up))

        assert until(lambda: events(shown(tmp_path, id))[-1] == ("ramp", "monitor"), 30), shown(tmp_path, id)
        found = shown(tmp_path, id)
        assert events(found) == [("start", "person"), ("shadow", "person"), ("ramp", "monitor")]
        assert found["rollout"]["events"][-1]["cause"]["reason"].startswith("the first step, after 8 of 8 mirrored sessions")
        shadow = found["shadow"]
        assert (shadow["pairs"], shadow["requests"], shadow["failed"], shadow["unpriced"]) == (8, 8, 0, 8)
        assert shadow["tokens_candidate"] == shadow["tokens_production"] == 50_000
        assert (shadow["cost_candidate"], shadow["spent"]) == (None, 0)
        assert set(shadow["rewards"]) == {"format_compliance"}
        assert run(tmp_path, "releases", "evidence", id)["shadow"] == shadow
        # The canary is served from here on, and what was mirrored stays out of what is told of the agent.
        assert until(lambda: not is_mirrored(url))
        assert run(tmp_path, "traces", "stats")["all"]["traces"] == 10
        rows = run(tmp_path, "traces", "list", "--source", "mirror")
        assert len(rows["traces"]) == 8
        assert {each["session"] for each in rows["traces"]} == {None}
    assert run(tmp_path, "audit", "--verify")


def test_the_budget_ends_the_mirroring_and_a_person_goes_on(
    tmp_path: Path, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    up.answer = _answers
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(PRICED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    with desk(tmp_path, up) as (url, _):
        # An answer costs 1.2 cents.
        id = start(tmp_path, "good.json", shadow_pairs=50, shadow_budget=0.05)
        assert until(lambda: is_mirrored(url))
        for number in range(20):
            assert chat(url, f"s-{number}")[0] == "It is 7."
        assert until(lambda: events(shown(tmp_path, id))[-1] == ("hold", "monitor"), 30), shown(tmp_path, id)
        seen = len(mirrored(up))
        # Five reach it; two may be under way before they are on record.
        assert 5 <= seen <= 7
        for number in range(5):
            assert chat(url, f"t-{number}")[0] == "It is 7."
        found = shown(tmp_path, id)
        assert len(mirrored(up)) == seen == found["shadow"]["pairs"]
        assert found["shadow"]["spent"] == pytest.approx(0.012 * seen)
        assert found["rollout"]["events"][-1]["cause"]["reason"].startswith("the budget of $0.05 is spent")
        assert events(found).count(("hold", "monitor")) == 1
        assert run(tmp_path, "releases", "ramp", id, "--reason", "they look alike")["rollout"]["state"] == "canary"


def test_without_a_price_no_budget_can_be_kept_and_a_candidate_that_fails_ends_there(tmp_path: Path, up: Upstream) -> None:
    up.answer = lambda asked: failed(500) if b"Never say" in asked.body else _answers(asked)
    with desk(tmp_path, up) as (url, _):
        id = start(tmp_path, "good.json")
        assert until(lambda: is_mirrored(url))
        for number in range(4):
            assert chat(url, f"s-{number}")[0] == "It is 7."
        assert until(lambda: events(shown(tmp_path, id))[-1] == ("hold", "monitor"), 30), shown(tmp_path, id)
        assert "cost is not known, so no budget can be kept" in shown(tmp_path, id)["rollout"]["events"][-1]["cause"]["reason"]
        assert len(mirrored(up)) <= 2
        run(tmp_path, "releases", "close", id, "--reason", "the other one")

        id = start(tmp_path, "bad.json")
        assert until(lambda: is_mirrored(url))
        for number in range(30):
            # Its failures close the server to nobody else.
            assert chat(url, f"t-{number}")[0] == "It is 7."
        assert until(lambda: shown(tmp_path, id)["rollout"]["state"] == "rolled_back", 30), shown(tmp_path, id)
        assert events(shown(tmp_path, id))[-1] == ("rollback", "monitor")
        assert shown(tmp_path, id)["rollout"]["events"][-1]["cause"]["reason"].startswith("the brake: more than 20%")
