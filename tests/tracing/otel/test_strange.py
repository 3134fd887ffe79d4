"""Whatever is reported, a trace is made of it."""

import json

from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.trace import ModelCall, ToolCall
from journeyman.tracing.otel.spans import messages_of, replies_of
from tests.tracing.otel import made

_NAMES = st.sampled_from(
    (
        "gen_ai.operation.name",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
        "gen_ai.system_instructions",
        "gen_ai.prompt",
        "gen_ai.prompt.0.content",
        "gen_ai.prompt.0.tool_calls.0.name",
        "gen_ai.prompt.x",
        "gen_ai.prompt.0",
        "gen_ai.completion",
        "gen_ai.completion.0.tool_calls",
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.response.id",
        "gen_ai.tool.name",
        "gen_ai.tool.call.id",
        "gen_ai.agent.name",
        "gen_ai.response.finish_reasons",
        "traceloop.span.kind",
        "openinference.span.kind",
        "llm.input_messages.0.message.contents.0.message_content.text",
        "llm.input_messages.0.message",
        "llm.output_messages.1.message.tool_calls.0.tool_call.function.name",
        "llm.token_count.prompt",
        "input.value",
        "output.value",
        "retrieval.documents.0.document.content",
        "ai.operationId",
        "ai.prompt",
        "ai.response.toolCalls",
        "ai.values",
        "ai.value",
        "ai.response.providerMetadata",
        "events",
        "agent_name",
        "model_name",
        "tool_response",
        "pydantic_ai.all_messages",
        "gcp.vertex.agent.llm_request",
        "langfuse.observation.type",
        "langfuse.observation.usage_details",
        "request_data",
        "langfuse.observation.input",
        "langsmith.span.kind",
        "mlflow.spanType",
        "mlflow.spanInputs",
        "mlflow.chat.tokenUsage",
    )
)
_WORDS = st.sampled_from(
    (
        "chat",
        "execute_tool",
        "invoke_agent",
        "LLM",
        "TOOL",
        "AGENT",
        "RETRIEVER",
        "EMBEDDING",
        "generation",
        "tool",
        "llm",
        "ai.toolCall",
        "ai.generateText",
        "ai.generateText.doGenerate",
        "ai.embedMany.doEmbed",
        "workflow",
        '"CHAT_MODEL"',
        "",
        "x",
        "[",
        "{}",
        "[[]]",
    )
)
_KEYS = st.sampled_from(
    (
        "role",
        "content",
        "parts",
        "type",
        "text",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "id",
        "message",
        "messages",
        "choices",
        "output",
        "tool_call_id",
        "function_call",
        "kwargs",
        "lc",
        "input",
        "response",
        "reasoning",
        "finish_reason",
        "contents",
        "event.name",
    )
)
_KINDS = st.sampled_from(
    (
        "user",
        "assistant",
        "tool",
        "model",
        "text",
        "tool_call",
        "tool_use",
        "tool_result",
        "function_call",
        "function_call_output",
        "reasoning",
        "thinking",
        "image",
        "gen_ai.choice",
    )
)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 10**6) | st.floats() | st.text(max_size=4) | _KINDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=12,
)
_VALUES = _WORDS | _JSON | _JSON.map(json.dumps)


@given(st.dictionaries(_NAMES, _VALUES, max_size=6))
def test_any_attributes_give_steps_and_no_error(attributes: dict[str, object]) -> None:
    for step in made.steps_of(attributes, id="1"):
        if isinstance(step, ModelCall):
            assert all(isinstance(message.text, str) and isinstance(message.role, str) for message in step.messages)
            assert isinstance(step.reply, str)
            for count in (step.input_tokens, step.output_tokens, step.cached_tokens):
                assert count is None or (type(count) is int and count >= 0)
        if isinstance(step, ToolCall):
            assert all(isinstance(each, str) for each in (step.tool, step.arguments, step.result))


@given(_VALUES)
def test_any_value_is_messages_and_no_error(value: object) -> None:
    for message in (*messages_of(value), *replies_of(value)):
        assert isinstance(message.text, str)
        assert all(isinstance(call.tool, str) and isinstance(call.arguments, str) for call in message.calls)


@given(
    st.lists(
        st.tuples(
            st.integers(1, 5), st.none() | st.integers(1, 6), st.dictionaries(_NAMES, _WORDS, max_size=4), st.integers(0, 3)
        ),
        max_size=6,
    )
)
def test_any_tree_of_spans_is_a_tree_of_steps_whatever_its_order(
    found: list[tuple[int, int | None, dict[str, str], int]],
) -> None:
    spans = [made.span(number, of, parent=parent, at=at) for number, parent, of, at in found]
    rows = made.batch(*spans).spans
    forwards, backwards = made.read(rows), made.read(rows[::-1])
    assert forwards == backwards
    for trace in forwards:
        ids = [step.id for step in trace.steps]
        assert len(set(ids)) == len(ids)
        assert {step.parent for step in trace.steps} <= {None, *ids}
