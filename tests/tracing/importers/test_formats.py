"""Files as others wrote them: what they tell comes over whole, and as a person would read it."""

import json
from pathlib import Path

import pytest

from journeyman.core.trace import AgentCall, ModelCall, Reasoning, ToolCall, Trace
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers import Problem, read

SAMPLES = Path(__file__).parents[2] / "data" / "collect"
TAU = Path(__file__).parents[2] / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"


def traces(path: Path | str) -> list[Trace]:
    """Those of a file in which nothing is broken."""
    found = list(read(SAMPLES / path))
    assert [str(one) for one in found if isinstance(one, Problem)] == []
    return [one.trace for one in found if isinstance(one, RecordedTrace)]


def one(path: str) -> Trace:
    (trace,) = traces(path)
    return trace


@pytest.mark.parametrize(
    ("path", "format", "count", "calls", "tools", "tokens", "rewards"),
    [
        (TAU, "tau-bench", 4, 49, 6, None, [1, 1, 0, 0]),
        ("agentgym/webshop.jsonl", "sharegpt", 3, 3, 0, None, [0, 0] * 3),
        ("chat/openai_cookbook_toy.jsonl", "chat", 4, 7, 0, None, []),
        ("execution-log/executions.jsonl", "execution-log", 3, 4, 0, None, [1, 0]),
        ("inspect/guess_number.eval", "inspect", 1, 6, 5, None, [0]),
        ("inspect/images.json.gz", "inspect", 1, 1, 0, (323, 3), [0]),
        ("inspect/popularity.json.gz", "inspect", 3, 3, 0, (192, 6), [1, 1, 0]),
        ("inspect/streaming.eval", "inspect", 4, 4, 0, (252, 6), [1, 0, 1, 1]),
        ("kayba/car_bench.jsonl", "tau-bench", 3, 3, 0, None, []),
        ("kayba/openclaw.jsonl", "openclaw", 1, 5, 4, (70849, 1139), []),
        ("langfuse/claude-agent-2025-12-22.trace.json.gz", "langfuse", 1, 4, 2, (34, 232), [0, 1, 0]),
        ("langfuse/koog-2025-08-26.trace.json.gz", "langfuse", 1, 2, 2, (215, 125), []),
        ("langfuse/langgraph-python-2025-08-22.trace.json.gz", "langfuse", 1, 2, 1, (168, 66), [0.1, 0]),
        ("langfuse/openai-agents-2025-09-30.trace.json.gz", "langfuse", 1, 2, 1, (140, 44), [0.8, 0]),
        ("langfuse/vercel-aisdk-2025-11-17.trace.json.gz", "langfuse", 1, 1, 1, (62, 85), [0, 0]),
        ("langsmith/js_stream.json", "langsmith", 1, 1, 0, (9, 9), []),
        ("langsmith/py.json", "langsmith", 1, 1, 0, (9, 9), []),
        ("langsmith/py_stream_no_usage.json", "langsmith", 1, 1, 0, None, []),
        ("swe-agent/function_calling_simple.traj.gz", "swe-agent", 1, 5, 5, None, []),
        ("swe-agent/mini_local.traj.json.gz", "mini-swe-agent", 1, 2, 2, None, []),
        ("swe-agent/networking_1.traj.gz", "swe-agent", 1, 4, 4, None, []),
        ("swe-agent/sweagenttestrepo-1c2844.traj.gz", "swe-agent", 1, 5, 5, None, []),
        ("tau2-bench/airline.json.gz", "tau2-bench", 2, 11, 6, (79543, 1791), [0, 1]),
    ],
)
def test_a_real_file_comes_in_whole(
    path: str, format: str, count: int, calls: int, tools: int, tokens: tuple[int, int] | None, rewards: list[float]
) -> None:
    found = traces(path)
    assert {trace.source for trace in found} == {format}
    assert (len(found), sum(len(trace.calls) for trace in found), sum(len(trace.tool_calls) for trace in found)) == (
        count,
        calls,
        tools,
    )
    if tokens is not None:
        assert sum(trace.input_tokens or 0 for trace in found) == tokens[0]
        assert sum(trace.output_tokens or 0 for trace in found) == tokens[1]
    else:
        assert all(trace.input_tokens is None for trace in found if trace.calls)
    values = [reward.value for trace in found for reward in trace.rewards]
    assert sorted(values, key=str) == sorted(map(float, rewards), key=str)


