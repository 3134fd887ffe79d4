"""What was learned comes to live traffic, and what harms is taken back: `serve`, a stock client, two playbooks, feedback."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from journeyman import Playbook
from journeyman.core.playbook import Bullet
from journeyman.optimizers.playbook import files
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import served, stopped, until
from tests.support import warm
from tests.support.upstream import Asked, Reply, Upstream, ok, upstream

pytestmark = pytest.mark.service
GOOD = Playbook(bullets=(Bullet(id="b-1", content="Say the price in cents.", domain="oslo"),))
BAD = Playbook(bullets=(Bullet(id="b-2", content="Never say a price.", domain="oslo"),))
PLAN = {
    "steps": [0.5],
    "step_sessions": [10],
    "step_hours": [0],
    "step_worst": [1.0],
    "min_sessions": 20,
    "holdback": 0,
    "settle_seconds": 1,
    "primary": {"name": "success", "margin": 0.3, "window_seconds": 1},
    "guardrails": [{"name": "failed_requests", "tolerance": 0.01}],
}
TOKEN = {"DESK_TOKEN": "desk-0123456789abcdef"}


def _answers(asked: Asked) -> Reply:
    said = asked.body.decode()
    content = "I cannot say." if "Never say a price" in said else "It is 700 cents." if "in cents" in said else "It is 7."
    message = {"role": "assistant", "content": content}
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    return ok({"id": f"c-{len(said)}", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as made:
        made.answer = _answers
        yield made


def run(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = warm.run("-m", "journeyman", *arguments, "--json", cwd=folder, timeout=120)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def chat(url: str, session: str) -> str:
    """One session of a stock client, which says afterwards whether the price was told."""
    labels = {"X-Journeyman-Session": session, "X-Journeyman-Domain": "oslo"}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", default_headers=labels, max_retries=0) as client:
        completion = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "What does it cost?"}])
    content = completion.choices[0].message.content or ""
    word = {"session": session, "metric": "success", "value": "7" in content, "source": "check"}
    headers = {"X-Journeyman-Feedback-Token": TOKEN["DESK_TOKEN"], "content-type": "application/json"}
    assert ask(url, "/feedback", json.dumps(word).encode(), headers=headers)[0] == 200
    return content


@contextmanager
def desk(folder: Path, up: Upstream) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    settings = '[serve]\nmonitor_seconds = 0.5\nfeedback_token_env = "DESK_TOKEN"\n'
    (folder / "journeyman.toml").write_text(settings)
    (folder / "plan.json").write_text(json.dumps(PLAN))
    files.save(GOOD, folder / "good.json")
    files.save(BAD, folder / "bad.json")
    with served(folder, "--upstream", up.url, "--no-pages", **TOKEN) as (url, process):
        yield url, process
        assert stopped(process) == 0


def slot(url: str) -> dict[str, Any]:
    slots: dict[str, dict[str, Any]] = json.loads(ask(url, "/health", None, "GET")[2])["releases"]["slots"]
    return slots.get("context:*/oslo", {})


def start(folder: Path, file: str) -> dict[str, Any]:
    why = ("--force", "--reason", "to see what becomes of it")
    return run(folder, "releases", "start", file, "--domain", "oslo", "--plan", "plan.json", *why)


def goes_on(url: str, name: str, *, most: int = 200) -> list[str]:
    """Chats come until the rollout is over; what they were answered."""
    said: list[str] = []
    while slot(url).get("rollout") and len(said) < most:
        said.append(chat(url, f"{name}-{len(said)}"))
    return said


def test_what_harms_is_taken_back_by_itself_and_what_helps_comes_into_production(tmp_path: Path, up: Upstream) -> None:
    with desk(tmp_path, up) as (url, _):
        assert chat(url, "before") == "It is 7."
        before = up.asked[-1].body

        # A bad one, past the gate.
        bad = start(tmp_path, "bad.json")
        assert until(lambda: slot(url).get("rollout"))
        said = goes_on(url, "bad")
        assert set(said) == {"It is 7.", "I cannot say."}
        assert chat(url, "after") == "It is 7."
        assert up.asked[-1].body == before
        told = run(tmp_path, "releases", "show", bad["rollout"]["id"])
        last = told["rollout"]["events"][-1]
        assert (told["rollout"]["state"], last["kind"], last["cause"]["actor"]) == ("rolled_back", "rollback", "monitor")
        assert last["cause"]["reason"].startswith("success is worse on the canary: ")

        # A good one: it comes into production, and undo brings back what was there.
        good = start(tmp_path, "good.json")
        assert until(lambda: slot(url).get("rollout"))
        said = goes_on(url, "good")
        assert set(said) == {"It is 7.", "It is 700 cents."}
        assert until(lambda: slot(url).get("production") == good["rollout"]["arms"][0]["candidate_id"])
        assert chat(url, "then") == "It is 700 cents."
        run(tmp_path, "releases", "undo", "context:*/oslo", "--reason", "customers want crowns")
        assert until(lambda: not slot(url), 3)
        assert chat(url, "at last") == "It is 7."
        assert up.asked[-1].body == before
    assert run(tmp_path, "audit", "--verify")
    kinds = [json.loads(json.dumps(row))["action"] for row in run(tmp_path, "audit")["audit"]]
    assert kinds.count("rollback") == 1
    assert kinds.count("promote") == 1
