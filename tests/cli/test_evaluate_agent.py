"""`journeyman evaluate agent`, walked: from a file of tasks to the table, the gate's word and the evaluation in the store."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.stores import RunState, open_store, open_traces
from journeyman.tasks import repository
from tests.support import mcp_server, repository_tasks
from tests.support.llm_server import Answer, completion, serving
from tests.support.pages import visitor

pytestmark = pytest.mark.service

STORE = ".journeyman/journeyman.db"
MODEL = ["--tasks", "tasks.jsonl", "--agent", "openai:m@http://127.0.0.1:9/v1"]
EASY = ["--min-tasks", "2", "--min-clusters", "2"]
REPLY = "```run\nsed -i 's/ZONES.get(country, 4)/ZONES.get(country.upper(), 4)/' parcels/rates.py\n```\n```done\n```"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("environments")
    return folder, repository_tasks.environment(folder)


@pytest.fixture(autouse=True)
def project(made: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder, digest = made
    return repository_tasks.written(tmp_path, folder, digest)


@pytest.fixture
def told(made: tuple[Path, str], capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; its exit code, the object that it printed, and all that was said."""

    def run(*arguments: str, code: int = 0) -> tuple[Mapping[str, Any], str]:
        where = [] if "--resume" in arguments or "--environments" in arguments else ["--environments", str(made[0])]
        found = main(["evaluate", "agent", *where, *arguments, "--json"])
        out, err = capfd.readouterr()
        assert found == code, err
        return json.loads(out.splitlines()[-1]) if out else {}, err

    return run