@pytest.mark.parametrize("path", sorted(path for path in SAMPLES.rglob("*") if path.is_file()), ids=lambda path: path.name)
def test_ids_are_unique_within_a_file_the_same_each_time_and_every_parent_is_known(path: Path) -> None:
    first = [found.trace for found in read(path) if isinstance(found, RecordedTrace)]
    again = [found.trace for found in read(path) if isinstance(found, RecordedTrace)]
    assert first == again
    assert len({trace.id for trace in first}) == len(first)
    assert "" not in {trace.id for trace in first} | {trace.task_id for trace in first}
    for trace in first:
        ids = [step.id for step in trace.steps]
        assert len(set(ids)) == len(ids)
        assert {step.parent for step in trace.steps} - {None} <= set(ids)
        assert trace.started_at.tzinfo is not None


def test_a_run_of_tau2_bench_has_times_tokens_and_what_its_checks_said() -> None:
    lost, won = sorted(traces("tau2-bench/airline.json.gz"), key=lambda trace: trace.rewards[0].value or 0)
    assert (won.domain, won.agent, won.calls[0].model) == ("airline", "experimental_agent", "claude-opus-4-6")
    assert won.seconds is not None
    assert won.calls[0].messages[0].text == "Hi! How can I help you today?"
    assert all(call.cost and call.started_at and call.input_tokens for call in won.calls)
    assert won.rewards[0].evidence == "DB: 1.0; COMMUNICATE: 1.0"
    assert "not met" in lost.rewards[0].evidence
    assert won.raw["user_scenario"]["instructions"]["domain"] == "airline"


def test_submitted_is_not_success() -> None:
    trace = one("swe-agent/networking_1.traj.gz")
    assert (trace.rewards, trace.label, trace.error) == ((), None, None)
    assert trace.raw["exit_status"] == "submitted"
    assert trace.output is not None
    assert trace.output.startswith("flag{")


def test_a_command_of_swe_agent_is_a_call_with_what_it_answered() -> None:
    trace = one("swe-agent/sweagenttestrepo-1c2844.traj.gz")
    assert [call.tool for call in trace.tool_calls] == ["find_file", "open", "edit", "bash", "bash"]
    assert trace.tool_calls[0].arguments == '{"file_name":"missing_colon.py"}'
    assert trace.tool_calls[0].result.startswith("Found 1 matches")
    assert trace.tool_calls[-1].arguments == '{"command": "submit"}'
    assert all(call.seconds for call in trace.tool_calls)
    assert trace.calls[0].model == "gpt-4o"
    assert trace.raw["model_stats"]["tokens_sent"] == 7141
    assert trace.tool_calls[0].parent == trace.calls[0].id


def test_a_block_of_shell_is_a_call_of_mini_swe_agent() -> None:
    first, last = one("swe-agent/mini_local.traj.json.gz").tool_calls
    assert json.loads(first.arguments) == {"command": "echo 'hello world'"}
    assert (first.ok, "hello world" in first.result) == (True, True)
    assert "COMPLETE_TASK" in last.arguments


def test_a_generation_around_another_is_the_same_call_and_counts_once() -> None:
    trace = one("langfuse/vercel-aisdk-2025-11-17.trace.json.gz")
    outer, inner, tool = trace.steps
    assert isinstance(outer, AgentCall)
    assert isinstance(inner, ModelCall)
    assert isinstance(tool, ToolCall)
    assert (inner.parent, tool.parent) == (outer.id, outer.id)
    assert (inner.input_tokens, inner.cost, inner.model) == (62, 0.000927499999, "gpt-5")
    assert (tool.tool, tool.arguments) == ("getWeather", '{"location":"San Francisco"}')
    assert inner.messages[0].text == "What is the weather like today in San Francisco?"


def test_spans_of_tools_are_tool_calls_whatever_langfuse_calls_them() -> None:
    assert [call.tool for call in one("langfuse/koog-2025-08-26.trace.json.gz").tool_calls] == ["ByeTool", "HelloTool"]
    (search,) = one("langfuse/langgraph-python-2025-08-22.trace.json.gz").tool_calls
    assert (search.tool, search.arguments) == ("Web-Search", "{'query': 'example'}")
    assert search.result.startswith('[{"url"')


def test_scores_of_which_more_is_worse_have_no_weight() -> None:
    scores = one("langfuse/claude-agent-2025-12-22.trace.json.gz").rewards
    assert {reward.name: reward.weight for reward in scores} == {"correctness": 1, "hallucination": 0, "toxicity": 0}
    assert all(reward.evidence for reward in scores)


