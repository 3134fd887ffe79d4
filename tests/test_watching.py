"""An agent of one's own is recorded into the project's store with two lines."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from journeyman import TraceCollector, hook_into_agent, traced
from journeyman.core.errors import StoreError
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query


class Desk:
    def run(self, question: str) -> str:
        return f"{question} Oslo."


def test_traces_are_in_the_store_with_their_labels_and_without_secrets(tmp_path: Path) -> None:
    with TraceCollector(tmp_path / "traces.db", agent="desk") as collector:
        with collector.trace("Where? Key sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD") as trace:
            trace.model_call(model="small", prompt="Where?", reply="In Oslo.", input_tokens=3, output_tokens=2)
        collector.label_trace(trace.id, True, who="ada")
        assert collector.get_statistics()["good"] == 1
        with pytest.raises(StoreError):
            collector.label_trace("nope", True)
    with open_traces(tmp_path / "traces.db") as store:
        (kept,) = store.traces()
        assert (kept.id, kept.agent, kept.source, kept.label, kept.reply) == (trace.id, "desk", "hook", True, "In Oslo.")
        assert "abcdefghijkl" not in (kept.input or "")


def test_what_any_program_recorded_can_be_labelled_by_another_newest_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNEYMAN_USER", "bob")
    file = tmp_path / "traces.db"
    with TraceCollector(file) as recorder:
        for number in range(3):
            with recorder.trace(f"Question {number}") as trace:
                trace.output = "Yes."
        found = recorder.get_unlabeled_traces(limit=2)
    assert [trace.query for trace in found] == ["Question 2", "Question 1"]
    with TraceCollector(file) as judge:
        assert judge.get_unlabeled_traces(limit=2) == found
        judge.label_trace(found[0].id, True)
        assert [trace.query for trace in judge.get_unlabeled_traces()] == ["Question 1", "Question 0"]
    with open_traces(file) as store:
        assert [(label.good, label.who) for label in store.labels(found[0].id)] == [(True, "bob")]


@pytest.mark.service
def test_a_program_that_just_ends_has_kept_its_traces(tmp_path: Path) -> None:
    program = """
        from journeyman import TraceCollector, hook_into_agent, traced

        class Agent:
            def run(self, question): return look(question)

        @traced(kind="tool")
        def look(question): return question.upper()

        agent = Agent()
        hook_into_agent(agent, TraceCollector())
        agent.run("hi")
        look("alone")
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], cwd=tmp_path, check=True, timeout=60)
    with open_traces(tmp_path / ".journeyman" / "journeyman.db") as store:
        traces = {trace.input: trace for trace in store.traces(Query(source="hook"))}
    assert set(traces) == {"hi", "alone"}
    assert [(call.tool, call.result) for call in traces["hi"].tool_calls] == [("look", "HI")]


def test_memory_alone_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    collector = TraceCollector("memory:")
    agent = Desk()
    hook_into_agent(agent, collector)

    @traced(collector=collector)
    def ask(question: str) -> str:
        return agent.run(question)

    assert ask("Where?") == "Where? Oslo."
    assert [len(trace.steps) for trace in collector.traces] == [1]
    assert list(tmp_path.iterdir()) == []


def test_a_collector_that_gets_nothing_makes_no_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    TraceCollector().close()
    assert list(tmp_path.iterdir()) == []
