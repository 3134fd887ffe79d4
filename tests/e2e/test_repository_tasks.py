"""From two packages to a playbook that helps on a third: tasks are made, learned from, and examined, by command alone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.playbook import Playbook
from journeyman.experiments.task_generation.generate import FOLDER
from journeyman.tasks import repository
from tests.support import repository_tasks
from tests.support.llm_server import KEY, Answer, LLMServer, completion, serving
from tests.support.pupil import REFLECTOR
from tests.support.repositories import FILES, package
from tests.support.wheels import without_network

pytestmark = pytest.mark.service

RULE = "Compare what a function does with the examples in its docstring before anything is changed."


class Mender:
    """A model that mends what is asked for once it was told how, and reflects on what failed."""

    def __init__(self, *files: Path) -> None:
        self.tasks = {task.statement: task for path in files for task in repository.read(path)}

    def __call__(self, body: dict[str, Any]) -> Answer:
        text = "\n\n".join(message["content"] for message in body["messages"])
        if REFLECTOR in text:
            insight = {"verdict": "helpful", "content": RULE, "about": ""}
            return completion(json.dumps({"insights": [insight] if "nothing was changed" in text else [], "shown": []}))
        task = next(task for statement, task in self.tasks.items() if statement in text)
        changes = task.reference if RULE in text else {}
        blocks = [f"```create path={path}\n{code}```" for path, code in changes.items()]
        return completion("\n".join([*blocks, "```done\nI looked at it.\n```"]))


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with serving() as running:
        yield running


def of_another(folder: Path, name: str) -> Path:
    """The package as another team has it: with a name of its own. Its environment is there."""
    text = FILES["pyproject.toml"].replace('name = "parcels"', f'name = "{name}"')
    repository_tasks.environment(folder / FOLDER, name)
    return package(folder / name, changed={"pyproject.toml": text})


def test_what_two_packages_taught_helps_on_a_third(
    tmp_path: Path, server: LLMServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_network(monkeypatch, tmp_path / "wheels")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def typed(*words: str, code: int = 0) -> str:
        assert main(list(words)) == code, capsys.readouterr()
        return capsys.readouterr().out

    for name, count in (("letters", 3), ("boxes", 3), ("crates", 8)):
        source = str(of_another(tmp_path, name))
        typed("tasks", "generate", "--from", source, "--categories", f"bug_fix={count}", "-o", f"{name}.jsonl")
    Path("train.jsonl").write_text(Path("letters.jsonl").read_text() + Path("boxes.jsonl").read_text())
    server.default = Mender(Path("train.jsonl"), Path("crates.jsonl"))

    words = ["train", "playbook", "--dataset", "repository", "--input", "train.jsonl", "--held-out-input", "crates.jsonl"]
    gate = ["--min-tasks", "8", "--min-clusters", "2", "--model", "openai:gpt-5-mini", "--base-url", server.url]
    told = json.loads(typed(*words, *gate, "--output", "learned.json", "--json").splitlines()[-1])
    assert told["evaluation"] is not None, told
    assert told["evaluation"]["passed"], told["reason"]
    assert RULE in {bullet.content for bullet in Playbook.load("learned.json").active}
    assert not any("test_" in bullet.content for bullet in Playbook.load("learned.json").active)

    against = ["--agent", "journeyman", "--playbook", "learned.json", "--against", "openai:gpt-5-mini"]
    examined = ["evaluate", "agent", "--tasks", "crates.jsonl", *against, *gate, "--json"]
    found = json.loads(typed(*examined, code=1).splitlines()[-1])
    assert (found["baseline"], found["candidate"], found["unknown"]) == (0.0, 1.0, 0)
    # The same tasks were looked at before, and eight of them do not bear a second look.
    assert "gain +1.000 on 8 tasks" in found["reason"]
    assert "look number 2 at these tasks" in found["reason"]

    crates = repository.read(Path("crates.jsonl"))
    twice = next(task for task in crates if sum(each.source == task.source for each in crates) > 1)
    repository.write(Path("one.jsonl"), [twice])
    repository.write(Path("rest.jsonl"), [task for task in crates if task != twice])
    overlapping = ["--input", "rest.jsonl", "--held-out-input", "one.jsonl"]
    assert "trained on, too" in _refused(capsys, *words[:4], *overlapping, *gate)
    assert "no tasks of domain 'docs'" in _refused(capsys, *words, *gate, "--domain", "docs")
    assert "needs its file" in _refused(capsys, "train", "playbook", "--dataset", "repository", *gate)


def _refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 2
    return capsys.readouterr().err
