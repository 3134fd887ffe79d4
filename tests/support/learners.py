"""A learner on a project of its own, whose commands are a small program instead of a training that takes minutes.

python -m tests.support.learners FOLDER     # carries out turns there until it is killed, by the settings in settings.json
"""

import json
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from journeyman.core.trace import ModelCall, Trace
from journeyman.experiments.learning import LearnDaemon, LearnerConfig
from journeyman.experiments.pipeline.stages import PipelineStage
from journeyman.experiments.settings import LearnSettings
from journeyman.stores.traces import open_traces

PROGRAM = """
import json, os, sys, time
from pathlib import Path
asked = sys.argv[1:]
told = json.loads(Path("answer.json").read_text())
with open("ran.jsonl", "a") as ran:
    ran.write(json.dumps(asked) + "\\n")
if asked[0] == "train":
    Path("playbooks").mkdir(exist_ok=True)
    Path("playbooks/desk-oslo.json").write_text(told["writes"])
until = time.process_time() + told.get("burns", 0)
while time.process_time() < until:
    pass
time.sleep(told.get("sleeps", 0))
print(json.dumps(told.get("by_command", {}).get(asked[0], told["says"])))
sys.exit(told.get("ends", 0))
"""


class HandedClock:
    """Stands still until it is moved. Implements `LearnClock`."""

    def __init__(self, at: datetime) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def wait(self, seconds: float, over: threading.Event) -> None:
        self.at += timedelta(seconds=seconds)


def slot(verdict: str, **more: Any) -> dict[str, Any]:
    """What `train playbook --from traces` says of the desk's domain oslo."""
    told = {"agent": "desk", "domain": "oslo", "verdict": verdict, "reason": f"it is {verdict}", "candidate": "c1", "cost": 0.0}
    return {"slots": [{**told, "examination": {}, **more}]}


def learner(folder: Path, *, clock: Any = None, said: Any = None, **more: Any) -> LearnDaemon:
    """One on the project in a folder.

    Args:
        more: Settings of [learn].
    """
    (folder / "program.py").write_text(PROGRAM)
    stage = PipelineStage(name="playbook", command=("train", "playbook"), arguments=("--from", "traces"), bounded=True)
    config = LearnerConfig(
        url=f"sqlite:///{folder}/journeyman.db",
        root=folder,
        folder=folder / ".journeyman",
        artifacts=folder / "artifacts",
        settings=LearnSettings(**{"every": "1s", "min_new": 1, **more}),
        commands={"playbook": stage, "weights": PipelineStage(name="weights", command=("train", "weights"), arguments=())},
        program=(sys.executable, str(folder / "program.py")),
        every=0.1,
        lease_seconds=2.0,
    )
    return LearnDaemon(config, clock=clock, **({} if said is None else {"said": said}))


def answers(folder: Path, says: Mapping[str, Any], **more: Any) -> None:
    """What the command of a turn does from now on."""
    told = json.dumps({"says": says, "writes": "learned", **more})
    (folder / "answer.json").write_text(told)


def recorded(folder: Path, *ids: str, domain: str = "oslo") -> None:
    """Traces that somebody else made."""
    with open_traces(f"sqlite:///{folder}/journeyman.db") as store:
        call = ModelCall(model="m", prompt="user: Hi", reply="Hello")
        about: dict[str, Any] = {
            "candidate_id": "base",
            "started_at": datetime.now(UTC),
            "agent": "desk",
            "domain": domain,
            "source": "gateway",
        }
        store.add([Trace(id=id, task_id=id, steps=(call,), **about) for id in ids])


def ran(folder: Path) -> list[list[str]]:
    """The commands that were run."""
    path = folder / "ran.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    place = Path(sys.argv[1])
    given = json.loads((place / "settings.json").read_text()) if (place / "settings.json").exists() else {}
    learner(place, said=lambda text: print(text, flush=True), **given).run(threading.Event())
