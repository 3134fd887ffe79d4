"""The coder: every round is on its trace, it is told what failed and never how it is checked, and it stops."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from journeyman import sandbox
from journeyman.agents.attempt import attempt
from journeyman.agents.coder import ANSWER, Coder, ScenarioWorkshop, last_files, tries
from journeyman.core.errors import SandboxError
from journeyman.core.playbook import Bullet
from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import ModelCall, ToolCall, Trace
from journeyman.models.scripted import Line, Scripted
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.scenarios import Acceptance, Scenario, TaskType
from tests.support.builder import block
from tests.support.traces import done, used

pytestmark = pytest.mark.service

OPEN = Acceptance(
    name="open",
    kind="pytest",
    text="from add import add\n\n\ndef test_small():\n    assert add(2, 2) == 4  # canary-in-the-check\n",
)
HIDDEN = Acceptance(
    name="kept", kind="pytest", hidden=True, text="from add import add\n\n\ndef test_large():\n    assert add(40, 2) == 42\n"
)
ADDING = Scenario(
    name="Adding", goal="A module add.py with add(a, b)", requirements=("add(a, b) gives the sum",), checks=(OPEN, HIDDEN)
)
RIGHT = block("add.py", "def add(a, b):\n    return a + b\n")
WRONG = block("add.py", "def add(a, b):\n    return a * b + 1\n")
LUCKY = block("add.py", "def add(a, b):\n    return a * b\n")
"""Passes the open check alone."""


@pytest.fixture
async def workshop() -> AsyncIterator[ScenarioWorkshop]:
    made = ScenarioWorkshop([ADDING], lambda: sandbox.load("unsafe-local"))
    yield made
    await made.close()


async def tried(workshop: ScenarioWorkshop, *script: Line, task: Task | None = None, **more: object) -> tuple[Trace, Scripted]:
    model = Scripted(*script)
    agent = Coder(model=model, workshop=workshop, **more)  # type: ignore[arg-type]
    return await attempt(agent, task or ADDING.task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC)), model


async def test_it_stops_when_the_open_checks_pass(workshop: ScenarioWorkshop) -> None:
    trace, _ = await tried(workshop, RIGHT)
    assert [type(step) for step in trace.steps] == [ModelCall, ToolCall]
    call = trace.steps[1]
    assert isinstance(call, ToolCall)
    assert (call.tool, call.ok) == ("sandbox", True)
    assert call.seconds is None or call.seconds > 0
    said = json.loads(call.result)
    assert said["level"].startswith("none"), "the level reached is stamped on every result"
    assert json.loads(call.arguments)["files"] == {"add.py": "def add(a, b):\n    return a + b\n"}
    assert await workshop.verify(ADDING.task(), trace) == Reward(
        name="checks", value=1.0, evidence=f"2 of 2 checks passed ({said['level']})"
    )


async def test_it_reads_the_failure_and_repairs_and_the_trace_holds_every_round(workshop: ScenarioWorkshop) -> None:
    trace, model = await tried(workshop, WRONG, RIGHT)
    assert [findings.passed for _, findings in tries(trace)] == [False, True]
    told = model.requests[1].messages[-1].content
    assert "open: failed" in told
    assert "test_small" in told or "5" in told
    reward = await workshop.verify(ADDING.task(), trace)
    assert reward.value == 1.0
    assert "round 1 had failed" in reward.evidence, "a reflector learns from what was mended, too"


async def test_it_never_sees_a_check_nor_what_a_hidden_one_found(workshop: ScenarioWorkshop) -> None:
    trace, model = await tried(workshop, WRONG, LUCKY, RIGHT)
    seen = "\n".join(request.text for request in model.requests) + "".join(str(step) for step in trace.steps)
    assert "canary-in-the-check" not in seen
    assert "test_large" not in seen
    assert "kept" not in seen
    assert len(model.requests) == 2, "after the open checks pass nothing tells it that the hidden ones do not"
    reward = await workshop.verify(ADDING.task(), trace)
    assert reward.value == 0.5
    assert "kept: failed (0 of 1 tests passed); what it asks is hidden" in reward.evidence
    assert "42" not in reward.evidence, "the reflector must not learn the hidden values either"
    assert "canary-in-the-check" not in reward.evidence


async def test_rounds_are_bounded_and_what_was_last_is_judged(workshop: ScenarioWorkshop) -> None:
    trace, model = await tried(workshop, WRONG, WRONG, WRONG, WRONG, rounds=3)
    assert len(model.requests) == 3
    assert trace.error is None
    reward = await workshop.verify(ADDING.task(), trace)
    assert reward.value == 0.0


async def test_code_that_leaves_before_it_is_asked_is_worth_nothing(workshop: ScenarioWorkshop) -> None:
    trace, _ = await tried(workshop, block("add.py", "import sys\n\nsys.exit(0)\n"), RIGHT, rounds=1)
    assert [findings.passed for _, findings in tries(trace)] == [False]
    assert (await workshop.verify(ADDING.task(), trace)).value == 0.0


async def test_at_an_examination_the_checks_tell_it_nothing(workshop: ScenarioWorkshop) -> None:
    held_out = ADDING.task(Split.HELD_OUT)
    trace, model = await tried(workshop, WRONG, task=held_out)
    assert len(model.requests) == 1
    assert "open" not in str(trace.steps[1])
    assert (await workshop.verify(held_out, trace)).value == 0.0


async def test_code_without_checks_is_run_and_its_crash_is_read(workshop: ScenarioWorkshop) -> None:
    task = Task(id="elsewhere", question="Print the first prime")
    trace, model = await tried(workshop, block("main.py", "print(1 / 0)\n"), block("main.py", "print(2)\n"), task=task)
    assert "ZeroDivisionError" in model.requests[1].messages[-1].content
    assert [findings.passed for _, findings in tries(trace)] == [False, True]
    reward = await workshop.verify(task, trace)
    assert reward.name == "reading"


async def test_a_module_that_python_cannot_read_is_told(workshop: ScenarioWorkshop) -> None:
    task = Task(id="elsewhere", question="A module that adds")
    _, model = await tried(workshop, block("add.py", "def add(:\n"), RIGHT, task=task)
    assert "SyntaxError" in model.requests[1].messages[-1].content


async def test_a_reply_without_a_file_is_told_so_and_costs_a_round(workshop: ScenarioWorkshop) -> None:
    trace, model = await tried(workshop, "I would add them.", RIGHT)
    assert "no fenced block names a file" in model.requests[1].messages[-1].content
    assert (await workshop.verify(ADDING.task(), trace)).value == 1.0
    nothing, _ = await tried(workshop, "No.", "No.", "No.")
    assert await workshop.verify(ADDING.task(), nothing) == Reward(
        name="checks", value=0.0, evidence="the reply holds no file that could be used"
    )


async def test_a_path_that_leads_elsewhere_is_refused_and_what_else_it_wrote_is_kept(workshop: ScenarioWorkshop) -> None:
    trace, model = await tried(workshop, f"{block('../evil.py', 'x')}\n{WRONG}", RIGHT)
    assert "'../evil.py' is no path that can be used" in model.requests[1].messages[-1].content
    assert list(last_files(trace)) == ["add.py"]


async def test_files_that_are_not_repeated_stay(workshop: ScenarioWorkshop) -> None:
    helper = block("helper.py", "def plus(a, b):\n    return a - b\n")
    user = block("add.py", "from helper import plus\n\n\ndef add(a, b):\n    return plus(a, b)\n")
    trace, _ = await tried(workshop, f"{helper}\n{user}", block("helper.py", "def plus(a, b):\n    return a + b\n"))
    assert set(last_files(trace)) == {"add.py", "helper.py"}
    assert (await workshop.verify(ADDING.task(), trace)).value == 1.0


async def test_bullets_stand_in_the_prompt_and_those_used_are_cited(workshop: ScenarioWorkshop) -> None:
    bullets = (Bullet(id="b-1", content="Add, do not multiply."), Bullet(id="b-2", content="Be kind."))
    trace, model = await tried(workshop, f"Used: b-1\n{RIGHT}", choose=lambda _: bullets)
    assert "[b-1] Add, do not multiply." in model.requests[0].text
    assert sorted(trace.shown) == ["b-1", "b-2"]
    assert sorted(trace.cited) == ["b-1"]


async def test_a_sandbox_that_fails_makes_the_attempt_unknown_and_not_wrong() -> None:
    def broken() -> Sandbox:
        raise SandboxError("the walls do not stand")

    workshop = ScenarioWorkshop([ADDING], broken)
    trace, _ = await tried(workshop, RIGHT)
    assert trace.error == "SandboxError: the walls do not stand"


async def test_words_are_answered_in_one_call_and_their_checks_read_the_answer() -> None:
    note = Scenario(
        name="Note",
        goal="A note on the new import",
        requirements=("names the format CAMT.053",),
        task_type=TaskType.TEXT_GENERATION,
        checks=(Acceptance(name="format", kind="shell", text=f"grep -q CAMT.053 {ANSWER}"),),
    )
    read_only = Scenario(
        name="Read", goal="A note", requirements=("names CAMT.053", "names the menu"), task_type=TaskType.CODE_REVIEW
    )
    workshop = ScenarioWorkshop([note, read_only], lambda: sandbox.load("unsafe-local"))
    trace, model = await tried(workshop, "You can import CAMT.053 now.", task=note.task())
    assert len(model.requests) == 1
    assert (await workshop.verify(note.task(), trace)).value == 1.0
    reward = await workshop.verify(read_only.task(), trace)
    assert (reward.name, reward.value) == ("reading", 0.5)
    assert "only read, not run" in reward.evidence
    await workshop.close()


async def test_a_terse_model_is_asked_once(workshop: ScenarioWorkshop) -> None:
    model = Scripted("{}", dialect="terse")
    agent = Coder(model=model, workshop=workshop)
    trace = await attempt(agent, ADDING.task(), id="t", clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    assert trace.error is None
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("arguments", "result"), [("{}", "{}"), ("ls", "a.py"), ('{"files": {}}', "[]"), ("[" * 100_000, "{}")]
)
def test_another_agents_tool_of_the_same_name_is_no_round(arguments: str, result: str) -> None:
    trace = done(used("sandbox", result, arguments=arguments))
    assert (tries(trace), last_files(trace)) == ([], {})
