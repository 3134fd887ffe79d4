"""The development components as a reward on a trace."""

import json
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace

from journeyman.errors import JourneymanError, MissingExtra
from journeyman.rewards.base import RewardResult
from journeyman.rewards.checks import Check, run_checks
from journeyman.rewards.development.combine import VERSION, Development
from journeyman.rewards.development.functionality import measure_coverage
from journeyman.rewards.development.work import Work, checked
from journeyman.rewards.verdict import UNREACHABLE, unknown, version
from journeyman.sandbox.base import Sandbox
from journeyman.trace import ToolCall, Trace

_WRITING = frozenset({"write_file", "create_file", "save_file", "edit_file", "write", "create"})
_PATH = ("path", "file_path", "filename", "file")
_TEXT = ("content", "contents", "file_text", "text", "code")


def work_of(trace: Trace) -> Work:
    """What the trace alone shows: the files that its tools wrote whole. Not the checks, the runs and the files before."""
    after: dict[str, str] = {}
    for step in trace.steps:
        if isinstance(step, ToolCall):
            after |= _written(step)
    return Work(trace=trace, after=after)


def _written(call: ToolCall) -> dict[str, str]:
    """By a tool that takes many files, which were tried whether or not they passed; or one, if it went well."""
    try:
        found = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    if isinstance(files := found.get("files"), dict):
        return {path: text for path, text in files.items() if isinstance(text, str)}
    path = next((found[name] for name in _PATH if isinstance(found.get(name), str)), None)
    text = next((found[name] for name in _TEXT if isinstance(found.get(name), str)), None)
    if path is None or text is None or not call.ok or call.tool.lower() not in _WRITING:
        return {}
    return {path: text}


async def examine(
    work: Work, sandbox: Sandbox, checks: Sequence[Check], *, edges: Container[str] = (), setup: str = ""
) -> Work:
    """The same work with what its checks find, what of it the tests among them execute, and what running them took.

    Args:
        edges: Names of the checks that try edge cases.
        setup: A shell script by the task's author that is run before each check.

    Raises:
        SandboxError: The sandbox failed while coverage was measured. Where it fails in a check, that is unknown.
    """
    files = {path: text.encode(errors="backslashreplace") for path, text in work.after.items()}
    results = await run_checks(sandbox, checks, files=files, setup=setup)
    tests = {f"test_check_{number}.py": check.text for number, check in enumerate(checks) if check.kind == "pytest"}
    coverage = await measure_coverage(sandbox, work.after, tests) if tests else None
    outcomes = tuple(result.outcome for result in results if result.outcome is not None)
    return replace(work, checks=checked(results, edges), coverage=coverage, outcomes=(*work.outcomes, *outcomes))


@dataclass(frozen=True, slots=True)
class DevelopmentReward:
    """All components of one trace as one reward.

    `find` gives the work that a trace is the record of, with its checks and runs. The default knows the trace alone, so there
    functionality cannot be told, and neither can the whole.
    """

    development: Development = field(default_factory=Development)
    find: Callable[[Trace], Work] = work_of
    weight: float = 1.0
    name: str = "development"

    @property
    def version(self) -> str:
        return version(VERSION, self.development)

    def compute(self, trace: Trace) -> RewardResult:
        """Unknown as well when ruff or bandit did not answer.

        Raises:
            MissingExtra: ruff, radon or bandit is not installed.
        """
        try:
            return self.development.compute(self.find(trace))
        except MissingExtra:
            raise
        except JourneymanError as error:
            return unknown(str(error), is_binary=False, **{UNREACHABLE: True})
