"""Runs of smolagents: tasks, steps, tool calls, what came of them and tokens are as the library kept them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.trace import Trace
from journeyman.tracing.importers import Problem, read

SAMPLES = Path(__file__).parents[2] / "data" / "collect" / "smolagents"
ASKED = "How many pieces are in Oslo and Bergen together?"


def traces(path: Path) -> list[Trace]:
    found = list(read(path))
    assert [each for each in found if isinstance(each, Problem)] == []
    assert {each.format for each in found if not isinstance(each, Problem)} == {"smolagents"}
    return [each.trace for each in found if not isinstance(each, Problem)]


def _kept(steps: Sequence[dict[str, Any]]) -> tuple[int, int, int]:
    """What the library itself counted: its model's calls and tokens."""
    counted = [step["token_usage"] for step in steps if step.get("token_usage")]
    return len(counted), sum(each["input_tokens"] for each in counted), sum(each["output_tokens"] for each in counted)


@pytest.mark.parametrize(
    ("name", "calls", "error"),
    [
        ("run_result.json", ["python_interpreter"] * 3, None),
        ("tool_calling_steps.jsonl", ["stock", "stock", "stock", "final_answer"], None),
        ("max_steps_succinct.json", ["python_interpreter"] * 2, "AgentMaxStepsError: Reached max steps."),
    ],
)
def test_a_run_is_a_trace_with_what_the_library_counted(name: str, calls: list[str], error: str | None) -> None:
    text = (SAMPLES / name).read_text()
    told = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
    (trace,) = traces(SAMPLES / name)
    steps = told["steps"] if isinstance(told, dict) else told
    assert (len(trace.calls), trace.input_tokens, trace.output_tokens) == _kept(steps)
    assert (trace.input, trace.agent, trace.error) == (ASKED, "smolagents", error)
    assert [call.tool for call in trace.tool_calls] == calls
    seen = {step["observations"] for step in steps if step.get("observations")}
    assert {call.result for call in trace.tool_calls if call.ok} == seen
    if isinstance(told, dict):
        # Those of the whole run are the sum of its steps.
        assert (trace.input_tokens, trace.output_tokens) == (
            told["token_usage"]["input_tokens"],
            told["token_usage"]["output_tokens"],
        )
        assert (trace.raw["output"], trace.raw["state"]) == (11, "success")


def test_a_tool_that_failed_says_so_and_the_model_is_told() -> None:
    (trace,) = traces(SAMPLES / "run_result.json")
    first, second, third = trace.tool_calls
    assert (first.ok, second.ok, third.ok) == (True, False, True)
    assert first.arguments == 'print(stock(city="Oslo"))'
    assert "there is no store in Atlantis" in (second.error or "")
    # An answer without code is no call of a tool.
    assert "Your code snippet is invalid" in trace.calls[2].prompt
    (trace,) = traces(SAMPLES / "tool_calling_steps.jsonl")
    assert [(call.arguments, call.ok) for call in trace.tool_calls][2] == ('{"city": "Atlantis"}', False)


@pytest.mark.slow
def test_what_the_library_writes_today_is_read(tmp_path: Path) -> None:
    smolagents = pytest.importorskip("smolagents", reason="smolagents is not installed")

    class Scripted(smolagents.Model):  # type: ignore[misc, name-defined]
        replies = ("print(6 * 7)", "1 / 0", "final_answer(6 * 7)", "final_answer('still')")
        asked = 0

        def generate(self, messages: Any, **more: Any) -> Any:
            self.asked += 1
            usage = smolagents.monitoring.TokenUsage(input_tokens=100 * self.asked, output_tokens=self.asked)
            said = f"Thought: go on.\n<code>\n{self.replies[self.asked - 1]}\n</code>"
            return smolagents.ChatMessage(role=smolagents.MessageRole.ASSISTANT, content=said, token_usage=usage)

    agent = smolagents.CodeAgent(tools=[], model=Scripted(), verbosity_level=-1)
    agent.run("What is six times seven?")
    agent.run("Is it so still?", reset=False)
    for name, steps in (("full", agent.memory.get_full_steps()), ("succinct", agent.memory.get_succinct_steps())):
        for file in (f"{name}.json", f"{name}.jsonl"):
            lines = json.dumps(steps) if file.endswith("n") else "".join(json.dumps(step) + "\n" for step in steps)
            (tmp_path / file).write_text(lines)
            one, other = traces(tmp_path / file)
            assert (one.input, other.input) == ("What is six times seven?", "Is it so still?")
            assert ([call.ok for call in one.tool_calls], len(other.tool_calls)) == ([True, False, True], 1)
            assert (one.input_tokens, one.output_tokens, other.input_tokens, other.output_tokens) == (600, 6, 400, 4)
            assert (one.raw["output"], other.raw["output"]) == (42, "still")
            assert (one.calls[0].messages[0].role == "system") == (name == "full")
