"""What each source gives, and that it gives it once: files that grow, are cut off, rotated and rewritten; git; messages."""

import json
import os
import subprocess
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.document import Document
from journeyman.core.errors import InputError
from journeyman.core.trace import Trace
from journeyman.experiments.collecting import source
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers import Problem
from journeyman.tracing.sources.base import Bookmark, Item, State, WorkSource
from tests.support import agent_sessions


class Reading:
    """Reads a source on and on, as a store would have it do."""

    def __init__(self, made: WorkSource) -> None:
        self.source = made
        self.states: dict[str, State] = {}
        self.items: list[Item] = []

    def on(self) -> list[Any]:
        """The traces and documents that are new."""
        self.items = list(self.source.read(self.states))
        for item in self.items:
            if isinstance(item, Bookmark):
                json.dumps(item.state)
                if item.state is None:
                    self.states.pop(item.key)
                else:
                    self.states[item.key] = item.state
        return [item.trace if isinstance(item, RecordedTrace) else item for item in self.items if not _beside(item)]

    @property
    def problems(self) -> list[str]:
        return [str(item) for item in self.items if isinstance(item, Problem)]


def _beside(item: Item) -> bool:
    return isinstance(item, Problem | Bookmark)


# Sessions of agents.


def _home(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize("name", agent_sessions.WRITERS)
def test_sessions_are_found_where_their_program_keeps_them_and_read_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = _home(monkeypatch, tmp_path)
    assert source(name).find() is None
    assert Reading(source(name)).on() == []
    written = agent_sessions.write(home, name, 6)
    found = source(name).find()
    assert found is not None
    assert found.files >= 1
    assert (found.lost_at is not None) == (name == "claude-code")
    reading = Reading(source(name))
    traces = {trace.id: trace for trace in reading.on()}
    assert (len(traces), reading.problems) == (written.prompts, [])
    assert sum(trace.input_tokens or 0 for trace in traces.values()) == written.input_tokens
    assert {trace.source for trace in traces.values()} == {name}
    assert reading.on() == []


def test_a_path_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is nothing at"):
        list(source("claude-code", tmp_path / "none").read({}))


def _prompt(number: int) -> dict[str, Any]:
    about = {"sessionId": "s", "parentUuid": None, "isSidechain": False, "timestamp": "2026-09-01T08:00:00Z"}
    return {**about, "type": "user", "uuid": f"p{number}", "message": {"role": "user", "content": f"ask {number}"}}


def _answer(number: int) -> dict[str, Any]:
    said = {"id": f"m{number}", "role": "assistant", "model": "m", "content": [{"type": "text", "text": f"did {number}"}]}
    return {**_prompt(number), "type": "assistant", "uuid": f"a{number}", "message": said}


def _text(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _said(traces: list[Trace]) -> list[tuple[str | None, str]]:
    return [(trace.input, trace.reply) for trace in traces]


def test_a_file_that_grows_is_read_from_the_last_prompt_on(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(_text([_prompt(1), _answer(1), _prompt(2)]))
    reading = Reading(source("claude-code", tmp_path))
    assert _said(reading.on()) == [("ask 1", "did 1"), ("ask 2", "")]
    with path.open("a") as file:
        file.write(_text([_answer(2)]))
    assert _said(reading.on()) == [("ask 2", "did 2")]
    with path.open("a") as file:
        file.write(_text([_prompt(3)]) + json.dumps(_answer(3))[:40])
    assert _said(reading.on()) == [("ask 2", "did 2"), ("ask 3", "")]
    assert reading.problems == []
    with path.open("a") as file:
        file.write(json.dumps(_answer(3))[40:] + "\n")
    assert _said(reading.on()) == [("ask 3", "did 3")]


def test_who_reads_on_knows_what_the_beginning_of_a_file_said(tmp_path: Path) -> None:
    """The id of a trace of Codex hangs on the session and on how many prompts there were."""
    agent_sessions.write(tmp_path, "codex", 1, seed=3)
    (path,) = tmp_path.rglob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    whole = {trace.id: trace for trace in Reading(source("codex", path)).on()}
    assert len(whole) > 1
    path.write_bytes(b"")
    reading, found = Reading(source("codex", path)), dict[str, Trace]()
    for line in lines:
        with path.open("ab") as file:
            file.write(line)
        found |= {trace.id: trace for trace in reading.on()}
    assert found == whole


def test_a_file_that_was_cut_off_or_rewritten_is_read_anew_and_a_rotated_one_is_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_text(_text([_prompt(1), _answer(1), _prompt(2), _answer(2)]))
    reading = Reading(source("claude-code", tmp_path))
    assert len(reading.on()) == 2
    path.write_text(_text([_prompt(3)]))
    assert _said(reading.on()) == [("ask 3", "")]
    path.write_text(_text([_prompt(number) for number in range(4, 9)]))
    assert len(reading.on()) == 5
    with path.open("a") as file:
        file.write(_text([_prompt(9)]))
    path.rename(tmp_path / "s.jsonl.1")
    path.write_text(_text([_prompt(10)]))
    assert {input for input, _ in _said(reading.on())} >= {"ask 9", "ask 10"}


def test_what_cannot_be_read_is_named_and_the_rest_comes_in(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(_text([_prompt(1)]) + "{broken\n" + _text([_answer(1)]))
    os.mkfifo(tmp_path / "b.jsonl")
    (tmp_path / "c.jsonl").write_text("")
    (tmp_path / "d.jsonl").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    reading = Reading(source("claude-code", tmp_path))
    assert _said(reading.on()) == [("ask 1", "did 1")]
    assert [problem.rpartition("/")[2] for problem in reading.problems] == [
        "a.jsonl:2: is not JSON",
        "b.jsonl: was left out: is no regular file",
        "d.jsonl: was left out: No such file or directory",
    ]


# Git.


def _git(folder: Path, *arguments: str) -> str:
    who = {"GIT_AUTHOR_NAME": "Ada Lovelace", "GIT_AUTHOR_EMAIL": "ada@example.org", "GIT_CONFIG_GLOBAL": "/dev/null"}
    who |= {"GIT_COMMITTER_NAME": "Ada Lovelace", "GIT_COMMITTER_EMAIL": "ada@example.org", "GIT_CONFIG_SYSTEM": "/dev/null"}
    done = subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **who}, capture_output=True, check=True)
    return done.stdout.decode().strip()


def _commit(folder: Path, name: str, text: str, message: str) -> str:
    (folder / name).write_text(text)
    _git(folder, "add", name)
    _git(folder, "commit", "-q", "-m", message)
    return _git(folder, "rev-parse", "HEAD")


def test_each_commit_is_a_document_once_also_after_history_was_rewritten(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q", "-b", "main")
    first = _commit(tmp_path, "shop.py", "print(1)\n", "Begin\n\nThe reason why")
    second = _commit(tmp_path, "shop.py", "print(2)\n", "Go on")
    reading = Reading(source("git", tmp_path))
    one, two = reading.on()
    assert isinstance(one, Document)
    assert (one.key, two.key, one.title, one.author) == (first, second, "Begin", "Ada Lovelace <ada@example.org>")
    assert one.text.startswith("Begin\n\nThe reason why\n\ndiff --git")
    assert "-print(1)\n+print(2)" in two.text
    assert (two.raw["files"], two.raw["parents"]) == (["shop.py"], [first])
    assert list(reading.source.people()) == ["Ada Lovelace"]
    assert reading.on() == []
    third = _commit(tmp_path, "shop.py", "print(3)\n", "More")
    _git(tmp_path, "branch", "kept")
    _git(tmp_path, "reset", "-q", "--hard", first)
    fourth = _commit(tmp_path, "other.py", "print(4)\n", "Instead")
    assert {each.key for each in reading.on()} == {third, fourth}
    assert reading.on() == []


def test_no_program_that_a_repository_names_is_run(tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q", "-b", "main")
    _commit(tmp_path, "a.txt", "a\n", "one more line")
    (tmp_path / ".gitattributes").write_text("*.txt diff=evil\n")
    for name in ("core.fsmonitor", "core.pager", "diff.external", "diff.evil.textconv", "diff.evil.command"):
        _git(tmp_path, "config", name, f"touch {tmp_path}/ran")
    assert len(Reading(source("git", tmp_path)).on()) == 1
    assert not (tmp_path / "ran").exists()


def test_what_is_no_repository_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a git repository"):
        list(source("git", tmp_path).read({}))


# Messages.

_USERS = [{"id": "U1", "profile": {"real_name": "Ada Lovelace"}}, {"id": "U2", "name": "bob"}]
_DAY = [
    {"type": "message", "ts": "1788249600.000100", "user": "U1", "text": "<@U2> the build is red"},
    {"type": "message", "ts": "1788249660.000100", "user": "U2", "text": "I look", "thread_ts": "1788249600.000100"},
    {
        "type": "message",
        "ts": "1788249600.000100",
        "user": "U1",
        "text": "<@U2> the build is red",
        "thread_ts": "1788249600.000100",
    },
    {"type": "message", "ts": "1788253200.000100", "user": "U2", "text": "lunch?"},
]


def test_an_export_of_slack_is_a_document_for_each_thread_and_day(tmp_path: Path) -> None:
    path = tmp_path / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("users.json", json.dumps(_USERS))
        archive.writestr("channels.json", json.dumps([{"id": "C1", "name": "dev"}]))
        archive.writestr("dev/2026-09-01.json", json.dumps(_DAY[1:]))
        archive.writestr("../evil.json", json.dumps(_DAY))
    reading = Reading(source("messages", path))
    thread, day = reading.on()
    assert thread.text == "[08:00] Ada Lovelace: @bob the build is red\n[08:01] bob: I look"
    assert (thread.where, thread.key, day.text, day.key) == (
        "slack:dev", "dev/1788249600.000100", "[09:00] bob: lunch?", "dev/2026-09-01",
    )  # fmt: skip
    assert [problem.rpartition(": ")[2] for problem in reading.problems] == ["leads out of the archive, and was left out"]
    assert set(reading.source.people()) == {"Ada Lovelace", "bob"}
    assert reading.on() == []


def test_a_file_of_an_archive_that_would_unpack_to_too_much_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("journeyman.tracing.sources.messages._LONGEST", 1000)
    with zipfile.ZipFile(tmp_path / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("dev/2026-09-01.json", json.dumps(_DAY) + " " * 2000)
    reading = Reading(source("messages", tmp_path))
    assert reading.on() == []
    assert "was left out" in reading.problems[0]


def test_an_export_of_discord_is_a_document_for_each_day(tmp_path: Path) -> None:
    author = {"id": "1", "name": "ada", "nickname": "Ada"}
    some = [
        {"id": "2", "timestamp": "2026-09-02T08:00:00+00:00", "author": author, "content": "next day"},
        {"id": "1", "timestamp": "2026-09-01T08:00:00+00:00", "author": author, "content": "it is up"},
    ]
    (tmp_path / "dev.json").write_text(json.dumps({"guild": {}, "channel": {"id": "9", "name": "dev"}, "messages": some}))
    first, second = Reading(source("messages", tmp_path)).on()
    assert (first.text, first.where, second.key) == ("[08:00] Ada: it is up", "discord:dev", "dev/2026-09-02")


_MAIL = """From: Ada <ada@example.org>
To: Bob <bob@example.org>
Subject: The build
Date: Tue, 01 Sep 2026 08:00:00 +0200
Message-ID: <{id}@example.org>
Content-Type: text/plain; charset=utf-8

The build is red again.

On Mon, Aug 31, 2026 Bob wrote:
> It was green.
"""


def test_mail_is_read_from_mbox_maildir_and_files_without_what_it_quotes(tmp_path: Path) -> None:
    (tmp_path / "all.mbox").write_text("".join(f"From ada Tue Sep  1 08:00:00 2026\n{_MAIL.format(id=id)}\n" for id in "ab"))
    (tmp_path / "Mail" / "cur").mkdir(parents=True)
    (tmp_path / "Mail" / "cur" / "1.host:2,S").write_text(_MAIL.format(id="c"))
    (tmp_path / "one.eml").write_text(_MAIL.format(id="d"))
    reading = Reading(source("messages", tmp_path))
    found = sorted(reading.on(), key=lambda each: each.key)
    assert [each.key for each in found] == [f"{id}@example.org" for id in "abcd"]
    assert {each.text for each in found} == {"The build is red again."}
    assert {(each.title, each.kind, each.at and each.at.isoformat()) for each in found} == {
        ("The build", "mail", "2026-09-01T08:00:00+02:00")
    }
    assert reading.problems == []


# Logs of the day, and workspaces.


def test_texts_and_workspaces_are_documents_anew_when_they_change(tmp_path: Path) -> None:
    agent = tmp_path / "agent_workspaces" / "Agent-1"
    (agent / "inbox").mkdir(parents=True)
    (agent / "status.json").write_text(
        json.dumps({"agent_id": "Agent-1", "current_mission": "Mend the parser", "status": "busy"})
    )
    (agent / "inbox" / "CAPTAIN.md").write_text("# Please look\n\nThe parser is slow.\n")
    (agent / "core").write_bytes(b"\0\1")
    reading = Reading(source("workspaces", tmp_path / "agent_workspaces"))
    inbox, status = sorted(reading.on(), key=lambda each: each.kind)
    assert (inbox.kind, inbox.title, inbox.author) == ("inbox", "Please look", "Agent-1")
    assert (status.kind, status.title, status.author, status.key) == (
        "status",
        "Mend the parser",
        "Agent-1",
        "Agent-1/status.json",
    )
    (agent / "inbox" / "CAPTAIN.md").write_text("# Please look\n\nThe parser is fast now.\n")
    (again,) = reading.on()
    assert (again.key, again.id != inbox.id) == (inbox.key, True)
    logs = Reading(source("devlogs", agent))
    assert [each.kind for each in logs.on()] == ["devlog"]