def test_what_is_right_beats_the_empty_hand_and_the_store_and_its_page_have_it(
    told: Any, made: tuple[Path, str], capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--tasks", "tasks.jsonl", "--environments", str(made[0]), *EASY, "--attempts-per-task", "2"]
    assert main(["evaluate", "agent", "--agent", "reference", *arguments]) == 0
    out = capfd.readouterr().out
    assert "bug_fix" in out
    assert "1.000" in out.splitlines()[1]
    assert "passed: gain +1.000 on 6 tasks in 5 clusters" in out
    with open_store(STORE, make=False) as store:
        (kept,) = store.evaluations()
        assert (kept.candidate_id, kept.baseline_id, kept.passed) == ("reference", "nothing", True)
        (category,) = kept.report["categories"]
        assert (category["category"], category["baseline"], category["candidate"]) == ("bug_fix", 0.0, 1.0)
        (run,) = store.runs()
        assert (run.kind, run.state) == ("evaluate agent", RunState.FINISHED)
        assert len(list(store.attempts(run_id=run.id))) == 24
    with open_traces(STORE) as traces:
        pages = visitor(traces, project=ProjectStores(STORE))
        assert "reference" in pages.read("/evaluations")
        assert "+1.00" in pages.read(f"/evaluations/{kept.id}")


def test_the_empty_hand_does_not_pass_and_an_earlier_run_is_not_attempted_again(told: Any) -> None:
    found, _ = told("--tasks", "tasks.jsonl", "--agent", "reference", *EASY)
    worse, _ = told("--tasks", "tasks.jsonl", "--agent", "nothing", "--against", found["run"], *EASY, code=1)
    assert (worse["baseline"], worse["candidate"], worse["passed"]) == (1.0, 0.0, False)
    with open_store(STORE, make=False) as store:
        assert {each.baseline_id for each in store.evaluations()} == {"nothing", found["run"]}


def test_a_model_at_a_server_works_by_tools_and_is_measured_by_category(told: Any) -> None:
    tasks = repository.read(Path("tasks.jsonl"))
    repository.write(Path("two.jsonl"), [replace(tasks[0], category="feature"), *tasks[1:]])
    with serving() as server:
        server.default = lambda _: completion(REPLY)
        found, _ = told("--tasks", "two.jsonl", "--agent", f"openai:m@{server.url}", *EASY, "--rewards", "development", code=1)
    assert {each["category"]: each["candidate"] for each in found["categories"]} == {"feature": 1.0, "bug_fix": 0.0}
    assert (found["candidate"], found["unknown"]) == (pytest.approx(1 / 6), 0)
    measured = found["development"]
    assert measured["candidate"]["functionality"]["mean"] == pytest.approx(1 / 6)
    assert measured["candidate"]["code_quality"]["mean"] is not None
    assert measured["baseline"]["functionality"]["mean"] == 0.0
    with open_store(STORE, make=False) as store:
        (kept,) = store.evaluations()
        assert kept.report["development"]["candidate"]["functionality"] == measured["candidate"]["functionality"]


def test_tools_are_called_over_http_with_those_of_a_server_beside_them(told: Any) -> None:
    def answer(body: Mapping[str, Any]) -> Answer:
        if body["messages"][-1]["role"] == "user":
            asked = ("zones_of", {"country": "de"})
        elif "zone 2" in body["messages"][-1]["content"]:
            asked = ("run", {"text": "sed -i 's/ZONES.get(country, 4)/ZONES.get(country.upper(), 4)/' parcels/rates.py"})
        else:
            asked = ("done", {"text": "mended"})
        call = {"id": "c", "type": "function", "function": {"name": asked[0], "arguments": json.dumps(asked[1])}}
        return completion(None, choices=[{"index": 0, "message": {"role": "assistant", "content": None, "tool_calls": [call]}}])

    mcp = f"{sys.executable} {mcp_server.__file__}"
    with serving() as server:
        server.default = answer
        found, _ = told("--tasks", "tasks.jsonl", "--agent", f"openai:m@{server.url}", *EASY, "--mcp", mcp, code=1)
    assert (found["candidate"], found["unknown"]) == (pytest.approx(1 / 6), 0)
    with open_store(STORE, make=False) as store:
        traces = [each.trace for each in store.attempts(run_id=found["run"]) if "/candidate/" in each.id]
    assert {tuple(step.tool for step in trace.tool_calls) for trace in traces} == {("zones_of", "run", "done", "submit")}


@pytest.fixture
def held() -> Iterator[tuple[str, threading.Event, list[str]]]:
    """A server that lets one task wait, and what it was asked."""
    event, asked = threading.Event(), list[str]()
    with serving() as server:

        def answer(body: Mapping[str, Any]) -> Answer:
            asked.append(str(body["messages"][1]["content"]))
            return replace(completion(REPLY), once=event if "`label`" in asked[-1] else None)

        server.default = answer
        yield server.url, event, asked


def test_a_run_that_was_killed_goes_on_with_what_was_not_attempted(
    told: Any, made: tuple[Path, str], held: tuple[str, threading.Event, list[str]]
) -> None:
    url, event, asked = held
    command = [sys.executable, "-m", "journeyman", "evaluate", "agent", "--tasks", "tasks.jsonl", "--agent", f"openai:m@{url}"]
    command += ["--environments", str(made[0]), *EASY]
    with subprocess.Popen(command, env={**os.environ, "OPENAI_API_KEY": ""}) as process:
        until = time.monotonic() + 120
        while time.monotonic() < until and not _kept(11):
            time.sleep(0.2)
        process.send_signal(signal.SIGKILL)
    assert len(asked) == 6
    event.set()
    found, _ = told("--resume", code=1)
    assert (found["candidate"], found["unknown"], found["looks"]) == (pytest.approx(1 / 6), 0, 0)
    # The one that was under way was asked again, and no other.
    assert len(asked) == 7
    assert "`label`" in asked[-1]
    _, err = told("--resume", code=2)
    assert "no unfinished run" in err


def _kept(wanted: int) -> bool:
    if not Path(STORE).exists():
        return False
    with open_store(STORE, make=False) as store:
        return sum(1 for _ in store.attempts()) >= wanted


def test_without_a_known_price_a_limit_on_cost_stops_it_and_the_run_can_go_on(told: Any) -> None:
    with serving() as server:
        found, err = told("--tasks", "tasks.jsonl", "--agent", f"openai:m@{server.url}", "--max-cost", "1", code=1)
        assert not server.bodies
    assert not found["finished"]
    assert "--max-cost needs a model whose price is known" in found["reason"]
    assert f"--resume {found['run']}" in err
    with open_store(STORE, make=False) as store:
        assert [run.state for run in store.runs()] == [RunState.STOPPED]
        assert not list(store.evaluations())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--agent", "reference"], "--tasks FILE names the tasks"),
        (["--tasks", "tasks.jsonl"], "--agent who is to do them"),
        (["--tasks", "nowhere.jsonl", "--agent", "reference"], "nowhere.jsonl"),
        (["--tasks", "tasks.jsonl", "--agent", "reference", "--category", "docs"], "holds no task for --category docs"),
        (["--tasks", "tasks.jsonl", "--agent", "journeyman"], "needs a model"),
        (["--tasks", "tasks.jsonl", "--agent", "cmd:", "--base-url", "http://127.0.0.1:1/v1"], "names no command"),
        (["--tasks", "tasks.jsonl", "--agent", "cmd:mini"], "--base-url"),
        (["--tasks", "tasks.jsonl", "--agent", "reference", "--agent-package", "x"], "agents that are commands"),
        (["--tasks", "tasks.jsonl", "--agent", "cmd:a --key sk-ant-api03-" + "a" * 40, "--base-url", "http://h/v1"], "secret"),
        (["--tasks", "tasks.jsonl", "--agent", "reference", "--mcp", "x"], "--mcp is for agents with a model"),
        (
            [*MODEL, "--mcp", "x --key sk-ant-api03-" + "a" * 40],
            "--mcp-variable",
        ),
        ([*MODEL, "--mcp", "x", "--mcp-variable", "NO_SUCH"], "NO_SUCH"),
        (["--resume", "--tasks", "tasks.jsonl"], "--resume goes on under the settings of its run"),
        (["--resume", "nobody"], "no unfinished run nobody"),
    ],
)
def test_what_cannot_be_used_is_one_sentence(told: Any, arguments: list[str], said: str) -> None:
    _, err = told(*arguments, code=2)
    assert said in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("command", "said"), [("no-such-server", "cannot be started"), ("false", "false broke off at its beginning")]
)
def test_a_server_of_tools_that_is_none_is_named_before_a_model_is_asked(told: Any, command: str, said: str) -> None:
    with serving() as server:
        _, err = told("--tasks", "tasks.jsonl", "--agent", f"openai:m@{server.url}", "--mcp", command, code=2)
        assert not server.bodies
    assert said in err
    assert "Traceback" not in err


def test_files_that_are_not_here_are_named_before_anything_is_attempted(told: Any, tmp_path: Path) -> None:
    _, err = told("--tasks", "tasks.jsonl", "--agent", "reference", "--environments", str(tmp_path / "none"), code=2)
    assert "journeyman tasks environment build" in err
