"""The agent that writes code: files out of a reply, run in a sandbox, and repaired after what was found, a few times.

Every round is on the trace: the exchange with the model, and what the sandbox made of the files.
"""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from journeyman.agents import blocks, coder_prompts
from journeyman.agents.answer import Answer, Choose, call_of, nothing
from journeyman.candidate import BASE
from journeyman.models.base import Model, Request
from journeyman.task import Task
from journeyman.trace import Step, ToolCall, Trace

TOOL = "sandbox"
"""The name of the tool in traces."""
ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What trying out the files gave."""

    passed: bool | None
    """`None` when there was nothing to run them by."""
    text: str
    """As much as the agent may know."""
    level: str
    """How strong the walls were."""
    seconds: float | None = None


class Workshop(Protocol):
    """Where code is tried out."""

    def runs(self, task: Task) -> bool:
        """Whether the task is to be done in code. Any other is answered in one call."""

    def given(self, task: Task) -> Mapping[str, str]:
        """The files that the agent begins with."""

    async def try_out(self, task: Task, files: Mapping[str, str]) -> Findings:
        """Run the files, and as much of the task's checks as the agent may know of.

        Raises:
            SandboxError: They could not be run.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Coder:
    """Writes, runs, reads the failure, repairs. Implements `rollout.Agent`."""

    model: Model
    workshop: Workshop
    choose: Choose = nothing
    """Which bullets stand in the prompt of a task."""
    candidate_id: str = BASE
    temperature: float | None = None
    seed: int | None = None
    rounds: int = ROUNDS
    """Calls at most: the first one writes, the others repair."""

    async def run(self, task: Task) -> AsyncIterator[Step]:
        if not self.workshop.runs(task):
            async for step in self._answer.run(task):
                yield step
            return
        bullets = tuple(self.choose(task))
        messages = coder_prompts.write(task, bullets, self.model.dialect)
        files = dict(self.workshop.given(task))
        for number in range(1, self.rounds + 1):
            request = Request(messages=messages, temperature=self.temperature, seed=self.seed, task_id=task.id)
            reply = await self.model.complete(request)
            yield call_of(request, reply, shown=bullets)
            wrote = blocks.written(reply.text)
            found = "\n".join(wrote.faults)
            if wrote.files:
                files |= wrote.files
                findings = await self.workshop.try_out(task, files)
                yield _tried(files, findings, number)
                if findings.passed is not False and not wrote.faults:
                    return
                found = f"{findings.text}\n{found}".strip()
            if self.model.dialect == "terse":
                # It knows two formats, and none in which it could be told of its failure.
                return
            messages = coder_prompts.repair(messages, reply.text, found)

    @property
    def _answer(self) -> Answer:
        return Answer(
            model=self.model,
            choose=self.choose,
            candidate_id=self.candidate_id,
            temperature=self.temperature,
            seed=self.seed,
        )


def _tried(files: Mapping[str, str], findings: Findings, number: int) -> ToolCall:
    found = {"passed": findings.passed, "found": findings.text, "level": findings.level}
    return ToolCall(
        tool=TOOL,
        arguments=json.dumps({"round": number, "files": dict(files)}, ensure_ascii=False),
        result=json.dumps(found, ensure_ascii=False),
        ok=findings.passed is not False,
        seconds=findings.seconds,
    )


def tries(trace: Trace) -> list[tuple[Mapping[str, str], Findings]]:
    """The files and findings of every round of a coder's trace, oldest first. None of another agent's, whatever its tools."""
    found = []
    for step in trace.steps:
        if isinstance(step, ToolCall) and step.tool == TOOL:
            try:
                files, said = json.loads(step.arguments)["files"], json.loads(step.result)
                findings = Findings(passed=said["passed"], text=said["found"], level=said["level"], seconds=step.seconds)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
            found.append((files, findings))
    return found
