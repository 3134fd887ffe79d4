"""What was asked and called right is learned in the weights, served by llama.cpp, and brought to live traffic."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import openai
import pytest

pytest.importorskip("trl", reason="needs the extra: pip install 'journeyman[weights]'")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")

from journeyman.agents import answer
from journeyman.core.task import Split, Task
from journeyman.core.trace import Message, ModelCall, Trace, spoken
from journeyman.experiments import wiring
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.stores import open_traces
from journeyman.stores.rollouts import open_rollouts
from journeyman.tasks import desk

pytestmark = [pytest.mark.service, pytest.mark.training]

STORE = ".journeyman/journeyman.db"
SETTINGS = """
[learn]
kinds = ["weights"]
min_new = 10
release = "canary"
budget = { cost_per_day = inf, cost_per_turn = inf }
deploy = "deploy llamacpp {run} --detach --port 0 --release --replaces desk-*"
[learn.commands]
weights = '''train weights --method grpo --tasks live --domain oslo --base-model embedded:small --max-steps 2 --num-examples 16
--validation 0 --held-out 12 --min-tasks 10 --min-gain=-1'''
"""
"""A gate that lets pass what is no better: two updates teach next to nothing, and what is tried here is the way."""


def recorded(task: Task, at: datetime) -> Trace:
    said = tuple(Message(role=each.role, text=each.content) for each in answer.answer(task, (), "terse"))
    call = ModelCall(model="desk-1", prompt=spoken(said), messages=said, reply=task.answer, finish="stop", id="call")
    return Trace(
        id=f"live-{task.id}", task_id="", candidate_id="base", started_at=at, steps=(call,), domain="oslo", source="gateway"
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    Path("journeyman.toml").write_text(SETTINGS.replace("16\n", "16 "))
    now = datetime.now(UTC)
    tasks = desk.load("oslo", sizes={Split.TRAIN: 60}).tasks
    with open_traces(STORE) as store:
        store.add([recorded(task, now - timedelta(minutes=at)) for at, task in enumerate(tasks)])
        # What nobody has said a word on is no task.
        for task in tasks[:50]:
            store.label(f"live-{task.id}", True, who="ada", at=now)
    yield tmp_path
    journeyman("releases", "rollback", "weights", "--reason", "the test is over", code=None)
    for run in Path(".journeyman/runs").iterdir():
        journeyman("deploy", "llamacpp", run.name, "--stop", code=None)


def journeyman(*arguments: str, code: int | None = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "journeyman", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert code is None or done.returncode == code, done.stderr
    return done.stdout


def test_what_was_asked_and_called_right_is_learned_deployed_and_begins_its_rollout(project: Path) -> None:
    found = wiring.load_dataset(TrainingConfig(dataset_name="live", domain="oslo", min_tasks=10))
    assert len(found.tasks) == 50
    assert {task.split for task in found.tasks} == set(Split)
    journeyman("learn", "start", "--once")
    (turn,) = json.loads(journeyman("learn", "history", "--json").splitlines()[-1])["turns"]
    assert turn["state"] == "learned", turn
    assert "the rollout" in turn["reason"], turn
    with open_rollouts(STORE) as store:
        (rollout,) = store.rollouts()
        assert (str(rollout.slot), rollout.arms[0].candidate_id) == ("weights:*/*", turn["candidate"])
        served = store.live().models[turn["candidate"]]
    asked: Any = [{"role": "system", "content": "reply"}, {"role": "user", "content": found.tasks[0].question}]
    with openai.OpenAI(base_url=served.url, api_key="none") as client:
        reply = client.chat.completions.create(model=served.model, messages=asked, temperature=0.0, max_tokens=32)
    assert reply.choices[0].message.content
