"""Real exports, as a person who reads them would tell what happened."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.trace import AgentCall, Message, ModelCall, ToolCall, Trace, total
from journeyman.tracing.importers.otlp import SpanFiles, read_files
from journeyman.tracing.otel.wire import of_object
from tests.tracing.otel import made
from tests.tracing.otel.made import span, steps_of, trace

DATA = Path(__file__).parents[2] / "data" / "otlp"
REAL = os.environ.get("JOURNEYMAN_DATA")
needs_data = pytest.mark.skipif(not REAL, reason="JOURNEYMAN_DATA names no folder of recorded data")
INSTRUMENTATIONS = ["openai_v2", "traceloop_openai", "openinference_openai"]
WITH_CONTENT = INSTRUMENTATIONS[1:]


def collected(path: Path) -> SpanFiles:
    found = read_files([path])
    assert found.problems == ()
    return found


def sample(name: str) -> dict[str, Trace]:
    """The traces of a sample by the end of the id of their one answer."""
    return {(each.calls[0].response_id or "")[-6:]: each for each in collected(DATA / f"{name}.json").traces}


def attributes(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text())
    return found


@pytest.mark.parametrize("name", INSTRUMENTATIONS)
def test_every_instrumentation_counts_the_same(name: str) -> None:
    found = sample(name)
    assert [each.source for each in found.values()] == ["otlp"] * 6
    counts = Counter((each.input_tokens, each.output_tokens) for each in found.values())
    assert counts == Counter([(12, 12), (75, 51), (99, 25), (26, 133), (None, None), (76, 35)])


@pytest.mark.parametrize("name", WITH_CONTENT)
def test_a_question_and_its_answer(name: str) -> None:
    (call,) = next(each for each in sample(name).values() if each.output_tokens == 12).calls
    assert (call.prompt, call.reply) == ("user: Say this is a test", "This is a test. How can I assist you further?")
    assert (call.model, call.finish, call.error) == ("gpt-4o-mini-2024-07-18", "stop", None)


@pytest.mark.parametrize("name", WITH_CONTENT)
def test_tools_that_are_asked_for(name: str) -> None:
    found = next(each for each in sample(name).values() if each.output_tokens == 51)
    call, *tools = found.steps
    assert [(tool.tool, json.loads(tool.arguments), tool.parent) for tool in tools if isinstance(tool, ToolCall)] == [
        ("get_current_weather", {"location": "Seattle, WA"}, call.id),
        ("get_current_weather", {"location": "San Francisco, CA"}, call.id),
    ]
    assert isinstance(call, ModelCall)
    assert call.finish in ("tool_calls", "tool_call")
    assert call.first_token_seconds is not None
    assert 0 < call.first_token_seconds < (call.seconds or 0)


@pytest.mark.parametrize("name", WITH_CONTENT)
def test_tools_that_were_answered(name: str) -> None:
    (call,) = next(each for each in sample(name).values() if each.output_tokens == 25).calls
    assert [message.role for message in call.messages] == ["system", "user", "assistant", "tool", "tool"]
    assert call.messages[3] == Message(role="tool", text="50 degrees and raining", answers="call_vwOezSsB5j9ei1SSMlZjqx7g")
    assert call.reply.startswith("Today, the weather in Seattle is 50 degrees and raining")


@pytest.mark.parametrize("name", WITH_CONTENT)
def test_of_two_answers_the_first_is_the_reply(name: str) -> None:
    (call,) = next(each for each in sample(name).values() if each.output_tokens == 133).calls
    assert "until" not in call.reply
    assert call.reply.startswith(
        "I'm unable to provide real-time weather updates as my knowledge was last updated in October 2021"
    )


@pytest.mark.parametrize("name", WITH_CONTENT)
def test_a_function_call_of_old(name: str) -> None:
    (tool,) = next(each for each in sample(name).values() if each.output_tokens == 35).tool_calls
    assert tool.tool == "Joke"
    assert json.loads(tool.arguments)["punchline"] == "Because he was outstanding in his field!"


@pytest.mark.parametrize(
    "name",
    [
        "otel_genai_client_span_tool_calls",
        "otel_genai_deprecated_client_span_tool_calls",
        "openinference_client_span_tool_calls",
    ],
)
def test_one_call_in_three_conventions_is_one_call(name: str) -> None:
    (call,) = steps_of(attributes(name))
    assert isinstance(call, ModelCall)
    user, assistant, tool = call.messages
    assert (user.role, user.text) == ("user", "Weather in Paris?")
    assert assistant.text.startswith("Absolutely! Let me check the weather for you.\n[get_weather {")
    assert tool == Message(role="tool", text="rainy, 57°F", answers="1234")
    assert call.reply == "The weather in Paris is currently rainy with a temperature of 57°F."
    assert (call.model, call.input_tokens, call.output_tokens) == ("gpt-4-0613", 97, 52)


def test_a_tools_span_in_the_conventions() -> None:
    (tool,) = steps_of(attributes("otel_genai_tool_execution_span"))
    assert isinstance(tool, ToolCall)
    assert (tool.tool, tool.arguments, tool.id, tool.ok) == ("get_weather", '{"city": "New York"}', "1234", True)
    assert "sunny" in tool.result


def test_vercels_outer_and_inner_spans_in_traces_of_their_own_count_once() -> None:
    found = collected(DATA / "vercel_v6.json")
    assert found.spans == 8
    assert [(each.query, each.input_tokens, each.output_tokens) for each in found.traces] == [
        ("Write a haiku about programming.", 14, 20),
        ("What is 2 + 2?", 50, 9),
        ("Generate a simple recipe for scrambled eggs.", 63, 156),
        ("Write a short poem about TypeScript.", 15, 112),
    ]
    haiku = found.traces[0].calls[0]
    assert haiku.reply.startswith("Lines of code align")
    assert found.traces[3].calls[0].first_token_seconds == pytest.approx(0.4268535)


@pytest.mark.parametrize("name", ["openinference_anthropic", "traceloop_anthropic"])
def test_a_client_that_reports_beside_an_instrumentation_counts_once(name: str) -> None:
    found = collected(DATA / f"{name}.pb")
    calls = [call for each in found.traces for call in each.calls]
    assert (found.spans, len(found.traces), len(calls)) == (4, 2, 2)
    assert [(call.input_tokens, call.cached_tokens, call.output_tokens) for call in calls] == [(2060, 2000, 7)] * 2
    assert [call.reply for call in calls] == ["Let me look.", "It rains."]
    assert calls[1].messages[-1] == Message(role="tool", text="rain", answers="toolu_1")
    (tool,) = found.traces[0].tool_calls
    assert (tool.tool, tool.arguments, tool.id) == ("get_weather", '{"city": "Paris"}', "toolu_1")


def test_an_agent_of_pydantic_ai() -> None:
    (found,) = collected(DATA / "pydantic_ai.pb").traces
    agent, first, tool, second = found.steps
    assert isinstance(agent, AgentCall)
    assert isinstance(tool, ToolCall)
    assert (found.agent, found.query, found.reply) == ("weather_agent", "Weather in Paris?", '{"get_weather":"rain in a"}')
    assert (found.input_tokens, found.output_tokens) == (115, 16)
    assert (tool.tool, tool.arguments, tool.result, tool.parent) == ("get_weather", '{"city":"a"}', "rain in a", first.id)
    assert isinstance(second, ModelCall)
    assert second.continues == first.id
    assert (first.parent, second.parent) == (agent.id, agent.id)
    assert found.session


BODY = [
    made.record(1, "gen_ai.system.message", {"content": "Be brief."}),
    made.record(2, "gen_ai.user.message", {"content": "Weather?"}),
    made.record(
        3, "gen_ai.choice", {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Sunny."}}
    ),
]


def test_messages_in_log_records_join_the_span_that_they_name() -> None:
    of_span = made.batch(span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"})).spans
    of_logs = of_object(made.logs(BODY)).spans
    (found,) = made.read(of_logs + of_span)
    (call,) = found.calls
    assert (call.prompt, call.reply, call.finish) == ("system: Be brief.\n\nuser: Weather?", "Sunny.", "stop")
    (without,) = made.read(of_span)
    assert without.calls[0].prompt == ""


def test_messages_in_span_events() -> None:
    events = [
        made.event("gen_ai.system.message", {"content": "Be brief.", "gen_ai.system": "openai"}, at=1),
        made.event("gen_ai.user.message", {"gen_ai.event.content": '{"content": "Weather?"}'}, at=1),
        made.event("gen_ai.choice", {"message": '{"content": "Sunny."}', "finish_reason": "stop", "index": 0}, at=1.2),
    ]
    found = trace(span(1, {"gen_ai.system": "openai", "gen_ai.request.model": "m"}, events=events))
    (call,) = found.calls
    assert (call.prompt, call.reply, call.finish) == ("system: Be brief.\n\nuser: Weather?", "Sunny.", "stop")


def test_messages_on_an_event_of_the_newest_conventions_with_structured_values() -> None:
    part = [{"role": "user", "parts": [{"type": "text", "content": "Weather?"}]}]
    reply = [{"role": "assistant", "parts": [{"type": "text", "content": "Sunny."}], "finish_reason": "stop"}]
    details = made.event(
        "gen_ai.client.inference.operation.details",
        {
            "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
            "gen_ai.input.messages": part,
            "gen_ai.output.messages": reply,
        },
    )
    (call,) = trace(span(1, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}, events=[details])).calls
    assert (call.prompt, call.reply, call.finish) == ("system: Be brief.\n\nuser: Weather?", "Sunny.", "stop")


def test_counted_attributes_of_openllmetry() -> None:
    found = trace(
        span(1, {"traceloop.span.kind": "workflow", "traceloop.entity.name": "joke", "traceloop.entity.input": "Tell one"}),
        span(
            2,
            {
                "llm.request.type": "chat",
                "gen_ai.prompt.0.role": "user",
                "gen_ai.prompt.0.content": '[{"type": "text", "text": "Tell"}, {"type": "image_url", "image_url": {}}]',
                "gen_ai.completion.0.role": "assistant",
                "gen_ai.completion.0.finish_reason": "tool_calls",
                "gen_ai.completion.0.tool_calls.0.id": "c1",
                "gen_ai.completion.0.tool_calls.0.name": "jokes",
                "gen_ai.completion.0.tool_calls.0.arguments": '{"about": "tea"}',
                "gen_ai.usage.prompt_tokens": 3,
                "gen_ai.usage.completion_tokens": 4,
                "gen_ai.usage.cache_read_input_tokens": 2,
            },
            parent=1,
        ),
        span(3, {"traceloop.span.kind": "tool", "traceloop.entity.name": "jokes", "traceloop.entity.output": "ha"}, parent=1),
    )
    agent, call, tool = found.steps
    assert isinstance(agent, AgentCall)
    assert isinstance(call, ModelCall)
    assert isinstance(tool, ToolCall)
    assert (agent.agent, found.query) == ("joke", "Tell one")
    assert (call.prompt, call.finish) == ("user: Tell\n[image_url]", "tool_calls")
    assert (call.input_tokens, call.output_tokens, call.cached_tokens) == (3, 4, 2)
    assert (tool.tool, tool.arguments, tool.result, tool.parent) == ("jokes", '{"about": "tea"}', "ha", call.id)


@pytest.mark.parametrize(
    ("spelling", "tokens"),
    [
        ({"gen_ai.usage.input_tokens": 10, "gen_ai.usage.cache_read.input_tokens": 2000}, 2010),
        ({"gen_ai.usage.input_tokens": 2010, "gen_ai.usage.cache_read.input_tokens": 2000}, 2010),
        ({"gen_ai.usage.prompt_tokens": 2010, "gen_ai.usage.cached_tokens": 2000}, 2010),
        ({"llm.token_count.prompt": 2010, "llm.token_count.prompt_details.cache_read": 2000}, 2010),
        ({"ai.operationId": "ai.x.doX", "ai.usage.inputTokens": 2010, "ai.usage.cachedInputTokens": 2000}, 2010),
    ],
)
def test_input_tokens_are_with_those_of_the_cache_however_they_are_told(spelling: dict[str, Any], tokens: int) -> None:
    (call,) = trace(span(1, {"gen_ai.request.model": "m", **spelling})).calls
    assert (call.input_tokens, call.cached_tokens) == (tokens, 2000)


def test_a_retriever_is_a_tool_and_its_documents_are_the_result() -> None:
    of = {
        "openinference.span.kind": "RETRIEVER",
        "input.value": "tea",
        "retrieval.documents.0.document.content": "green",
        "retrieval.documents.1.document.content": "black",
    }
    (tool,) = trace(span(1, of)).tool_calls
    assert (tool.arguments, tool.result) == ("tea", "green\n\nblack")


@pytest.mark.parametrize(
    "of",
    [
        {"langfuse.observation.type": "generation", "langfuse.observation.input": "Q", "langfuse.observation.output": "A"},
        {"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanInputs": '{"messages": [{"role": "user", "content": "Q"}]}',
         "mlflow.spanOutputs": '{"choices": [{"message": {"role": "assistant", "content": "A"}}]}'},
        {"langsmith.span.kind": "llm", "gen_ai.prompt": '{"messages": [[{"role": "user", "content": "Q"}]]}',
         "gen_ai.completion": '{"choices": [{"message": {"role": "assistant", "content": "A"}}]}'},
        {"gen_ai.system": "openai", "gen_ai.request.model": "m", "events": json.dumps([
            {"event.name": "gen_ai.user.message", "role": "user", "content": "Q"},
            {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": "A"}},
        ])},
        {"ai.operationId": "ai.generateText", "ai.prompt": '{"prompt": "Q"}', "ai.response.text": "A"},
        {"llm.request.type": "completion", "gen_ai.prompt.0.content": "Q", "gen_ai.completion.0.content": "A"},
        {"gen_ai.request.model": "m",
         "gcp.vertex.agent.llm_request": '{"contents": [{"role": "user", "parts": [{"text": "Q"}]}]}',
         "gcp.vertex.agent.llm_response": '{"content": {"role": "model", "parts": [{"text": "A"}]}}'},
    ],
)  # fmt: skip
def test_question_and_answer_are_found_in_every_frameworks_words(of: dict[str, Any]) -> None:
    (call,) = trace(span(1, of)).calls
    assert (call.prompt, call.reply) == ("user: Q", "A")


@needs_data
@pytest.mark.parametrize("kind", ["json", "pb"])
@pytest.mark.parametrize("name", INSTRUMENTATIONS)
def test_the_whole_export_has_60_calls_and_the_recorded_tokens(name: str, kind: str) -> None:
    folder = Path(REAL or "") / "otlp-genai"
    expected = json.loads((folder / f"{name}.expected.json").read_text())
    found = collected(folder / f"{name}.otlp.{kind}.gz")
    calls = [call for each in found.traces for call in each.calls]
    assert (found.spans, len(found.traces), len(calls)) == (60, 60, 60)
    known = [call for call in calls if call.input_tokens is not None]
    recorded = expected["recorded_usage"]
    assert len(known) == recorded["responses_with_usage"]
    assert total(call.input_tokens for call in known) == recorded["input_tokens"] == 5911
    assert total(call.output_tokens for call in known) == recorded["output_tokens"] == 3346


@needs_data
def test_two_instrumentations_tell_the_same_of_every_call() -> None:
    folder = Path(REAL or "") / "otlp-genai"
    told = []
    for name in WITH_CONTENT:
        calls = [(each, each.calls[0]) for each in collected(folder / f"{name}.otlp.pb.gz").traces]
        told.append(
            Counter(
                (
                    call.response_id,
                    call.reply,
                    tuple((tool.tool, json.dumps(json.loads(tool.arguments), sort_keys=True)) for tool in each.tool_calls),
                    tuple((message.role, message.text) for message in call.messages if message.role != "assistant"),
                )
                for each, call in calls
            )
        )
    assert told[0] == told[1]
