"""A conversation becomes one trace, and different ones become different traces."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.messages import Turn, Usage
from journeyman.core.trace import AgentCall, Trace
from journeyman.stores.traces import codec
from journeyman.stores.traces.codec import StoredPart, parts
from journeyman.tracing.redaction import Redactor
from journeyman.tracing.wire import dialects
from journeyman.tracing.wire.assembler import ConversationAssembler, _behind_instructions, link
from journeyman.tracing.wire.dialects import Dialect, Exchange
from tests.tracing.wire.talk import assistant, chat, exchange, responses, tool, user

SYSTEM = {"role": "system", "content": "Be brief."}


def free(url: str, model: str, usage: Usage) -> float | None:
    return None


@pytest.fixture
def joiner() -> ConversationAssembler:
    return ConversationAssembler(price=free)


class Shelf:
    """Where traces are kept, as a store would."""

    def __init__(self) -> None:
        self.kept: dict[str, Trace] = {}

    def get(self, trace_id: str) -> Trace | None:
        return self.kept.get(trace_id)

    def session(self, session: str) -> Iterable[Trace]:
        return [trace for trace in self.kept.values() if trace.session == session]

    def latest(self) -> Iterable[Trace]:
        return list(self.kept.values())

    def keep(self, trace: Trace) -> Trace:
        self.kept[trace.id] = trace
        return trace


TEXTS = st.text(min_size=1, max_size=8).filter(lambda text: text == text.strip())
ARGUMENTS = st.dictionaries(st.sampled_from("ab"), st.integers() | TEXTS, max_size=2)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Messages as a client sends them, with an assistant's at the end."""
    said: list[dict[str, Any]] = [SYSTEM] if draw(st.booleans()) else []
    for turn in range(draw(st.integers(1, 5))):
        said.append(user(draw(TEXTS)))
        for step in range(draw(st.integers(0, 2))):
            ids = [f"call_{turn}_{step}_{number}" for number in range(draw(st.integers(1, 3)))]
            said.append(assistant(draw(TEXTS | st.none()), *((id, "look", json.dumps(draw(ARGUMENTS))) for id in ids)))
            said += [tool(id, draw(TEXTS)) for id in ids]
        said.append(assistant(draw(TEXTS)))
    return said


def as_sent_again(message: dict[str, Any]) -> dict[str, Any]:
    """The same message as another client library would write it."""
    if message.get("tool_calls"):
        calls = [
            {
                **call,
                "function": {**call["function"], "arguments": json.dumps(json.loads(call["function"]["arguments"]), indent=1)},
            }
            for call in message["tool_calls"]
        ]
        return {**message, "content": message["content"] or "", "tool_calls": calls}
    return {**message, "content": [{"type": "text", "text": message["content"]}]}


@given(conversations(), st.booleans())
def test_a_conversation_sent_turn_by_turn_is_one_trace_that_holds_all_that_was_sent(
    said: list[dict[str, Any]], rewritten: bool
) -> None:
    joiner = ConversationAssembler(price=free)
    traces: list[Trace] = []
    asked = 0
    for at, message in enumerate(said):
        if message["role"] == "assistant":
            sent = [as_sent_again(each) for each in said[:at]] if rewritten else said[:at]
            traces.append(joiner.join(chat(sent, message)))
            asked += len(message.get("tool_calls", ()))
    assert len({trace.id for trace in traces}) == 1
    trace = traces[-1]
    calls = trace.calls
    sent_last = said[:-1]
    assert [message.text for message in trace.conversation(calls[-1])] == [each["content"] or "" for each in sent_last]
    assert [message.role for message in trace.conversation(calls[-1])] == [each["role"] for each in sent_last]
    assert [call.continues for call in calls] == [None, *(call.id for call in calls[:-1])]
    results = [each["content"] for each in said if each["role"] == "tool"]
    assert [call.result for call in trace.tool_calls] == results
    assert len(trace.tool_calls) == asked
    assert all("answered" not in call.raw for call in trace.tool_calls)


