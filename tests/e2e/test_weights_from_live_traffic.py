"""A model in production learns in its weights from what customers were answered, and what should have been: `up`, a stock
client, feedback, GRPO, the gate, llama.cpp, a rollout to its end, and back."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import openai
import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")

from journeyman.core.rollout_plan import Metric, RolloutPlan
from journeyman.core.task import Split, Task
from journeyman.models import embedded_weights
from journeyman.optimizers.weights import llamacpp
from journeyman.tasks import desk
from journeyman.tasks.answers import judge_answer
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import served, stopped, until
from tests.support import warm

pytestmark = [pytest.mark.service, pytest.mark.training]

SHOP, LEARNED_FROM = "oslo", 400
TOKEN = "SHOPS_TOKEN"
TELLS = {
    TOKEN: "secret-of-the-shop",
    "JOURNEYMAN_SERVE__FEEDBACK_TOKEN_ENV": TOKEN,
    "JOURNEYMAN_USER": "ada",
    "OMP_NUM_THREADS": "1",
}
PLAN = RolloutPlan(
    steps=(0.5,),
    step_sessions=(40,),
    step_hours=(0.0,),
    step_worst=(1.0,),
    min_sessions=40,
    holdback=0.0,
    settle_seconds=2,
    primary=Metric(name="success", require="better", window_seconds=2),
    guardrails=(Metric(name="failed_requests", tolerance=0.01),),
)
SETTINGS = f"""\
[serve]
monitor_seconds = 0.5

[alerts]
resources = 1.0
latency_ms = 60000

[learn]
kinds = ["weights"]
every = "1s"
min_new = {LEARNED_FROM}
release = "canary"
plan = "plan.json"
budget = {{ cost_per_day = inf }}
deploy = "deploy llamacpp {{run}} --detach --port 0 --release --replaces desk-*"
[learn.commands]
weights = "train weights --method grpo --tasks live --domain {SHOP} --base-model embedded:base --max-steps 24"
"""


def journeyman(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = warm.run("-m", "journeyman", *arguments, "--json", cwd=folder, timeout=120, env={**os.environ, **TELLS})
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def model_in_production(folder: Path) -> Iterator[str]:
    """The base URL of llama.cpp with what the shop has served until now; at the end, all that was deployed is stopped."""
    shutil.copytree(embedded_weights("base"), folder / "desk-1")
    told = journeyman(folder, "deploy", "llamacpp", "desk-1", "--port", "0", "--detach", "--quantization", "F16", "--force")
    try:
        yield str(told["url"])
    finally:
        servers = folder / ".journeyman" / "servers"
        for server in llamacpp.running(servers):
            llamacpp.stop(servers, server.model)


@dataclass(slots=True)
class Customers:
    """Ask the shop's model by a stock client; the shop says of each answer whether it was right, and what should have been."""

    url: str
    right: list[bool] = field(default_factory=list)

    def come(self, tasks: Sequence[Task]) -> None:
        start = len(self.right)
        with openai.OpenAI(base_url=f"{self.url}/v1", api_key="key", max_retries=0) as client, ThreadPoolExecutor(4) as pool:
            visits = [(client, task, f"{SHOP}-{start + place}") for place, task in enumerate(tasks)]
            self.right += pool.map(lambda visit: self._one(*visit), visits)

    def _one(self, client: openai.OpenAI, task: Task, session: str) -> bool:
        raw = client.chat.completions.with_raw_response.create(
            model="desk-1",
            messages=[{"role": "system", "content": "reply"}, {"role": "user", "content": task.question}],
            temperature=0.0,
            max_tokens=96,
            extra_headers={"X-Journeyman-Session": session, "X-Journeyman-Domain": SHOP},
        )
        right = judge_answer(task.answer, raw.parse().choices[0].message.content or "").value == 1.0
        about = {"request": raw.headers["x-journeyman-request-id"], "rater": "the shop"}
        said = [{**about, "value": right, "source": "check"}]
        said += [{**about, "metric": "correct_answer", "value": task.answer, "source": "ground truth"}]
        headers = {"content-type": "application/json", "x-journeyman-feedback-token": TELLS[TOKEN]}
        urlopen(Request(f"{self.url}/feedback", json.dumps(said).encode(), headers), timeout=60).read()
        return right


def test_a_model_that_is_told_what_it_should_have_answered_is_trained_served_and_promoted(tmp_path: Path) -> None:
    (tmp_path / "journeyman.toml").write_text(SETTINGS)
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.as_json()))
    tasks = desk.load(SHOP, sizes={Split.TRAIN: 1000}).tasks
    with model_in_production(tmp_path) as up, served(tmp_path, "--upstream", up, command="up", **TELLS) as (url, process):
        customers = Customers(url)
        customers.come(tasks[:LEARNED_FROM])
        assert sum(customers.right) < LEARNED_FROM / 10

        # Nobody does anything but ask.
        def turn() -> dict[str, Any]:
            turns = journeyman(tmp_path, "learn", "history")["turns"]
            return next((each for each in turns if each["state"] != "running"), {})

        assert until(turn, 900)
        assert (turn()["state"], turn()["spent"]["looks"]) == ("learned", 1), turn()
        slot = "weights:*/*"
        (begun,) = [each for each in journeyman(tmp_path, "releases", "slots")["slots"] if each["slot"] == slot]
        assert begun["production"] == "base"

        def production() -> str:
            slots = journeyman(tmp_path, "releases", "slots")["slots"]
            return str(next(each["production"] for each in slots if each["slot"] == slot))

        while production() == "base" and len(customers.right) < len(tasks) - 100:
            customers.come(tasks[len(customers.right) :][:20])
        assert production() == turn()["candidate"]
        customers.come(tasks[len(customers.right) :][:50])
        assert sum(customers.right[-50:]) >= 40

        journeyman(tmp_path, "learn", "pause", "--reason", "the walk is over")
        undone = journeyman(tmp_path, "learn", "undo", turn()["id"], "--reason", "the walk is over")
        assert undone["served"].endswith("serves what it did before: base")
        assert until(lambda: not json.loads(ask(url, "/health", None, "GET")[2])["releases"]["slots"].get(slot))
        customers.come(tasks[len(customers.right) :][:20])
        assert sum(customers.right[-20:]) < 5
        assert stopped(process) == 0
