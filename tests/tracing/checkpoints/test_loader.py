"""What agents saved becomes traces: each turn once, with what is known of it."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.core.trace import ModelCall, Reasoning, ToolCall
from journeyman.tracing import importers
from journeyman.tracing.importers.checkpoints import CheckpointLoader, read


class AgentCheckpoint:
    """As a framework would pickle it: an object of a class that the reader does not have."""

    def __init__(self, **parts: Any) -> None:
        self.__dict__.update(parts)


def history(turns: int) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        said += [
            {"role": "user", "content": f"question {turn}", "timestamp": f"2025-03-01T10:0{turn}:00"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": f"c{turn}", "function": {"name": "search", "arguments": {"q": str(turn)}}}],
            },
            {"role": "tool", "tool_call_id": f"c{turn}", "content": f"found {turn}"},
            {"role": "assistant", "content": f"answer {turn}", "timestamp": f"2025-03-01T10:0{turn}:09"},
        ]
    return said


def checkpoint(turns: int = 2) -> dict[str, Any]:
    return {
        "session_data": {"268830485889810432": {"history": history(turns)}},
        "variable_scopes": {"reasoning": {"final_result": "It is online.", "empty": ""}, "user": {"name": "x"}},
        "task_state": {
            "t1": {"status": "completed", "result": "ok"},
            "t2": {"status": "failed", "error": "no"},
            "t3": {"status": "pending"},
        },
        "agent_state": {"tokens_in": 150, "tokens_out": 45, "cost": 0.0002, "llm_calls": 1},
        "tool_capabilities": {"search": {"args": "q"}, "mail": {}},
    }


def save(folder: Path, agent: str, name: str, data: Any, *, at: int) -> Path:
    path = folder / agent / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(json.dumps(data).encode() if path.suffix == ".json" else pickle.dumps(data))
    os.utime(path, (at, at))
    return path


def test_each_question_is_a_trace_with_what_was_done_until_the_next(tmp_path: Path) -> None:
    found = read(save(tmp_path, "Coder", "a.pkl", AgentCheckpoint(**checkpoint()), at=1))
    first, last = found.traces
    assert (first.query, first.reply, first.agent, first.session) == ("question 0", "answer 0", "Coder", "268830485889810432")
    assert [type(step) for step in first.steps] == [ModelCall, ToolCall, ModelCall]
    assert first.tool_calls[0].result == "found 0"
    assert first.seconds == 9
    assert first.raw == {"tools": ["mail", "search"]}
    # How many tokens the agent used in its life says nothing about one call of many.
    assert last.input_tokens is None
    assert last.steps[-1] == Reasoning(text="It is online.", raw={"scope": "reasoning", "variable": "final_result"})
    assert (last.tasks_created, last.tasks_completed, last.tasks_failed) == (("t1", "t2", "t3"), ("t1",), ("t2",))


def test_the_counts_of_an_agent_that_made_one_call_are_those_of_the_call(tmp_path: Path) -> None:
    said = [{"role": "user", "content": "Hey bist du online?"}, {"role": "assistant", "content": "Ja!"}]
    data = {"session_data": {"s": {"history": said}}, "agent_state": checkpoint()["agent_state"]}
    (trace,) = read(save(tmp_path, "a", "a.json", data, at=1)).traces
    assert (trace.input_tokens, trace.output_tokens, trace.cost) == (150, 45, 0.0002)


def test_a_turn_that_was_saved_again_is_one_trace_and_the_latest_word_on_it_holds(tmp_path: Path) -> None:
    cut = checkpoint(2)
    cut["session_data"]["268830485889810432"]["history"] = history(2)[:-1]
    save(tmp_path, "Coder", "b.pkl", cut, at=1)
    save(tmp_path, "Coder", "a.pkl", checkpoint(3), at=2)
    traces = CheckpointLoader("Coder", folder=tmp_path).load_all_traces()
    assert [trace.reply for trace in traces] == ["answer 0", "answer 1", "answer 2"]


def test_all_agents_are_found_and_a_broken_file_stops_nobody(tmp_path: Path) -> None:
    save(tmp_path, "Coder", "a.pkl", checkpoint(1), at=1)
    save(tmp_path, "self", "a.json", checkpoint(2), at=1)
    (tmp_path / "empty").mkdir()
    trap = tmp_path / "self" / "trap.pkl"
    trap.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    loader = CheckpointLoader(folder=tmp_path)
    assert loader.discover_all_agents() == ["Coder", "self"]
    assert {agent: len(traces) for agent, traces in loader.load_all_agents_traces().items()} == {"Coder": 1, "self": 2}
    assert loader.problems == [f"{trap} asks to call os.system when it is loaded, as only a trap does; nothing was called"]
    statistics = loader.get_training_statistics()
    assert (statistics["total_traces"], statistics["unique_sessions"]) == (3, 2)
    assert statistics["tools_list"] == ["mail", "search"]
    # What each call took is not known; what the agents counted in all is.
    assert (statistics["tasks_completed"], statistics["total_tokens_in"], statistics["total_tokens_out"]) == (2, 300, 90)
    assert statistics["total_cost"] == 0.0004


def test_an_agent_that_counted_nothing_leaves_the_totals_unknown(tmp_path: Path) -> None:
    save(tmp_path, "Coder", "a.pkl", checkpoint(1), at=1)
    save(tmp_path, "self", "a.json", {**checkpoint(2), "agent_state": {}}, at=1)
    statistics = CheckpointLoader(folder=str(tmp_path)).get_training_statistics()
    assert (statistics["total_tokens_in"], statistics["total_cost"]) == (None, None)


def test_a_path_may_be_a_text(tmp_path: Path) -> None:
    path = save(tmp_path, "Coder", "a.pkl", checkpoint(1), at=1)
    assert read(str(path)).traces == read(path).traces


def test_half_a_surrogate_pair_in_a_message_is_kept(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "\ud800"}, {"role": "assistant", "content": "Ho"}]
    (only,) = read(save(tmp_path, "Coder", "a.json", {"session_data": {"s": {"messages": messages}}}, at=1)).traces
    assert only.query == "\ud800"


def test_where_checkpoints_lie_can_be_said_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, "Coder", "a.pkl", checkpoint(1), at=1)
    monkeypatch.setenv("JOURNEYMAN_CHECKPOINTS", str(tmp_path))
    assert CheckpointLoader().discover_all_agents() == ["Coder"]


def test_an_agent_without_checkpoints_is_said_with_those_there_are(tmp_path: Path) -> None:
    save(tmp_path, "Coder", "a.pkl", checkpoint(1), at=1)
    with pytest.raises(InputError, match=r"no checkpoints of the agent 'Codr' .*; there are: Coder"):
        CheckpointLoader("Codr", folder=tmp_path).load_all_traces()
    assert CheckpointLoader(folder=tmp_path / "none").load_all_traces() == []


def test_messages_that_are_none_are_named_and_the_others_come(tmp_path: Path) -> None:
    data = checkpoint(1)
    data["session_data"]["268830485889810432"]["history"].insert(1, {"content": "who?"})
    data["session_data"]["lost"] = {"no": "history"}
    found = read(save(tmp_path, "a", "a.json", data, at=1))
    assert len(found.traces) == 1
    assert found.problems == (
        "session_data.268830485889810432.history.1.role: Field required",
        "session_data.lost has no history",
    )


def test_what_is_no_checkpoint_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is no checkpoint of an agent: it has none of session_data"):
        read(save(tmp_path, "a", "a.pkl", {"weights": [1, 2]}, at=1))


@pytest.mark.parametrize("name", ["a.pkl", "a.json", "a.bin"])
def test_a_checkpoint_among_other_files_is_recognised_by_its_content(tmp_path: Path, name: str) -> None:
    path = save(tmp_path, "Coder", name, checkpoint(2), at=1)
    found = [each for each in importers.read(path) if not isinstance(each, importers.Problem)]
    assert [(each.trace.reply, each.trace.agent, each.trace.source) for each in found] == [
        ("answer 0", "Coder", "checkpoint"),
        ("answer 1", "Coder", "checkpoint"),
    ]


def test_a_trap_among_other_files_is_named(tmp_path: Path) -> None:
    trap = tmp_path / "trap.pkl"
    trap.write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    (problem,) = importers.read(trap)
    assert str(problem) == f"{trap}: asks to call os.system when it is loaded, as only a trap does; nothing was called"