@given(st.lists(conversations(), min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_conversations_at_the_same_time_are_not_mixed(many: list[list[dict[str, Any]]], chance: Any) -> None:
    joiner = ConversationAssembler(price=free)
    waiting = [[(said[:at], said[at]) for at, each in enumerate(said) if each["role"] == "assistant"] for said in many]
    last: list[tuple[Trace, Sequence[dict[str, Any]]]] = []
    while any(waiting):
        turn = chance.choice([each for each in waiting if each])
        sent, reply = turn.pop(0)
        last.append((joiner.join(chat(sent, reply)), sent))
    for trace, sent in last:
        texts = [message.text for message in trace.conversation(trace.calls[-1])]
        assert texts == [each["content"] or "" for each in sent]
    assert len({trace.id for trace, _ in last}) == len(many)


def test_a_tools_answer_is_found_by_its_id_and_knows_how_long_it_took(joiner: ConversationAssembler) -> None:
    asks = assistant(None, ("a", "weather", '{"city": "Oslo"}'))
    joiner.join(first := chat([user("hi")], asks))
    trace = joiner.join(second := chat([user("hi"), asks, tool("a", "Error: no such city")], assistant("Sorry.")))
    (call,) = trace.tool_calls
    assert (call.id, call.parent, call.tool, call.result) == ("a", trace.calls[0].id, "weather", "Error: no such city")
    assert not call.ok
    assert call.seconds == (second.started_at - first.started_at).total_seconds() - first.seconds


def test_answers_out_of_order_reach_the_calls_they_name(joiner: ConversationAssembler) -> None:
    asks = assistant(None, ("a", "look", '{"n": 1}'), ("b", "look", '{"n": 2}'))
    joiner.join(chat([user("hi")], asks))
    trace = joiner.join(chat([user("hi"), asks, tool("b", "two"), tool("a", "one")], assistant("ok")))
    assert [(call.id, call.result) for call in trace.tool_calls] == [("a", "one"), ("b", "two")]


def test_tool_calls_whose_ids_come_again_are_told_apart(joiner: ConversationAssembler) -> None:
    said = [user("hi")]
    for number in range(3):
        asks = assistant(None, ("call_0", "look", f'{{"n": {number}}}'))
        trace = joiner.join(chat(said, asks))
        said += [asks, tool("call_0", f"result {number}")]
    trace = joiner.join(chat(said, assistant("done")))
    assert [call.result for call in trace.tool_calls] == ["result 0", "result 1", "result 2"]
    assert len({step.id for step in trace.steps}) == len(trace.steps)


def test_another_system_prompt_is_another_trace(joiner: ConversationAssembler) -> None:
    one = joiner.join(chat([SYSTEM, user("hi")], assistant("hello")))
    changed = [{"role": "system", "content": "Be long."}, user("hi"), assistant("hello"), user("more")]
    assert joiner.join(chat(changed, assistant("…"))).id != one.id


def test_two_conversations_that_begin_alike_are_two_traces(joiner: ConversationAssembler) -> None:
    begin = [user("hi")]
    first, second = (joiner.join(chat(begin, assistant("hello"))) for _ in range(2))
    assert first.id != second.id
    on = [*begin, assistant("hello")]
    homes = {joiner.join(chat([*on, user(text)], assistant("ok"))).id for text in ("a", "b")}
    assert homes == {first.id, second.id}


def test_a_conversation_taken_back_and_gone_on_otherwise_is_a_branch_of_its_trace(joiner: ConversationAssembler) -> None:
    said = [user("hi"), assistant("hello"), user("a poem"), assistant("roses")]
    first = joiner.join(chat(said[:1], said[1]))
    joiner.join(chat(said[:3], said[3]))
    trace = joiner.join(chat([*said[:2], user("a joke")], assistant("knock")))
    assert trace.id == first.id
    assert [call.continues for call in trace.calls] == [None, trace.calls[0].id, trace.calls[0].id]
    assert [message.text for message in trace.conversation(trace.calls[-1])] == ["hi", "hello", "a joke"]


def test_a_request_that_failed_and_is_sent_again_is_one_trace(joiner: ConversationAssembler) -> None:
    failed = joiner.join(chat([user("hi")], None))
    assert failed.error == "server_error: try again (HTTP 503)"
    trace = joiner.join(chat([user("hi")], assistant("hello")))
    assert trace.id == failed.id
    assert [call.error for call in trace.calls] == ["server_error: try again (HTTP 503)", None]
    assert trace.error is None
    assert joiner.join(chat([user("hi")], assistant("hello"))).id != trace.id


def test_requests_that_only_fail_do_not_fill_one_trace_for_ever(joiner: ConversationAssembler) -> None:
    traces = {joiner.join(chat([user("hi")], None)).id for _ in range(40)}
    assert 1 < len(traces) < 40


def test_of_several_answers_any_can_be_gone_on_from(joiner: ConversationAssembler) -> None:
    first = joiner.join(chat([user("hi")], assistant("one"), others=[assistant("two")]))
    assert first.calls[0].reply == "one"
    assert [choice["text"] for choice in first.calls[0].raw["choices"]] == ["two"]
    trace = joiner.join(chat([user("hi"), assistant("two"), user("go on")], assistant("…")))
    assert trace.id == first.id
    assert [message.text for message in trace.conversation(trace.calls[-1])] == ["hi", "two", "go on"]


def test_labels_keep_like_conversations_apart_and_are_kept(joiner: ConversationAssembler) -> None:
    labels: dict[str, Any] = {"task": "t1", "session": "s1", "agent": "clerk", "domain": "shop", "candidate": "p1, a2"}
    one = joiner.join(chat([user("hi")], assistant("hello"), **labels))
    assert (one.task_id, one.session, one.agent, one.domain, one.candidate_ids) == ("t1", "s1", "clerk", "shop", ("p1", "a2"))
    on = [user("hi"), assistant("hello"), user("more")]
    assert joiner.join(chat(on, assistant("ok"), **{**labels, "session": "s2"})).id != one.id
    assert joiner.join(chat(on, assistant("ok"), **labels)).id == one.id
    other = joiner.join(chat([user("something else")], assistant("ok"), **labels))
    assert (other.id != one.id, other.session) == (True, "s1")


def test_a_trace_that_is_named_holds_all_that_names_it(joiner: ConversationAssembler) -> None:
    for text in "abc":
        trace = joiner.join(chat([user(text)], assistant(text), trace="mine"))
    assert (trace.id, len(trace.calls)) == ("mine", 3)


def test_a_sub_agent_is_work_below_the_step_that_handed_it_over(joiner: ConversationAssembler) -> None:
    asks = assistant(None, ("call_7", "research", "{}"))
    main = joiner.join(chat([user("hi")], asks, agent="boss"))
    below: dict[str, Any] = {"agent": "researcher", "parent": "call_7"}
    joiner.join(chat([user("find it")], assistant("looking"), **below))
    joiner.join(chat([user("find it"), assistant("looking"), user("go on")], assistant("found"), **below))
    trace = joiner.join(chat([user("hi"), asks, tool("call_7", "found")], assistant("done"), agent="boss"))
    assert (trace.id, trace.agent, trace.reply) == (main.id, "boss", "done")
    (work,) = [step for step in trace.steps if isinstance(step, AgentCall)]
    assert (work.agent, work.input, work.output, work.parent) == ("researcher", "find it", "found", "call_7")
    assert [call.parent for call in trace.calls] == [None, work.id, work.id, None]


def test_a_parent_may_be_named_by_its_trace_or_by_the_providers_id(joiner: ConversationAssembler) -> None:
    main = joiner.join(chat([user("hi")], assistant("wait"), trace="mine"))
    by_trace = joiner.join(chat([user("x")], assistant("y"), parent="mine"))
    by_answer = joiner.join(chat([user("z")], assistant("y"), parent=str(main.calls[0].response_id)))
    assert by_trace.id == by_answer.id == "mine"
    assert [call.parent for call in by_answer.calls] == [None, None, main.calls[0].id]


def test_a_conversation_that_the_server_keeps_is_one_trace(joiner: ConversationAssembler) -> None:
    first = joiner.join(responses({"input": "hi", "instructions": "Be brief."}, "hello"))
    behind = first.calls[0].response_id
    trace = joiner.join(responses({"input": "more", "instructions": "Be brief.", "previous_response_id": behind}, "ok"))
    assert trace.id == first.id
    assert [message.text for message in trace.conversation(trace.calls[1])] == ["Be brief.", "hi", "hello", "more"]
    kept = [joiner.join(responses({"input": text, "conversation": "conv_1"}, "ok")) for text in "ab"]
    assert (kept[0].id, kept[1].session) == (kept[1].id, "conv_1")


def test_embeddings_stand_alone_in_their_session(joiner: ConversationAssembler) -> None:
    def embed(number: int) -> Exchange:
        answer = {"model": "e", "data": [{"embedding": [0.1, 0.2]}], "usage": {"prompt_tokens": 2, "total_tokens": 2}}
        return exchange(100_000 + number, Dialect.EMBEDDINGS, {"model": "e", "input": "text"}, answer, session="s")

    one, two = joiner.join(embed(1)), joiner.join(embed(2))
    assert (one.id != two.id, one.session, two.session) == (True, "s", "s")
    assert (one.calls[0].reply, one.input_tokens, one.output_tokens) == ("[1 × 2 numbers]", 2, 0)


def test_the_same_exchange_again_changes_nothing(joiner: ConversationAssembler) -> None:
    given = chat([user("hi")], assistant("hello"))
    assert joiner.join(given) == joiner.join(given)


def test_a_conversation_goes_on_after_a_restart_in_its_session() -> None:
    shelf = Shelf()
    said = [user("hi"), assistant("hello"), user("more")]
    first = shelf.keep(ConversationAssembler(price=free, past=shelf).join(chat(said[:1], said[1], session="s")))
    assert ConversationAssembler(price=free, past=shelf).join(chat(said, assistant("ok"), session="s")).id == first.id


def test_a_conversation_without_labels_goes_on_after_a_restart() -> None:
    shelf = Shelf()
    said = [user("hi"), assistant("hello"), user("more")]
    first = shelf.keep(ConversationAssembler(price=free).join(chat(said[:1], said[1])))
    trace = ConversationAssembler(price=free, past=shelf).join(chat(said, assistant("ok")))
    assert (trace.id, len(trace.calls)) == (first.id, 2)


def test_what_does_not_fit_into_memory_is_asked_for_where_it_is_kept() -> None:
    shelf = Shelf()
    joiner = ConversationAssembler(price=free, past=shelf, most_text=20_000)
    said = [user("hi"), assistant("hello"), user("more")]
    first = shelf.keep(joiner.join(chat(said[:1], said[1])))
    for number in range(20):
        shelf.keep(joiner.join(chat([user(f"{number}" * 500)], assistant("…"))))
    trace = joiner.join(chat(said, assistant("ok")))
    assert (trace.id, len(trace.calls)) == (first.id, 2)


def test_what_cannot_be_asked_for_changes_nothing_and_can_be_joined_later() -> None:
    class Broken(Shelf):
        def session(self, session: str) -> Iterable[Trace]:
            if not self.kept:
                raise OSError("the disk is gone")
            return super().session(session)

    shelf = Broken()
    said = [user("hi"), assistant("hello"), user("more")]
    first = ConversationAssembler(price=free).join(chat(said[:1], said[1], session="s"))
    joiner = ConversationAssembler(price=free, past=shelf)
    given = chat(said, assistant("ok"), session="s")
    with pytest.raises(OSError, match="gone"):
        joiner.join(given)
    shelf.keep(first)
    assert joiner.join(given).id == first.id


@pytest.mark.parametrize("shown", [(), tuple(f"b-{number}" for number in range(54))])
def test_a_trace_is_kept_alike_to_the_byte_whether_or_not_its_instructions_were_said_before(shown: tuple[str, ...]) -> None:
    said = "  When a customer asks where an order is, tell the city. " * 100
    for secret in ("", " password: 'hunter22x'"):
        again = replace(chat([{"role": "system", "content": said + secret}, user("hi")], assistant("Oslo")), shown=shown)

        def kept(redactor: Redactor, exchange: Exchange = again) -> list[StoredPart]:
            return parts(redactor.trace(ConversationAssembler(price=free).join(exchange)))

        used = Redactor()
        kept(used)
        known = kept(used)
        for remembered in (_behind_instructions, dialects._again, codec._digest_again):
            remembered.cache_clear()
        assert known == kept(Redactor())
        assert "hunter22x" not in repr(known)
        assert ("[redacted" in repr(known)) is bool(secret)


@given(st.binary(max_size=16), st.text(max_size=30))
def test_what_is_behind_instructions_is_what_is_behind_such_a_turn_in_earlier_versions(before: bytes, text: str) -> None:
    turn = Turn("system", text)
    plain = blake2b(f"system\x1d{text.strip()}".encode(errors="surrogatepass"), digest_size=16, key=before).digest()
    assert link(before, turn) == link(before, turn) == plain
