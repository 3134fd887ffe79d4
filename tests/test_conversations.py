"""Conversations that passed the gateway are whole in the store, also when it was started anew in their midst."""

from pathlib import Path
from typing import Any

import pytest

from journeyman.experiments.settings import RecordSettings
from journeyman.serving.ingest.factory import open_intake
from journeyman.stores.traces import open_traces
from tests.tracing.wire.talk import assistant, chat, responses, tool, user


@pytest.mark.parametrize("labels", [{}, {"session": "visit-7", "agent": "desk"}], ids=["no labels", "a session"])
@pytest.mark.parametrize("content", [True, False], ids=["content", "no content"])
def test_a_conversation_goes_on_after_a_restart(tmp_path: Path, labels: dict[str, Any], content: bool) -> None:
    asks = assistant(None, ("call_1", "find", '{"order": 7}'))
    said = [user("Where is order 7?"), asks, tool("call_1", "Oslo"), assistant("In Oslo."), user("Thanks")]
    sent = [chat(said[:1], said[1], **labels), chat(said[:3], said[3], **labels), chat(said, assistant("Bye."), **labels)]
    for each in sent:
        intake = open_intake(f"sqlite:///{tmp_path / 'traces.db'}", tmp_path / "spill", RecordSettings(content=content))
        intake.submit(each)
        assert intake.flush(20)
        intake.close()
    with open_traces(tmp_path / "traces.db") as store:
        (trace,) = store.traces()
    assert [call.id for call in trace.calls] == [each.id for each in sent]
    assert [call.continues for call in trace.calls] == [None, sent[0].id, sent[1].id]
    assert [call.id for call in trace.tool_calls] == ["call_1"]
    assert len(trace.conversation(trace.calls[-1])) == len(said)
    if content:
        assert [message.text for message in trace.conversation(trace.calls[-1])] == [each["content"] or "" for each in said]
        assert trace.tool_calls[0].result == "Oslo"


def test_a_conversation_that_the_server_keeps_goes_on_after_a_restart(tmp_path: Path) -> None:
    first = responses({"input": "Where?"}, "In Oslo.")
    answer = f"resp_{first.id[1:]}"
    for each in (first, responses({"input": "Thanks", "previous_response_id": answer}, "Bye.")):
        intake = open_intake(f"sqlite:///{tmp_path / 'traces.db'}", tmp_path / "spill", RecordSettings())
        intake.submit(each)
        assert intake.flush(20)
        intake.close()
    with open_traces(tmp_path / "traces.db") as store:
        (trace,) = store.traces()
    assert [message.text for message in trace.conversation(trace.calls[-1])] == ["Where?", "In Oslo.", "Thanks"]
