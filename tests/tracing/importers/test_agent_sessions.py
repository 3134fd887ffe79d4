"""Sessions of coding agents: every prompt, answer and tool call is there, and tokens are counted once."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from journeyman.core.trace import AgentCall, ModelCall, ToolCall, Trace
from journeyman.tracing.importers import Problem, read
from tests.support import agent_sessions
from tests.support.agent_sessions import WRITERS, Contents


def files(home: Path) -> list[Path]:
    return sorted(path for path in home.rglob("*") if path.is_file())


def traces(home: Path, name: str | None = None) -> Iterator[Trace]:
    for path in files(home):
        for found in read(path, name):
            assert not isinstance(found, Problem), found
            assert found.format == (name or found.format)
            yield found.trace


def contents_of(found: list[Trace]) -> Contents:
    told = Contents(prompts=len(found))
    for trace in found:
        told.answers += len(trace.calls)
        told.calls += len(trace.tool_calls)
        told.failed += sum(not call.ok for call in trace.tool_calls)
        told.input_tokens += trace.input_tokens or 0
        told.output_tokens += trace.output_tokens or 0
    return told


SESSIONS = 25


@pytest.mark.parametrize("name", WRITERS)
def test_every_prompt_answer_and_tool_call_is_there_and_tokens_are_counted_once(name: str, tmp_path: Path) -> None:
    written = agent_sessions.write(tmp_path, name, SESSIONS)
    found = list(traces(tmp_path))
    if name == "claude-code":
        # A session that was resumed stands in two files: the same traces, by their ids.
        found = list({trace.id: trace for trace in found}.values())
    told = contents_of(found)
    assert (told.prompts, told.answers, told.calls) == (written.prompts, written.answers, written.calls)
    assert (told.failed, told.input_tokens, told.output_tokens) == (written.failed, written.input_tokens, written.output_tokens)
    assert {trace.agent for trace in found} == {name}
    assert all(trace.input and trace.session and trace.started_at.year == 2026 for trace in found)
    assert all(call.error is None or "no answer" not in call.error for trace in found for call in trace.tool_calls)
    assert [trace.id for trace in traces(tmp_path, name)] == [trace.id for trace in traces(tmp_path)]


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_sum_over_lines_would_count_far_too_much(name: str, tmp_path: Path) -> None:
    written = agent_sessions.write(tmp_path, name, SESSIONS)
    assert written.naive_tokens / written.tokens >= (1.8 if name == "claude-code" else 1.4)
    assert (
        sum(trace.input_tokens or 0 for trace in {each.id: each for each in traces(tmp_path)}.values()) == written.input_tokens
    )


def _claude(**told: object) -> dict[str, object]:
    about = {"parentUuid": None, "isSidechain": False, "sessionId": "s", "timestamp": "2026-09-01T08:00:00Z"}
    return {**about, **told}


def _lines(path: Path, *rows: object) -> list[Trace]:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return list(traces(path.parent))


def _said(text: str, **told: object) -> dict[str, object]:
    return _claude(type="user", message={"role": "user", "content": text}, **told)


def _answered(id: str, *blocks: object, **told: object) -> dict[str, object]:
    usage = {"input_tokens": 1, "output_tokens": 2}
    return _claude(
        type="assistant", message={"id": id, "role": "assistant", "model": "m", "content": blocks, "usage": usage}, **told
    )


def test_what_was_asked_again_from_an_earlier_place_is_another_attempt_at_it(tmp_path: Path) -> None:
    text = {"type": "text", "text": "done"}
    rows = [
        _said("first", uuid="1"),
        _answered("a", text, uuid="2", parentUuid="1"),
        _said("then so", uuid="3", parentUuid="2"),
        _answered("b", text, uuid="4", parentUuid="3"),
        _said("no, so", uuid="5", parentUuid="2"),
        _answered("c", text, uuid="6", parentUuid="5"),
    ]
    first, one, other = _lines(tmp_path / "s.jsonl", *rows)
    assert (first.input, one.input, other.input) == ("first", "then so", "no, so")
    assert one.task_id == other.task_id != first.task_id
    assert [trace.calls[0].response_id for trace in (first, one, other)] == ["a", "b", "c"]


def test_what_a_sub_agent_did_stands_below_the_call_that_handed_it_on(tmp_path: Path) -> None:
    task = {"type": "tool_use", "id": "t", "name": "Task", "input": {"prompt": "look for it"}}
    answer = {"type": "tool_result", "tool_use_id": "t", "content": "found"}
    look = {"type": "tool_use", "id": "g", "name": "Grep", "input": {}}
    aside = {"isSidechain": True}
    (trace,) = _lines(
        tmp_path / "s.jsonl",
        _said("where is it", uuid="1"),
        _answered("a", task, uuid="2", parentUuid="1"),
        _said("look for it", uuid="3", **aside),
        _answered("b", look, uuid="4", parentUuid="3", **aside),
        _answered("c", {"type": "text", "text": "found"}, uuid="5", parentUuid="4", **aside),
        _claude(type="user", message={"role": "user", "content": [answer]}, uuid="6", parentUuid="2"),
    )
    (agent,) = [step for step in trace.steps if isinstance(step, AgentCall)]
    assert (agent.input, agent.output, agent.parent) == ("look for it", "found", "t")
    below = [step for step in trace.steps if step.parent == agent.id]
    assert [step.response_id for step in below if isinstance(step, ModelCall)] == ["b", "c"]
    grep = next(step for step in trace.steps if isinstance(step, ToolCall) and step.tool == "Grep")
    assert grep.parent == below[0].id
    assert trace.input_tokens == 3


def test_commands_to_the_program_itself_are_no_attempts(tmp_path: Path) -> None:
    clear = "<command-name>/clear</command-name>"
    assert _lines(tmp_path / "s.jsonl", _said(clear, uuid="1"), _said("Caveat: …", uuid="2", isMeta=True)) == []


def test_lines_of_a_kind_that_is_not_known_are_counted_by_name(tmp_path: Path) -> None:
    rows = [_said("go", uuid="1"), _answered("a", {"type": "text", "text": "x"}, uuid="2"), _claude(type="mood", uuid="3")]
    path = tmp_path / "s.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (recorded,) = (each for each in read(path, None) if not isinstance(each, Problem))
    assert recorded.trace.raw["unread"] == {"mood": 1}


def test_an_old_rollout_of_codex_is_read_as_a_new_one(tmp_path: Path) -> None:
    rows = [
        {"id": "s", "timestamp": "2025-06-01T08:00:00Z", "instructions": None, "git": {"branch": "main"}},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]},
        {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "ok"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
    ]
    (trace,) = _lines(tmp_path / "rollout.jsonl", *rows)
    assert (trace.id, trace.session, trace.input, trace.reply) == ("codex-s-1", "s", "go", "done")
    assert [call.result for call in trace.tool_calls] == ["ok"]
    assert trace.raw["git_branch"] == "main"


def test_a_session_of_gemini_that_is_written_line_by_line_has_each_message_as_it_was_written_last(tmp_path: Path) -> None:
    head = {"sessionId": "s", "projectHash": "h", "startTime": "2026-09-01T08:00:00Z"}
    early = {"id": "2", "type": "gemini", "timestamp": "2026-09-01T08:00:02Z", "content": "wait", "model": "m"}
    late = {**early, "content": "done", "tokens": {"input": 5, "output": 7}}
    asked = {"id": "1", "type": "user", "timestamp": "2026-09-01T08:00:01Z", "content": [{"text": "go"}]}
    (trace,) = _lines(tmp_path / "session.jsonl", head, asked, early, late, {"$set": {"lastUpdated": "2026-09-01T08:00:03Z"}})
    assert (trace.id, trace.input, trace.reply, trace.input_tokens, trace.output_tokens) == ("gemini-s-1", "go", "done", 5, 7)


def test_an_exported_list_of_events_of_openhands_and_its_second_format_are_read(tmp_path: Path) -> None:
    def event(id: str, source: str, kind: str, **told: object) -> dict[str, object]:
        return {"id": id, "timestamp": f"2026-09-01T08:00:0{id}", "source": source, "kind": kind, **told}

    asked = {"tool_name": "terminal", "tool_call_id": "c"}
    thought, action = [{"type": "text", "text": "look"}], {"command": "ls"}
    seen = {"content": [{"type": "text", "text": "a b"}], "exit_code": 0}
    rows = [
        event("1", "user", "MessageEvent", llm_message={"role": "user", "content": [{"type": "text", "text": "go"}]}),
        event("2", "agent", "ActionEvent", llm_response_id="r", thought=thought, action=action, **asked),
        event("3", "environment", "ObservationEvent", observation=seen, **asked),
    ]
    (tmp_path / "events.json").write_text(json.dumps(rows))
    (trace,) = traces(tmp_path)
    (call,) = trace.tool_calls
    assert (trace.input, trace.reply, call.tool, call.result, call.ok) == ("go", "look", "terminal", "a b", True)
    assert (trace.calls[0].response_id, trace.input_tokens) == ("r", None)


def test_a_transcript_of_cursor_that_grows_stays_the_same_traces(tmp_path: Path) -> None:
    def line(role: str, text: str) -> dict[str, object]:
        return {"role": role, "message": {"content": [{"type": "text", "text": text}]}}

    rows = [line("user", "go"), line("assistant", "done"), line("user", "more")]
    before = _lines(tmp_path / "abc.jsonl", *rows)
    after = _lines(tmp_path / "abc.jsonl", *rows, line("assistant", "also done"))
    assert [trace.id for trace in before] == [trace.id for trace in after] == ["cursor-abc-1", "cursor-abc-2"]
    assert after[1].reply == "also done"


def test_counts_that_aider_has_rounded_are_not_known(tmp_path: Path) -> None:
    counts = "> Tokens: 4.2k sent, 31 received. Cost: $0.01 message, $0.01 session."
    text = f"# aider chat started at 2026-09-01 08:00:00\n\n#### go\n\ndone\n\n{counts}\n"
    (tmp_path / ".aider.chat.history.md").write_text(text)
    (trace,) = traces(tmp_path)
    assert (trace.input_tokens, trace.output_tokens, trace.cost) == (None, 31, 0.01)


_JUNK: tuple[object, ...] = (None, True, -1, 2.5, "", "x", [], {}, [{}], [[]], {"a": None}, {"id": []}, 10**400, "\ud800")


def _spoilt(value: object, chance: random.Random) -> object:
    """A JSON value in which some values are something else."""
    if chance.random() < 0.03:
        return chance.choice(_JUNK)
    if isinstance(value, dict):
        return {name: _spoilt(each, chance) for name, each in value.items()}
    return [_spoilt(each, chance) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", sorted(set(WRITERS) - {"aider", "cursor"}))
def test_whatever_stands_in_the_files_is_read_or_named(name: str, tmp_path: Path) -> None:
    agent_sessions.write(tmp_path, name, 3)
    chance = random.Random(name)
    for path in files(tmp_path):
        text = path.read_text()
        rows = [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else [json.loads(text)]
        path.write_text("\n".join(json.dumps(_spoilt(row, chance)) for row in rows))
    for path in files(tmp_path):
        for found in read(path, name):
            assert isinstance(found, Problem) or found.trace.id
        list(read(path))


@pytest.mark.parametrize("name", ["claude-code", "codex", "gemini", "opencode", "openhands"])
def test_a_file_of_which_much_is_of_unknown_kinds_is_read_and_said_to_be(name: str, tmp_path: Path) -> None:
    agent_sessions.write(tmp_path, name, 1)
    before = {trace.id for trace in traces(tmp_path)}
    for path in files(tmp_path):
        _become_strange(name, path)
    found = [each for path in files(tmp_path) for each in read(path)]
    # An event or a part by itself is nothing that is read; it is read with its session.
    problems = [str(each) for each in found if isinstance(each, Problem) and not each.strange]
    assert problems
    assert all("hologram" in each and "kinds that are not known" in each for each in problems), problems
    assert {each.trace.id for each in found if not isinstance(each, Problem)} == before


def _become_strange(name: str, path: Path) -> None:
    """As a newer version of the program may write it: a tenth and more of it is of a kind that is new."""
    if name in ("claude-code", "codex"):
        lines = path.read_text().splitlines()
        strange = json.dumps({"type": "hologram", "uuid": "h", "timestamp": "2026-09-01T08:00:00Z"})
        path.write_text("".join(f"{line}\n" for line in [*lines, *[strange] * (1 + len(lines) // 5)]))
    elif name == "gemini":
        told = json.loads(path.read_text())
        told["messages"] += [{"id": f"h{at}", "type": "hologram"} for at in range(1 + len(told["messages"]) // 5)]
        path.write_text(json.dumps(told))
    elif name == "opencode" and path.parent.parent.name == "part":
        path.with_name("prt_zzz.json").write_text(json.dumps({"id": "prt_zzz", "sessionID": "s", "type": "hologram"}))
    elif name == "openhands" and path.name in ("0.json", "3.json"):
        number = 1000 + int(path.stem)
        event = {"id": number, "timestamp": "2026-09-01T08:00:00Z", "source": "environment", "kind": "hologram"}
        path.with_name(f"{number}.json").write_text(json.dumps(event))
