import io
import json
import os
import pty
import select
import signal
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.reward import Reward
from journeyman.core.trace import Message, ModelCall, Reasoning, ToolCall, Trace
from journeyman.optimizers.playbook import files
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query
from journeyman.tracing import importers
from journeyman.tracing.base import RecordedTrace

NOW = datetime.now(UTC)


def booking(id: str, *, days: float = 0, agent: str = "desk", error: str | None = None) -> Trace:
    """A table is asked for, looked for and found."""
    began = NOW - timedelta(days=days)
    first = ModelCall(
        id="c1",
        model="gpt-5-mini",
        prompt="system: You book tables.\n\nuser: A table in Oslo?",
        messages=(Message(role="system", text="You book tables."), Message(role="user", text="A table in Oslo?")),
        reply="",
        input_tokens=120,
        output_tokens=9,
        cost=0.0012,
        seconds=0.8,
    )
    tool = ToolCall(
        id="x1", parent="c1", tool="find_tables", arguments='{"city": "Oslo"}', result='["six", "eight"]', seconds=0.2
    )
    answer = Message(role="tool", text=tool.result, answers="x1")
    second = ModelCall(
        id="c2", continues="c1", model="gpt-5-mini", prompt="", messages=(answer,), reply=f"At six or eight, says {agent}."
    )
    return Trace(
        id=id,
        task_id="tables",
        candidate_id="base",
        started_at=began,
        ended_at=began + timedelta(seconds=2),
        steps=(first, tool, second),
        agent=agent,
        session="s1",
        error=error,
        source="hook",
        rewards=(Reward(name="found", value=1.0, evidence="two tables"),),
    )


class Told:
    """`journeyman traces …` on one store, and what it has said."""

    def __init__(self, capsys: pytest.CaptureFixture[str], store: Path) -> None:
        self._capsys = capsys
        self.store = store

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """stdout; stderr is in `err`."""
        assert main(["traces", *arguments, "--store", str(self.store)]) == code
        said = self._capsys.readouterr()
        self.err = said.err
        return said.out

    def json(self, *arguments: str) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self(*arguments, "--json").splitlines()[-1])
        return told

    def labels(self) -> list[tuple[str, bool | None, str]]:
        with open_traces(self.store) as store:
            return [(label.trace_id, label.good, label.who) for label in store.labels()]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Told:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("JOURNEYMAN_USER", raising=False)
    with open_traces(tmp_path / "traces.db") as store:
        store.add([booking("aa11", days=3), booking("aa22", days=2, agent="night"), booking("bb33", error="Broken: pipe")])
    return Told(capsys, tmp_path / "traces.db")


def ids(told: dict[str, Any]) -> list[str]:
    return [each["id"] for each in told["traces"]]


def test_list_shows_the_newest_first_and_filters(run: Told) -> None:
    assert ids(run.json("list")) == ["bb33", "aa22", "aa11"]
    assert ids(run.json("list", "--agent", "night")) == ["aa22"]
    assert ids(run.json("list", "--error")) == ["bb33"]
    assert ids(run.json("list", "--last", "60h")) == ["bb33", "aa22"]
    assert ids(run.json("list", "--until", (NOW - timedelta(days=1)).isoformat())) == ["aa22", "aa11"]
    assert ids(run.json("list", "--min-reward", "1.5")) == []
    first = run.json("list", "--limit", "2")
    assert (ids(first), first["count"]) == (["bb33", "aa22"], 3)
    assert ids(run.json("list", "--limit", "2", "--after", first["next"])) == ["aa11"]


def test_list_is_a_table_on_stdout_and_words_on_stderr(run: Told) -> None:
    out = run("list", "--limit", "1")
    assert "bb33" in out
    assert "A table in Oslo?" in out
    assert "1 of 3 traces; go on with --after" in run.err
    run("list", "--agent", "dsk")
    assert run.err == "0 of 0 traces; of the 3 traces that there are, none is so\n"


def test_search_takes_what_is_typed(run: Told) -> None:
    assert ids(run.json("search", "says", "nig")) == ["aa22"]
    assert ids(run.json("search", '"six or eight"', "--agent", "desk")) == ["bb33", "aa11"]
    assert ids(run.json("search", '"or six" OR (', "NEAR*")) == []


def test_show_prints_the_conversation_and_the_tree(run: Told) -> None:
    out = run("show", "b")
    for said in ("You book tables.", "A table in Oslo?", "find_tables", "At six or eight", "120→9", "$0.0012", "two tables"):
        assert said in out
    assert '{"city": "Oslo"}\n' not in out
    assert '{"city": "Oslo"}\n' in run("show", "bb33", "--full")
    assert run.json("show", "b")["trace"]["steps"][1]["tool"] == "find_tables"