def test_what_was_posted_and_patched_is_one_run() -> None:
    (call,) = one("langsmith/py_stream_no_usage.json").steps
    assert isinstance(call, ModelCall)
    assert (call.input_tokens, call.output_tokens) == (None, None)
    assert (call.prompt, call.finish, call.error) == ("user: howdy", "stop", None)
    assert call.reply
    assert call.seconds is not None
    assert call.first_token_seconds is not None
    assert call.first_token_seconds < call.seconds
    assert one("langsmith/js_stream.json").calls[0].finish == "stop"


def test_the_grader_of_inspect_is_no_step_of_the_agent_and_pictures_are_named() -> None:
    trace = one("inspect/images.json.gz")
    assert "[image/png" in trace.calls[0].prompt
    assert (trace.task_id, trace.output, trace.rewards[0].name) == ("images/1", "[Abstract]", "match")
    assert trace.calls[0].started_at is not None


def test_a_cancelled_log_says_so_and_its_samples_are_whole() -> None:
    found = traces("inspect/popularity.json.gz")
    assert {trace.raw["status"] for trace in found} == {"cancelled"}
    assert {trace.error for trace in found} == {None}
    assert round(sum(trace.rewards[0].value or 0 for trace in found) / 3, 3) == 0.667


def test_a_log_without_samples_has_no_traces_and_nothing_is_broken() -> None:
    assert list(read(SAMPLES / "inspect" / "no-samples.json.gz")) == []


def test_errors_of_tools_come_over_also_where_their_calls_are_not_recorded() -> None:
    calls = one("inspect/tool_call_error.json.gz").tool_calls
    assert {call.ok for call in calls} == {False}
    assert calls[-1].error == "output_limit: The tool output limit of 10 MiB was exceeded."


def test_no_reward_is_not_a_reward_of_zero() -> None:
    for found in read(SAMPLES / "kayba" / "car_bench.jsonl"):
        assert isinstance(found, RecordedTrace)
        assert (found.reward, found.trace.rewards, found.trace.label) == (None, (), None)
        assert "[content " in found.trace.calls[0].prompt


def test_an_execution_log_tells_its_plan_and_what_it_cost() -> None:
    done, failed, open_ = traces("execution-log/executions.jsonl")
    assert (done.query, done.seconds, done.raw["cost"], done.cost) == (
        "Summarize the report, translate it to French, and check the translation.",
        1.2,
        0.045,
        None,
    )
    assert [(call.model, call.reply, call.raw.get("after")) for call in done.calls] == [
        ("worker 2", "A summary.", None),
        ("worker 0", "Un résumé.", [0]),
        ("worker 1", "It is right.", [1]),
    ]
    assert (failed.error, failed.cost, failed.rewards[0].value) == ("Failed: the worker timed out", 0.002, 0)
    assert (open_.rewards, open_.error) == ((), None)


def test_a_session_of_openclaw_has_what_was_thought_and_what_the_program_said_itself_is_no_call() -> None:
    trace = one("kayba/openclaw.jsonl")
    assert trace.session == trace.id == "f967d602-325a-4a45-8d54-ee17484cfd96"
    assert {call.model for call in trace.calls} == {"anthropic/claude-sonnet-4-5"}
    assert trace.calls[0].messages[0].text.startswith("✅ New session started")
    assert any(isinstance(step, Reasoning) for step in trace.steps)
    assert [call.tool for call in trace.tool_calls] == ["read", "exec", "read", "read"]
    assert all(call.started_at and call.started_at > NO_TIME for call in trace.calls)


def test_the_items_of_the_responses_api_are_calls_and_answers() -> None:
    first, second = one("langfuse/openai-agents-2025-09-30.trace.json.gz").calls
    assert first.reply == ""
    assert [(message.role, message.text) for message in second.messages] == [
        ("user", "What's the weather in Tokyo?"),
        ("assistant", '[calls get_weather {"city":"Tokyo"}]'),
        ("tool", "The weather in Tokyo is sunny."),
    ]


def test_an_outer_part_comes_before_the_inner_ones_that_began_with_it() -> None:
    steps = one("langfuse/openai-agents-2025-09-30.trace.json.gz").steps
    places = {step.id: at for at, step in enumerate(steps)}
    assert all(step.parent is None or places[step.parent] < places[step.id] for step in steps)
