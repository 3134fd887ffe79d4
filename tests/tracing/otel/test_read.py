"""Spans become traces: the tree, what is told twice, what comes late, errors, conversations."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.trace import AgentCall, ModelCall, Reasoning, ToolCall
from journeyman.tracing.otel.read import without_duplicates
from journeyman.tracing.otel.wire import RawSpan, of_object
from tests.tracing.otel import made
from tests.tracing.otel.made import chat, span, steps_of, trace

WEATHER = {
    "role": "assistant",
    "parts": [{"type": "tool_call", "id": "call_1", "name": "weather", "arguments": {"city": "Rome"}}],
}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "guide", "gen_ai.conversation.id": "visit 7"}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "weather",
    "gen_ai.tool.call.id": "call_1",
    "gen_ai.tool.call.result": "sunny",
}


def messages(*found: Mapping[str, Any]) -> str:
    return json.dumps(found)


def said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def visit() -> list[dict[str, Any]]:
    """An agent that asks a model, uses the tool that it asks for, and asks again; an HTTP request within the first call."""
    first = chat("Weather in Rome?", "", **{"gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 5})
    first["gen_ai.output.messages"] = messages(WEATHER)
    answer = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "call_1", "response": "sunny"}]}
    second = chat("", "It is sunny.", **{"gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 6})
    second["gen_ai.input.messages"] = messages(said("user", "Weather in Rome?"), WEATHER, answer)
    return [
        span(1, {**AGENT, "gen_ai.usage.input_tokens": 50, "gen_ai.usage.output_tokens": 11}),
        span(2, first, parent=1),
        span(3, {"http.request.method": "POST", "server.address": "api"}, parent=2),
        span(4, TOOL, parent=1),
        span(5, {"http.request.method": "GET"}, parent=4),
        span(
            6, chat("What is sunny?", "No rain.", **{"gen_ai.usage.input_tokens": 3, "gen_ai.usage.output_tokens": 2}), parent=5
        ),
        span(7, second, parent=1),
    ]


def test_an_agents_visit_becomes_a_tree_of_steps() -> None:
    found = trace(*visit(), **{"service.name": "shop"})
    agent, first, tool, inner, second = found.steps
    assert isinstance(agent, AgentCall)
    assert (agent.agent, agent.parent) == ("guide", None)
    assert isinstance(first, ModelCall)
    assert isinstance(second, ModelCall)
    assert isinstance(tool, ToolCall)
    assert isinstance(inner, ModelCall)
    assert (tool.id, tool.parent, tool.arguments, tool.result) == ("call_1", first.id, '{"city": "Rome"}', "sunny")
    assert inner.parent == tool.id, "what happens below a span that is no step belongs to the step above that"
    assert (first.parent, second.parent) == (agent.id, agent.id)
    assert (found.agent, found.session, found.query, found.reply) == ("guide", "visit 7", "Weather in Rome?", "It is sunny.")
    assert found.source == "otlp"
    assert found.raw["resource"] == {"service.name": "shop"}


def test_tokens_of_an_agent_are_not_added_to_those_of_its_calls() -> None:
    found = trace(*visit())
    assert (found.input_tokens, found.output_tokens) == (53, 13)


def test_a_tool_call_that_was_asked_for_and_used_counts_once() -> None:
    assert [call.tool for call in trace(*visit()).tool_calls] == ["weather"]


def test_a_conversation_that_is_sent_again_is_kept_once() -> None:
    first, _, second = trace(*visit()).calls
    assert second.continues == first.id
    assert [(each.role, each.text, each.answers) for each in second.messages] == [("tool", "sunny", "call_1")]


def test_the_same_question_asked_again_continues_nothing() -> None:
    first, again = trace(span(1, chat("Hello", "Hi")), span(2, chat("Hello", "Hi"))).calls
    assert again.continues is None
    assert again.messages == first.messages


_ROWS = (
    made.batch(*visit(), **{"service.name": "shop"}).spans
    + of_object(made.logs([made.record(1, "gen_ai.user.message", {"content": "hello"})])).spans
)


@given(st.permutations(_ROWS), st.lists(st.sampled_from(_ROWS)))
def test_any_order_and_any_repetition_gives_the_same_trace(rows: list[RawSpan], again: list[RawSpan]) -> None:
    assert made.read([*rows, *again]) == made.read(_ROWS)


@given(st.sets(st.sampled_from(range(len(_ROWS)))))
def test_a_span_that_comes_late_joins_its_trace(late: set[int]) -> None:
    early = [row for number, row in enumerate(_ROWS) if number not in late]
    made.read(early)
    assert made.read([*early, *(_ROWS[number] for number in late)]) == made.read(_ROWS)


def test_a_span_that_is_reported_again_when_it_ends_is_believed_then() -> None:
    running = made.batch(span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, endTimeUnixNano="0")).spans
    ended = made.batch(span(1, chat("Hello", "Hi"))).spans
    for rows in (running + ended, ended + running):
        (found,) = made.read(rows)
        assert found.reply == "Hi"


def test_a_call_within_a_call_is_the_same_call() -> None:
    outer = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 40, "llm.token_count.completion": 4}
    inner = chat("", "", **{"gen_ai.response.id": "msg_1", "gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 4})
    found = trace(span(1, outer), span(2, {"http.route": "/"}, parent=1), span(3, inner, parent=2))
    (call,) = found.steps
    assert isinstance(call, ModelCall)
    assert (call.input_tokens, call.output_tokens, call.response_id) == (40, 4, "msg_1")
    assert call.raw["gen_ai.provider.name"] == "openai", "what the inner span says is kept too"


def test_a_function_around_several_calls_is_no_call() -> None:
    outer = {"ai.operationId": "ai.generateText", "ai.usage.inputTokens": 9, "ai.telemetry.functionId": "plan"}
    inner = {"ai.operationId": "ai.generateText.doGenerate"}
    first = {**inner, "ai.response.id": "r1", "ai.usage.inputTokens": 4}
    second = {**inner, "ai.response.id": "r2", "ai.usage.inputTokens": 5}
    found = trace(span(1, outer), span(2, first, parent=1), span(3, second, parent=1))
    assert [type(step) for step in found.steps] == [AgentCall, ModelCall, ModelCall]
    assert found.input_tokens == 9
    alone = trace(span(1, outer))
    assert [type(step) for step in alone.steps] == [ModelCall]


def test_a_call_within_a_call_that_has_another_answer_is_another_call() -> None:
    for more in ({"gen_ai.response.id": "r1"}, {}):
        inner = {**more, "gen_ai.response.id": "r2"} if more else {}
        found = trace(span(1, chat("Q", "A", **more)), span(2, chat("R", "B", **inner), parent=1))
        assert [call.reply for call in found.calls] == ["A", "B"]


def test_two_calls_within_a_call_were_made_by_an_agent() -> None:
    inner = [span(number, chat("Q", "A", **{"gen_ai.response.id": f"r{number}"}), parent=1) for number in (2, 3)]
    found = trace(span(1, {"openinference.span.kind": "LLM", "llm.token_count.prompt": 8}), *inner)
    assert [type(step) for step in found.steps] == [AgentCall, ModelCall, ModelCall]


def test_two_reports_of_one_answer_side_by_side_are_one_call_and_a_replay_is_two() -> None:
    of = chat("Q", "A", **{"gen_ai.response.id": "r1"})
    assert len(trace(span(1, of), span(2, of, at=1.2)).calls) == 1
    assert len(trace(span(1, of), span(2, of, at=60)).calls) == 2


def test_a_call_that_was_reported_in_two_traces_is_there_once() -> None:
    of = chat("Q", "A", **{"gen_ai.response.id": "r1"})
    bare = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r1"}
    elsewhere = {**span(9, bare, at=1.1), "traceId": "f" * 32}
    replayed = {**span(9, bare, at=99), "traceId": "e" * 32}
    found = made.read(made.batch(span(1, of), elsewhere, replayed).spans)
    assert sorted(each.id for each in without_duplicates(found)) == [made.TRACE, "e" * 32]


def test_a_failed_call_has_its_error_and_unknown_tokens() -> None:
    thrown = made.event("exception", {"exception.type": "openai.RateLimitError", "exception.message": "slow down"}, at=1)
    found = trace(
        span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, status={"code": 2}, events=[thrown]),
        span(2, chat("Q", "A", **{"gen_ai.usage.input_tokens": 5})),
    )
    first, _ = found.calls
    assert first.error == found.error == "RateLimitError: slow down"
    assert first.input_tokens is None
    assert found.input_tokens is None, "a sum with an unknown part is unknown"


@pytest.mark.parametrize(
    ("status", "result", "ok"),
    [({}, "sunny", True), ({"code": "STATUS_CODE_ERROR"}, "", False), ({}, '{"error": "no such city"}', False)],
)
def test_a_tool_fails_by_its_status_or_by_what_it_answers(status: Mapping[str, Any], result: str, ok: bool) -> None:
    (call,) = trace(span(1, {**TOOL, "gen_ai.tool.call.result": result}, status=status)).tool_calls
    assert call.ok is ok


def test_a_tool_without_a_call_id_is_joined_by_its_name_once_for_each_call() -> None:
    asks = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    wish = {"role": "assistant", "parts": [{"type": "tool_call", "name": "weather", "arguments": {}}]}
    use = {"openinference.span.kind": "TOOL", "tool.name": "weather", "output.value": "sunny"}
    found = trace(
        span(1, {**asks, "gen_ai.output.messages": messages(wish)}),
        span(2, use),
        span(3, {**asks, "gen_ai.output.messages": messages(wish)}),
        span(4, use),
    )
    assert [call.parent for call in found.tool_calls] == [f"{1:016x}", f"{3:016x}"]


def test_a_tool_that_no_span_tells_of_has_the_answer_that_the_model_was_sent() -> None:
    spans = [each for each in visit() if each["spanId"] not in (f"{4:016x}", f"{5:016x}", f"{6:016x}")]
    (call,) = trace(*spans).tool_calls
    assert (call.tool, call.arguments, call.result, call.ok) == ("weather", '{"city": "Rome"}', "sunny", True)


def test_what_a_model_thought_is_a_step_of_its_own() -> None:
    of = chat("Q", "")
    parts = [{"type": "reasoning", "content": "Hm."}, {"type": "text", "content": "A"}]
    of["gen_ai.output.messages"] = messages({"role": "assistant", "parts": parts})
    call, thought = trace(span(1, of)).steps
    assert isinstance(call, ModelCall)
    assert isinstance(thought, Reasoning)
    assert (call.reply, thought.text, thought.parent) == ("A", "Hm.", call.id)


def test_a_trace_without_an_agents_work_is_none() -> None:
    assert made.read(made.batch(span(1, {"http.request.method": "GET"}), span(2, {}, parent=1)).spans) == []


def test_spans_that_are_each_others_parents_are_steps_all_the_same() -> None:
    found = trace(span(1, AGENT, parent=2), span(2, AGENT, parent=1), span(3, chat("Q", "A"), parent=3))
    assert len(found.steps) == 3


def test_an_agent_may_name_its_task_its_candidate_and_its_domain() -> None:
    found = trace(
        span(1, chat("Q", "A", **{"journeyman.task": "t1", "journeyman.candidate": "c1", "journeyman.domain": "travel"}))
    )
    assert (found.task_id, found.candidate_id, found.domain) == ("t1", "c1", "travel")
    plain = trace(span(1, chat("Q", "A")))
    assert (plain.task_id, plain.candidate_id, plain.domain) == (plain.id, "base", "general")


def test_all_attributes_and_events_are_kept() -> None:
    of = chat("Q", "A", **{"app.flag": True, "app.list": ["a"]})
    (call,) = trace(span(1, of, events=[made.event("note", {"n": 1}), made.event("chunk", {})])).calls
    assert {**call.raw, **of} == dict(call.raw)
    assert call.raw["span.events"] == [{"name": "note", "attributes": {"n": 1}}]
    assert json.loads(json.dumps(call.raw)) == call.raw


def test_attributes_of_another_recorder_are_read_in_the_same_way() -> None:
    (call,) = steps_of(chat("Q", "A"), id="x")
    assert isinstance(call, ModelCall)
    assert (call.id, call.prompt, call.reply, call.seconds) == ("x", "user: Q", "A", None)