def test_show_says_what_tasks_the_agent_set_itself(run: Told) -> None:
    with open_traces(run.store) as store:
        one = Trace(id="own", task_id="t", candidate_id="base", started_at=NOW)
        store.add([replace(one, tasks_created=("call Oslo", "pay"), tasks_completed=("pay",))])
    out = run("show", "own")
    assert "created  call Oslo; pay" in out
    assert "done     pay" in out
    assert "failed" not in out


def test_show_wants_an_id_that_can_be_told_apart(run: Told) -> None:
    run("show", "aa", code=2)
    assert "more than one trace" in run.err
    assert "aa11, aa22" in run.err
    run("show", "zz", code=2)
    assert "no trace has an id that begins so" in run.err


def test_what_stands_in_a_trace_cannot_command_the_terminal(run: Told) -> None:
    nasty = "\x1b]0;owned\x07\x1b[2J [bold]x[/bold] \u202egnol"
    with open_traces(run.store) as store:
        store.add(
            [
                Trace(
                    id="evil",
                    task_id=nasty,
                    candidate_id="base",
                    started_at=NOW,
                    input=nasty,
                    output=nasty,
                    agent=nasty,
                    tasks_created=(nasty,),
                )
            ]
        )
    for arguments in (("list",), ("show", "evil"), ("show", "evil", "--full"), ("stats",)):
        out = run(*arguments)
        assert not {"\x1b", "\x07", "\u202e"} & set(out)
        assert "[bold]" in out


def test_export_gives_lines_that_say_the_same_trace(run: Told, tmp_path: Path) -> None:
    told = run.json("export", "--agent", "desk", "--out", "out.jsonl")
    assert (told["traces"], told["lines"], told["losses"]) == (2, 2, [])
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    assert [row["id"] for row in rows] == ["aa11", "bb33"]
    assert run("export", "--limit", "1").count("\n") == 1
    assert not list(tmp_path.glob(".out*"))


