"""The agent that works in a repository: what its tools do, what it never sees, where it stops, and what its work is worth."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from journeyman.agents.attempt import attempt, score
from journeyman.agents.repository import RepositoryAgent
from journeyman.agents.workshop import (
    SUBMIT,
    PreparedAgent,
    Refused,
    RepositoryWorkshop,
    WorkLimits,
    edited,
    left_in,
    search,
)
from journeyman.core.errors import ModelBusy
from journeyman.core.playbook import Bullet
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.models.base import Reply
from journeyman.models.scripted import Line, Scripted
from journeyman.tasks.repository import RepositoryTask
from tests.support import repository_tasks

pytestmark = pytest.mark.service

Bench = tuple[RepositoryWorkshop, tuple[RepositoryTask, ...]]
DONE = "```done\nmended\n```"


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("environments")
    return folder, repository_tasks.environment(folder)


@pytest.fixture
async def bench(environments: tuple[Path, str], tmp_path: Path) -> AsyncIterator[Bench]:
    folder, digest = environments
    tasks = repository_tasks.tasks_of(repository_tasks.kept_package(tmp_path, folder), digest)
    made = repository_tasks.workshop(tasks, folder)
    yield made, tasks
    await made.close()


async def tried(bench: Bench, *script: Line, number: int = 0, **more: object) -> tuple[Trace, Scripted, RepositoryTask]:
    workshop, tasks = bench
    model = Scripted(*script)
    agent = RepositoryAgent(model=model, workshop=workshop, **more)  # type: ignore[arg-type]
    trace = await attempt(agent, tasks[number].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    return trace, model, tasks[number]


def tools(trace: Trace) -> list[tuple[str, bool]]:
    return [(step.tool, step.ok) for step in trace.tool_calls]


async def test_it_looks_edits_runs_and_what_it_leaves_is_right(bench: Bench) -> None:
    old, new = "    return ZONES.get(country, 4)\n", "    return ZONES.get(country.upper(), 4)\n"
    edit = f"```edit path=parcels/rates.py\n<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n```"
    look = "I look.\n```search\ndef zone\n```\n```read path=parcels/rates.py lines=1-20\n```"
    run = "```run\npython -c 'from parcels import zone; print(zone(\"de\"))'\npython -m pytest -q 2>&1 | tail -1\n```"
    trace, model, task = await tried(bench, look, f"{edit}\n{run}", DONE)
    assert trace.error is None
    assert tools(trace) == [*(("search", True), ("read", True), ("edit", True), ("run", True), ("done", True), (SUBMIT, True))]
    said = {step.tool: step.result for step in trace.tool_calls}
    assert said["search"] == "parcels/rates.py:6: def zone(country):"
    assert said["run"].startswith("exit code 0\n2\n")
    assert "passed" in said["run"]
    assert left_in(trace) == {"parcels/rates.py": task.reference["parcels/rates.py"]}
    assert (await bench[0].verify(task.task(), trace)).value == 1.0
    # What was said before is not said again in the trace: each call goes on from the one before it.
    assert [call.continues for call in trace.calls] == [None, "call 1", "call 2"]
    assert sum(task.statement in call.prompt for call in trace.calls) == 1
    assert task.statement in model.requests[-1].text


async def test_it_sees_neither_what_is_right_nor_the_tests_that_decide(bench: Bench) -> None:
    trace, model, _ = await tried(bench, "```run\ngrep -rn . . ; ls -la .. ; env\n```\n```read path=.\n```", DONE)
    seen = "\n".join([*(request.text for request in model.requests), *(step.result for step in trace.tool_calls)])
    assert "test_zone_that_is_not_known" in seen
    assert "test_zone_of_a_country" not in seen
    assert "country.upper(), 4" not in seen
    assert "fail_to_pass" not in seen


async def test_tests_and_what_is_no_source_are_not_taken_over(bench: Bench) -> None:
    cheat = (
        "```create path=tests/test_rates.py\ndef test_x():\n    pass\n```\n```create path=../out.py\nx\n```\n"
        "```run\necho 'import sys' > conftest.py; echo hello > notes.txt; rm tests/test_labels.py; "
        "echo 'x = 1' > parcels/more.py\n```"
    )
    trace, _, task = await tried(bench, cheat, DONE)
    assert tools(trace)[:3] == [("create", False), ("create", False), ("run", True)]
    assert list(left_in(trace)) == ["parcels/more.py"]
    last = trace.tool_calls[-1]
    assert "not taken over: conftest.py, notes.txt, tests/test_labels.py" in last.result
    assert (await bench[0].verify(task.task(), trace)).value == 0.0


async def test_files_go_from_run_to_run_and_nothing_else_does(bench: Bench) -> None:
    first = "```run\necho 'A = 1' > parcels/new.py; rm parcels/labels.py; echo 1 > ../beside; sleep 60 & \n```"
    second = "```run\nls ../beside; ls parcels; ps ax | grep -c 'sleep 6[0]'\n```"
    trace, _, _ = await tried(bench, first, second, DONE)
    said = [step.result for step in trace.tool_calls if step.tool == "run"][1]
    assert "new.py" in said
    assert "labels.py" not in said
    assert "No such file" in said or "cannot access" in said
    assert left_in(trace) == {"parcels/labels.py": None, "parcels/new.py": "A = 1\n"}


async def test_it_ends_with_its_replies_and_with_its_tokens(bench: Bench) -> None:
    trace, _, _ = await tried(bench, *["```read path=.\n```"] * 5, limits=WorkLimits(rounds=3))
    assert len(trace.calls) == 3
    assert tools(trace)[-1] == (SUBMIT, True)
    dear = Reply(text="```read path=.\n```", model="m", input_tokens=600, output_tokens=500)
    trace, _, _ = await tried(bench, *[dear] * 5, limits=WorkLimits(tokens=2000))
    assert len(trace.calls) == 2
    trace, model, _ = await tried(bench, "I think.", DONE)
    assert "no block of a tool" in model.requests[1].messages[-1].content.lower()


async def test_an_attempt_that_broke_off_is_unknown_and_the_empty_hand_is_wrong(bench: Bench) -> None:
    workshop, tasks = bench
    trace, _, task = await tried(bench, "```read path=.\n```", ModelBusy("the server is down"))
    assert trace.error == "ModelBusy: the server is down"
    assert (await score(workshop, task.task(), trace)).total is None
    for name, changes, worth in (("nothing", {}, 0.0), ("reference", dict(tasks[0].reference), 1.0)):
        agent = PreparedAgent(workshop=workshop, changes=lambda _, left=changes: left, candidate_id=name)  # type: ignore[misc]
        trace = await attempt(agent, tasks[0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
        assert (await score(workshop, tasks[0].task(), trace)).total == worth


async def test_bullets_stand_in_the_prompt_and_a_terse_model_is_asked_once(bench: Bench) -> None:
    rule = Bullet(id="b-1", content="Look at the zones first.", domain="bug_fix")
    trace, model, _ = await tried(bench, f"Used: b-1\n{DONE}", choose=lambda _: (rule,))
    assert "Look at the zones first." in model.requests[0].text
    assert trace.shown == trace.cited == {"b-1"}
    terse = Scripted("reply", dialect="terse")
    agent = RepositoryAgent(model=terse, workshop=bench[0])
    trace = await attempt(agent, bench[1][0].task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert [type(step) for step in trace.steps] == [ModelCall, ToolCall]


async def test_a_command_without_end_ends_and_says_so(bench: Bench) -> None:
    endless = "```run\npython -c 'while True: pass'\n```"
    trace, _, _ = await tried(bench, endless, DONE, limits=WorkLimits(run_seconds=1.0))
    assert trace.tool_calls[0].result.startswith("cpu limit")
    assert not trace.tool_calls[0].ok
    assert trace.error is None


def test_an_edit_replaces_what_occurs_once() -> None:
    marks = "<<<<<<< SEARCH\n{}=======\n{}>>>>>>> REPLACE\n"
    assert edited("a\nb\nc\n", marks.format("b\n", "x\ny\n")) == "a\nx\ny\nc\n"
    assert edited("a\nb\nc\n", marks.format("b\n", "")) == "a\nc\n"
    for text, body in (("b\nb\n", marks.format("b\n", "x\n")), ("a\n", marks.format("b\n", "x\n")), ("a\n", "b")):
        with pytest.raises(Refused):
            edited(text, body)


def test_a_text_is_looked_for_as_it_stands() -> None:
    files = {"a.py": b"x = (a+)+$\n", "b/a+.txt": b"\0"}
    assert search(files, "(A+)+$", ".") == "a.py:1: x = (a+)+$"
    assert search(files, "a+.txt", ".") == "b/a+.txt"
    assert search(files, "zzz", "b") == "nothing holds 'zzz'"


def test_a_trace_says_what_was_left_as_data(tmp_path: Path) -> None:
    files = {"a.py": "x\n", "gone.py": None}
    trace = Trace(
        id="t", task_id="t", candidate_id="base", started_at=datetime(2026, 1, 1, tzinfo=UTC),
        steps=(ToolCall(tool=SUBMIT, arguments=json.dumps({"files": files}), result=""),),
    )  # fmt: skip
    assert left_in(trace) == files
    assert left_in(replace(trace, steps=())) == {}
