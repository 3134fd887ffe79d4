"""Tasks of repositories teach a router which model does which kind of work, by command alone."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.tasks import repository
from tests.e2e.test_repository_tasks import of_another
from tests.support.llm_server import KEY, Answer, LLMServer, completion, serving
from tests.support.wheels import without_network

pytestmark = pytest.mark.service
GOOD_AT = {"openai:mender": "bug_fix", "openai:writer": "docs"}


@pytest.fixture
def server() -> Iterator[LLMServer]:
    with serving() as running:
        yield running


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    without_network(monkeypatch, tmp_path / "wheels")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    def run(*words: str, codes: tuple[int, ...] = (0,)) -> str:
        code = main(list(words))
        said = capsys.readouterr()
        assert code in codes, said
        return said.out or said.err

    return run


class Specialists:
    """Two models, each of which can do one kind of work, and leaves the other as it is."""

    def __init__(self, path: Path) -> None:
        self.tasks = {task.statement: task for task in repository.read(path)}

    def __call__(self, body: dict[str, Any]) -> Answer:
        text = "\n\n".join(message["content"] for message in body["messages"])
        # One statement may begin another.
        task = self.tasks[max((each for each in self.tasks if each in text), key=len)]
        changes = task.reference if GOOD_AT[f"openai:{body['model']}"] == task.category else {}
        blocks = [f"```create path={path}\n{code}```" for path, code in changes.items()]
        return completion("\n".join([*blocks, "```done\nI looked at it.\n```"]))


def test_a_router_learns_which_model_mends_and_which_one_documents(
    tmp_path: Path, server: LLMServer, typed: Callable[..., str]
) -> None:
    lines = ""
    for name in ("letters", "boxes", "crates"):
        source = str(of_another(tmp_path, name))
        typed("tasks", "generate", "--from", source, "--categories", "bug_fix=6,docs=6", "-o", f"{name}.jsonl", codes=(0, 1))
        lines += Path(f"{name}.jsonl").read_text()
    Path("tasks.jsonl").write_text(lines)
    tasks = repository.read(Path("tasks.jsonl"))
    kinds = {task.id: task.category for task in tasks}
    assert set(kinds.values()) == {"bug_fix", "docs"}
    server.default = Specialists(Path("tasks.jsonl"))
    words = ["train", "router", "--dataset", "repository", "--input", "tasks.jsonl", "--base-url", server.url, "--json"]
    models = [word for name in GOOD_AT for word in ("--model", name)]
    told = json.loads(typed(*words, *models, "--min-tasks", "4", "--min-clusters", "2", codes=(0, 1)).splitlines()[-1])
    rows = [json.loads(line) for line in Path("routers/trained/outcomes.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * len(tasks)
    assert all(row["success"] == float(GOOD_AT[row["model"]] == kinds[row["id"]]) for row in rows)
    assert set(told["workers"]) == set(GOOD_AT)
    # Two held-out tasks are no examination, so it stays in shadow; what it has learned is shown to who asks for it.
    assert not told["passed"]
    held_out = [task for task in tasks if task.split == "held_out"]
    assert held_out
    for task in held_out:
        routed = typed("route", "--policy", "routers/trained", "--unproven", "--type", task.category, "--json", task.statement)
        assert GOOD_AT[json.loads(routed.splitlines()[-1])["choices"][0]["worker"]] == task.category
    # What is known was paid for: nobody is asked again.
    asked = len(server.bodies)
    typed(*words, *models, "--min-tasks", "4", "--min-clusters", "2", codes=(0, 1))
    assert len(server.bodies) == asked


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model", "openai:mender"], "a router chooses among two models at least"),
        (["--model", "a", "--model", "b", "--store"], "say what became of others; name one"),
        (["--model", "openai:a", "--model", "openai:b"], "needs its file"),
    ],
)
def test_what_cannot_be_attempted_is_said_in_a_sentence(typed: Callable[..., str], options: list[str], complaint: str) -> None:
    assert complaint in typed("train", "router", "--dataset", "repository", *options, codes=(2,))