def test_export_for_fine_tuning_is_a_whole_conversation(run: Told) -> None:
    told = run.json("export", "--agent", "night", "--format", "chat", "--out", "chat.jsonl")
    messages = json.loads(Path("chat.jsonl").read_text())["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "find_tables", "arguments": '{"city": "Oslo"}'}
    assert messages[3] == {"role": "tool", "tool_call_id": messages[2]["tool_calls"][0]["id"], "content": '["six", "eight"]'}
    assert any("definitions" in loss for loss in told["losses"])
    assert any("no place in this format" in loss for loss in told["losses"])


def test_conversations_are_written_for_llama_factory_and_as_samples_of_evals(run: Told) -> None:
    told = run.json("export", "--agent", "night", "--format", "sharegpt", "--out", "share.jsonl")
    row = json.loads(Path("share.jsonl").read_text())
    assert row["system"] == "You book tables."
    assert [(each["from"], each["value"]) for each in row["conversations"]] == [
        ("human", "A table in Oslo?"),
        ("function_call", '{"name": "find_tables", "arguments": {"city": "Oslo"}}'),
        ("observation", '["six", "eight"]'),
        ("gpt", "At six or eight, says night."),
    ]
    assert told["lines"] == 1
    (read,) = (found.trace for found in importers.read("share.jsonl") if isinstance(found, RecordedTrace))
    assert read.reply == "At six or eight, says night."

    with open_traces(run.store) as store:
        store.label("aa11", False, who="ada", at=NOW)
    assert run.json("export", "--format", "evals", "--out", "evals.jsonl", "--no-error")["lines"] == 1
    assert "1 traces that are not known to be good: left out" in run.err
    sample = json.loads(Path("evals.jsonl").read_text())
    assert sample["ideal"] == "At six or eight, says night."
    assert [message["role"] for message in sample["input"]] == ["system", "user", "assistant", "tool"]


def test_export_that_cannot_be_written_says_so_before_the_work(run: Told) -> None:
    run("export", "--out", "nowhere/out.jsonl", code=2)
    assert "nowhere/out.jsonl could not be written" in run.err


def test_a_word_on_one_trace_is_kept_with_who_said_it(run: Told) -> None:
    run("label", "b", "good", "--who", "ada")
    run("label", "bb33", "bad", "--who", "bo")
    run("label", "b", "clear", "--who", "bo")
    assert run.labels() == [("bb33", True, "ada"), ("bb33", False, "bo"), ("bb33", None, "bo")]
    assert ids(run.json("list", "--label", "good")) == ["bb33"]
    assert ids(run.json("list", "--label", "none")) == ["aa22", "aa11"]
    assert ids(run.json("list", "--label", "some")) == ["bb33"]
    run("label", "b", "good", "--who", "auto-labeler", code=2)
    run("label", "b", "--who", "ada", code=2)


def test_two_people_are_told_how_far_they_agree(run: Told) -> None:
    for who, words in (("ada", "good bad good"), ("bo", "good bad bad")):
        for id, word in zip(("aa11", "aa22", "bb33"), words.split(), strict=True):
            run("label", id, word, "--who", who)
    told = run.json("label", "--agreement")["agreement"]
    (both,) = told
    assert (both["people"], both["traces"], both["agreed"], both["value"]) == (["ada", "bo"], 3, 2, None)
    assert both["sentence"] == "too few to say: 3 judged by several, 10 are needed"
    assert both["apart"] == ["bb33"]
    said = run("stats", "--agreement")
    assert "too few to say" in said
    assert "0.40" not in said
    run("label", "--agreement")
    assert "They differ on 1 trace: bb33" in run.err


def test_labels_are_read_from_lines_where_there_is_no_terminal(run: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(lines: str, *arguments: str) -> dict[str, Any]:
        monkeypatch.setattr("sys.stdin", io.StringIO(lines))
        return run.json("label", *arguments)

    monkeypatch.setenv("JOURNEYMAN_USER", "ada")
    assert typed("y\nyes\nu\nno\n") == {"who": "ada", "good": 1, "bad": 1, "skipped": 0, "left": 1}
    assert run.labels() == [("bb33", True, "ada"), ("aa22", True, "ada"), ("aa22", None, "ada"), ("aa22", False, "ada")]
    assert "1/3" in run.err
    assert typed("s\n") == {"who": "ada", "good": 0, "bad": 0, "skipped": 1, "left": 0}
    assert typed("", "--others", "--who", "bo")["left"] == 3
    assert typed("", "--others")["left"] == 1


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, store: Path) -> None:
        pid, self._file = pty.fork()
        if pid == 0:
            os.environ.update(JOURNEYMAN_USER="ada", TERM="xterm", COLUMNS="100")
            os.execv(sys.executable, [sys.executable, "-m", "journeyman", "traces", "label", "--store", str(store)])
        self._pid = pid
        self.said = ""

    def wait(self, for_: str) -> None:
        """Until it has said so, after what was waited for before."""
        end = time.monotonic() + 30
        while for_ not in self.said:
            left = end - time.monotonic()
            assert left > 0, f"{for_!r} was never said: {self.said[-800:]}"
            if select.select([self._file], [], [], left)[0]:
                self.said += os.read(self._file, 4096).decode(errors="replace")
        self.said = self.said.partition(for_)[2]

    def press(self, key: str) -> None:
        os.write(self._file, key.encode())

    def ended(self) -> int:
        late = time.monotonic() + 60
        while (found := os.waitpid(self._pid, os.WNOHANG))[0] == 0:
            if time.monotonic() > late:
                os.kill(self._pid, signal.SIGKILL)
            time.sleep(0.01)
        status = found[1]
        os.close(self._file)
        return os.waitstatus_to_exitcode(status)


@pytest.mark.service
def test_one_key_is_a_decision_on_a_terminal_and_undo_takes_it_back(run: Told) -> None:
    terminal = Terminal(run.store)
    terminal.wait("1/3")
    terminal.press("y")
    terminal.wait("2/3")
    assert run.labels() == [("bb33", True, "ada")], "a word is kept before the next is asked"
    terminal.press("u")
    terminal.wait("1/3")
    terminal.press("n")
    terminal.wait("2/3")
    terminal.press("s")
    terminal.wait("3/3")
    terminal.press("q")
    terminal.wait("0 good, 1 bad, 1 skipped; 1 left")
    assert terminal.ended() == 0
    assert run.labels() == [("bb33", True, "ada"), ("bb33", None, "ada"), ("bb33", False, "ada")]


@pytest.mark.service
def test_an_interrupted_sitting_keeps_what_was_said(run: Told) -> None:
    terminal = Terminal(run.store)
    terminal.wait("1/3")
    terminal.press("y")
    terminal.wait("2/3")
    terminal.press("\x03")
    assert terminal.ended() == 130
    assert run.labels() == [("bb33", True, "ada")]


def test_stats_add_up_by_agent_model_day_and_tool(run: Told) -> None:
    told = run.json("stats")
    assert told["all"]["traces"] == 3
    assert {group["name"]: group["traces"] for group in told["by_agent"]} == {"desk": 2, "night": 1}
    assert [(use["tool"], use["calls"], use["failures"]) for use in told["tools"]] == [("find_tables", 3, 0)]
    assert (told["all"]["unpriced"], told["all"]["cost"]) == (3, pytest.approx(0.0036))
    out = run("stats")
    assert "gpt-5-mini" in out
    assert "? unknown, + and more: 3 calls have no known price" in out


def test_prune_asks_first_and_spares_what_is_labelled(run: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    run("label", "aa11", "good", "--who", "ada")
    assert run.json("prune", "--older-than", "1d", "--keep", "labelled", "--dry-run")["traces"] == 1
    assert len(ids(run.json("list"))) == 3
    monkeypatch.setattr("sys.stdin", io.StringIO())
    run("prune", "--older-than", "1d", code=130)
    assert run.json("prune", "--older-than", "1d", "--keep", "labelled", "--yes")["traces"] == 1
    assert ids(run.json("list")) == ["bb33", "aa11"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--since", "yesterday"), "--since yesterday: not a time"),
        (("list", "--last", "7 days"), "--last 7 days: not a length of time"),
        (("list", "--last", "7d", "--since", "2026-01-01"), "give one of them"),
        (("list", "--after", "x"), "not where a page begins"),
        (("prune", "--older-than", "soon"), "--older-than soon"),
        (("export", "--json"), "name a file with --out"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(run: Told, arguments: tuple[str, ...], said: str) -> None:
    run(*arguments, code=2)
    assert said in run.err


def test_where_nothing_is_kept_it_says_what_to_type_and_makes_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    assert main(["traces", "list"]) == 0
    said = capsys.readouterr().err
    assert "journeyman serve" in said
    assert "journeyman collect" in said
    assert list(tmp_path.iterdir()) == []


def test_a_thought_has_no_place_in_a_conversation_and_that_is_said(run: Told) -> None:
    with open_traces(run.store) as store:
        store.add([replace(booking("cc44", agent="thinker"), steps=(Reasoning(text="hm"),))])
        assert store.count(Query(agent="thinker")) == 1
    told = run.json("export", "--agent", "thinker", "--format", "chat", "--out", "chat.jsonl")
    assert (told["lines"], Path("chat.jsonl").read_text()) == (0, "")
    assert any("no model was called" in loss for loss in told["losses"])


def test_a_step_is_asked_again_and_both_answers_stand_side_by_side(run: Told) -> None:
    told = run.json("replay", "aa11", "--model", "scripted:At noon.", "--dry-run")
    assert (told["step"], told["dry_run"], ids(run.json("list", "--task", "playground"))) == (3, True, [])
    out = run("replay", "aa11", "--model", "scripted:At noon.")
    assert "step 3: scripted:At noon. is asked, 0 bullets shown" in run.err
    assert ("- At six or eight, says desk." in out, "+ At noon." in out) == (True, True)
    (line,) = run.json("list", "--task", "playground")["traces"]
    assert (line["agent"], line["source"]) == ("journeyman", "run")


def test_an_answer_that_a_terminal_would_obey_is_shown_and_not_obeyed(run: Told) -> None:
    out = run("replay", "aa11", "--model", "scripted:\x1b[2J\x1b]0;owned\x07At noon.")
    assert "\\x1b[2J\\x1b]0;owned\\x07At noon." in out
    assert "\x1b" not in out + run.err
    run("replay", "aa11", "--playbook", str(Path(__file__)), "--model", "scripted:x", code=2)
    assert len(run.err.splitlines()) == 1
    assert len(run.json("list", "--task", "playground")["traces"]) == 1


def test_a_playbook_is_shown_to_no_server_that_a_trace_alone_names(run: Told) -> None:
    files.save(Playbook(bullets=(Bullet(id="b-1", content="Say it in one word.", domain="general"),)), Path("mine.json"))
    call = ModelCall(
        model="m", prompt="user: Where?", reply="Bergen", messages=(Message(role="user", text="Where?"),),
        raw={"request": {}, "base_url": "https://elsewhere.example/v1"},
    )  # fmt: skip
    with open_traces(run.store) as store:
        store.add([replace(booking("dd55"), steps=(call,))])
    run("replay", "dd55", "--playbook", "mine.json", "--dry-run", code=2)
    assert (
        "step 1 was answered at https://elsewhere.example/v1, which is none of this project's servers: --model NAME" in run.err
    )
    assert run.json("replay", "dd55", "--playbook", "mine.json", "--model", "scripted:x", "--dry-run")["bullets"] == 1
    Path("journeyman.toml").write_text('[upstreams.there]\nbase_url = "https://elsewhere.example/v1/"\n')
    assert run.json("replay", "dd55", "--playbook", "mine.json", "--dry-run")["bullets"] == 1


def test_a_step_that_cannot_be_asked_again_is_said_with_those_that_can(run: Told) -> None:
    run("replay", "aa11", "--step", "2", code=2)
    assert "step 2: only what a model answered is asked again; those are 1, 3" in run.err
    run("replay", "aa11", "--playbook", "missing.json", "--model", "scripted:x", code=2)
    assert "missing.json" in run.err
