"""`journeyman collect SOURCE`: a team's own work goes in once, without secrets, with personal data masked."""

import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.document import Document
from journeyman.core.messages import Usage
from journeyman.stores.documents import DocumentQuery, open_documents
from journeyman.stores.traces.base import Query
from journeyman.tracing.importers import claude_code
from tests.support import agent_sessions
from tests.support import personal as made_up
from tests.support.secrets import planted
from tests.tracing.sources.test_sources import _answer, _prompt, _text

STORE = ".journeyman/journeyman.db"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody's home; the project is a folder of it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


def collected(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> dict[str, Any]:
    assert main(["collect", *map(str, arguments), "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def rows() -> dict[str, int]:
    """How many rows each table of the store has."""
    with closing(sqlite3.connect(STORE)) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        skipped = ("_words", "sqlite_", "_data", "_idx", "_docsize", "_config")
        told = [name for name in names if not any(each in name for each in skipped)]
        return {name: database.execute(f"select count(*) from {name}").fetchone()[0] for name in told}


def test_what_is_on_this_machine_is_told_and_when_it_will_be_lost(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    assert collected(capsys, "sources") == {"sources": []}
    agent_sessions.write(home, "claude-code", 2)
    agent_sessions.write(home, "codex", 2)
    old = time.time() - 27 * 86_400
    os.utime(next((home / ".claude").rglob("*.jsonl")), (old, old))
    found = {each["kind"]: each for each in collected(capsys, "sources")["sources"]}
    assert set(found) == {"claude-code", "codex"}
    assert found["codex"]["lost_at"] is None
    assert main(["collect", "sources"]) == 0
    said = capsys.readouterr().out
    assert "in 3 days" in said
    (home / ".claude" / "settings.json").write_text('{"cleanupPeriodDays": 90}')
    main(["collect", "sources"])
    assert "in 63 days" in capsys.readouterr().out
    # What is printed can be put into the settings, and is then what `all` reads.
    Path("journeyman.toml").write_text("\n".join(line for line in said.splitlines() if line.startswith(("[", "kind", "path"))))
    assert [each["kind"] for each in collected(capsys, "all")["sources"]] == ["claude-code", "codex"]
    assert not (Path(".journeyman") / "key").read_text().isspace()


def test_nothing_is_read_that_was_not_asked_for(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    for name in agent_sessions.WRITERS:
        agent_sessions.write(home, name, 2)
    assert main(["collect", "all"]) == 2
    assert "no source is enabled" in capsys.readouterr().err
    assert not Path(STORE).exists()
    collected(capsys, "codex")
    with open_documents(STORE) as store:
        assert {trace.source for trace in store.traces(Query())} == {"codex"}


@pytest.mark.parametrize("name", agent_sessions.WRITERS)
def test_collecting_twice_adds_no_row(name: str, capsys: pytest.CaptureFixture[str], home: Path) -> None:
    written = agent_sessions.write(home, name, 4)
    path = [home / "work"] if name == "aider" else []
    (first,) = collected(capsys, name, *path)["sources"]
    assert (first["traces"], first["stored"], first["problems"]) == (written.prompts, written.prompts, [])
    assert (first["model_calls"], first["tool_calls"]) == (written.answers, written.calls)
    before = rows()
    (second,) = collected(capsys, name, *path)["sources"]
    assert (second["traces"], second["stored"], rows()) == (0, 0, before)
    # Also where nobody remembers that it was read.
    with open_documents(STORE) as store:
        assert store.forget_states(name)
    (third,) = collected(capsys, name, *path)["sources"]
    assert (third["traces"], third["stored"], rows()) == (written.prompts, 0, before)
    with open_documents(STORE) as store:
        assert store.statistics().all.input_tokens == written.input_tokens


def test_a_copy_that_is_resumed_later_takes_nothing_from_the_session_that_it_was_made_of(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    folder = home / ".claude/projects/x"
    folder.mkdir(parents=True)
    rows = [_prompt(1), _answer(1)]
    (folder / "a.jsonl").write_text(_text(rows))
    collected(capsys, "claude-code")
    later = [*rows, _prompt(2), _answer(2)]
    (folder / "b.jsonl").write_text(_text({**row, "sessionId": "other"} for row in later))
    (found,) = collected(capsys, "claude-code")["sources"]
    assert (found["traces"], found["copies"], found["stored"]) == (1, 1, 1)
    with open_documents(STORE) as store:
        assert [(trace.input, trace.session) for trace in store.traces(Query())] == [("ask 1", "s"), ("ask 2", "other")]
    # One that goes on with the prompt itself tells more.
    (folder / "c.jsonl").write_text(_text({**row, "sessionId": "third"} for row in (*rows, _answer(3))))
    assert collected(capsys, "claude-code")["sources"][0]["stored"] == 1


def test_a_dry_run_counts_and_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    written = agent_sessions.write(home, "codex", 3)
    (found,) = collected(capsys, "codex", "--dry-run")["sources"]
    assert (found["traces"], found["stored"]) == (written.prompts, 0)
    assert list(Path().iterdir()) == []


def test_files_are_chosen_by_their_paths_in_a_folder(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    _documents(Path(), [f"what was done on day {number}" for number in range(4)])
    (Path("devlogs") / "old").mkdir()
    (Path("devlogs") / "old" / "9.md").write_text("# Day 9\n\nwhat was done long ago\n")
    chosen = ["--include", "*.md", "--exclude", "old/*", "--exclude", "3.md"]
    assert collected(capsys, "devlogs", *chosen)["sources"][0]["documents"] == 3
    Path("journeyman.toml").write_text('[collect.sources.old]\nkind = "devlogs"\ninclude = ["old/*"]\n')
    assert collected(capsys, "all")["sources"][0]["documents"] == 1
    agent_sessions.write(home, "codex", 2)
    assert collected(capsys, home / ".codex", "--include", "*.none", "--dry-run", code=2)["traces"] == 0
    assert collected(capsys, home / ".codex", "--include", "*.jsonl", "--dry-run")["traces"]
    assert main(["collect", "git", "--include", "*.py"]) == 2
    assert "git has no files to choose from" in capsys.readouterr().err


def test_a_part_can_be_taken_and_the_rest_later(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    written = agent_sessions.write(home, "codex", 5)
    (some,) = collected(capsys, "codex", "--max-samples", 3)["sources"]
    assert (some["traces"], some["more"]) == (3, True)
    assert collected(capsys, "codex", "--since", "2027-01-01")["sources"][0]["traces"] == 0
    collected(capsys, "codex")
    assert rows()["traces"] == written.prompts
    assert main(["collect", "codex", "--since", "yesterday"]) == 2
    assert "is no time" in capsys.readouterr().err


# What must not be kept.


def _documents(folder: Path, texts: list[str]) -> None:
    (folder / "devlogs").mkdir()
    for number, text in enumerate(texts):
        (folder / "devlogs" / f"{number}.md").write_text(f"# Day {number}\n\nwhat we did today\n\n{text}\n")


def test_no_secret_and_no_personal_data_is_in_the_store_whatever_it_came_from(
    capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    chance = random.Random(5)
    told = [planted(seed)[kind] for kind in planted() for seed in range(2)]
    hidden = [made_up.planted(kind, chance) for kind in made_up.PLANTED for _ in range(15)]
    texts = [text for text, _ in (*told, *hidden)]
    _documents(Path(), texts)
    for number, text in enumerate(texts):
        prompt = {**_prompt(number), "message": {"role": "user", "content": text}}
        (home / ".claude/projects/x").mkdir(parents=True, exist_ok=True)
        (home / ".claude/projects/x" / f"{number}.jsonl").write_text(_text([prompt, _answer(number)]))
    found = [collected(capsys, name)["sources"][0] for name in ("devlogs", "claude-code")]
    assert [each["traces"] + each["documents"] for each in found] == [len(texts)] * 2
    assert all(each["redacted"]["email"] >= 15 and each["redacted"]["openai key"] >= 2 for each in found)
    with open_documents(STORE) as store:
        kept = [json.dumps([document.text, document.title]) for document in store.documents()]
        kept += [repr(trace) for trace in store.traces(Query())]
    whole = "\n".join(kept)
    assert [value for _, value in (*told, *hidden) if value in whole] == []
    raw = b"".join(path.read_bytes() for path in Path(".journeyman").glob("journeyman.db*"))
    assert [value for _, value in (*told, *hidden) if value.encode() in raw] == []


def test_personal_data_can_be_kept_or_what_holds_it_left_out(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    _documents(Path(), ["write to ada@example.org", "nobody is named here"])
    Path("journeyman.toml").write_text('[collect]\npersonal = "drop"\n')
    (found,) = collected(capsys, "devlogs")["sources"]
    assert (found["documents"], found["dropped"]) == (1, 1)
    Path("journeyman.toml").write_text('[collect]\npersonal = "keep"\n')
    (Path("devlogs") / "0.md").touch()
    collected(capsys, "devlogs")
    with open_documents(STORE) as store:
        assert [line.title for line in store.document_page(DocumentQuery(text="ada@example.org"))[0]] == ["Day 0"]


def test_what_is_stored_is_masked_anew_without_its_source(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    _documents(Path(), ["write to ada@example.org about ACME-123456"])
    agent_sessions.write(home, "codex", 2)
    Path("journeyman.toml").write_text(
        '[collect]\npersonal = "keep"\n[collect.sources.logs]\nkind = "devlogs"\npath = "devlogs"\n'
    )
    collected(capsys, "all")
    collected(capsys, "codex")
    (Path("devlogs") / "0.md").unlink()
    settings = '[record]\nredact = ["ACME-[0-9]{6}"]\n[collect.sources.logs]\nkind = "devlogs"\npath = "devlogs"\n'
    Path("journeyman.toml").write_text(settings)
    (found,) = collected(capsys, "--reprocess")["sources"]
    assert (found["documents"], found["stored"]) == (1, 1)
    with open_documents(STORE) as store:
        (document,) = store.documents()
        assert "ada@" not in document.text
        assert "[redacted pattern]" in document.text
        assert store.document_page(DocumentQuery(text="ada"))[0] == []
    assert collected(capsys, "--reprocess")["sources"][0]["stored"] == 0
    assert collected(capsys, "codex", "--reprocess")["sources"][0]["stored"] == 0


def test_what_a_newer_reader_tells_differently_is_renewed_and_what_was_forgotten_stays_forgotten(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = agent_sessions.write(home, "claude-code", 3)
    _documents(Path(), ["the counter of parcels was wrong", "it was mended by hand"])
    with monkeypatch.context() as older:
        # A reader of before, to whom tokens were unknown.
        older.setattr(claude_code, "_usage", lambda _: Usage())
        collected(capsys, "claude-code")
        collected(capsys, "devlogs")
    with open_documents(STORE) as store:
        first, second, *_ = [trace.id for trace in store.traces(Query())]
        store.label(first, True, who="ada", at=datetime(2026, 9, 2, tzinfo=UTC))
        store.forget([second])
        gone, kept = [each.id for each in store.documents()]
        store.forget_documents([gone])
        assert not store.statistics().all.input_tokens
    states = _states()
    (found,) = collected(capsys, "claude-code", "--reprocess")["sources"]
    assert (found["traces"], found["stored"], found["absent"]) == (written.prompts - 1, written.prompts - 1, 1)
    (texts,) = collected(capsys, "devlogs", "--reprocess")["sources"]
    assert (texts["documents"], texts["stored"], texts["absent"]) == (1, 0, 1)
    with open_documents(STORE) as store:
        assert store.line(second) is None
        assert [each.id for each in store.documents()] == [kept]
        told = {trace.id: trace for trace in store.traces(Query())}
        assert all(trace.input_tokens for trace in told.values())
        assert (told[first].label, told[first].labelled_by) == (True, "ada")
    assert _states() == states
    (again,) = collected(capsys, "claude-code", "--reprocess")["sources"]
    assert again["stored"] == 0
    shutil.rmtree(home / ".claude")
    (named,) = collected(capsys, "devlogs", "--reprocess", Path("nowhere"))["sources"]
    assert "nowhere" in named["gone"][0]
    assert main(["collect", "claude-code", "--reprocess"]) == 0


def _states() -> list[tuple[str, str]]:
    with closing(sqlite3.connect(STORE)) as database:
        return database.execute("select key, state from source_states order by source, key").fetchall()


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_lines_of_kinds_that_nobody_knows_are_named_where_they_are_many(
    name: str, capsys: pytest.CaptureFixture[str], home: Path
) -> None:
    written = agent_sessions.write(home, name, 2)
    path = max((path for path in home.rglob("*.jsonl")), key=lambda path: path.stat().st_size)
    about = {"timestamp": "2026-09-01T08:00:00Z", "payload": {}}
    known = {"type": "summary", "leafUuid": "h"} if name == "claude-code" else {"type": "turn_context", **about}
    with path.open("a") as file:
        file.write(f"{json.dumps(known)}\n" * 40)
    lines = len(path.read_text().splitlines())
    few, many = max(1, lines // 40), lines // 6
    strange = {"type": "hologram", "uuid": "h", "timestamp": "2026-09-01T08:00:00Z"}
    with path.open("a") as file:
        file.write(f"{json.dumps(strange)}\n" * few)
    (found,) = collected(capsys, name)["sources"]
    assert (found["traces"], found["problems"]) == (written.prompts, [])
    with path.open("a") as file:
        # Read on from the last prompt: the whole file counts, and no line of it twice.
        file.write(f"{json.dumps({**strange, 'type': 'dream'})}\n" * many)
    (found,) = collected(capsys, name, code=1)["sources"]
    (problem,) = found["problems"]
    assert f"{few + many:,} of its {lines + few + many:,} lines" in problem
    assert f"dream ({many})" in problem
    assert f"hologram ({few})" in problem
    with open_documents(STORE) as store:
        assert store.statistics().all.input_tokens == written.input_tokens


def test_texts_that_tell_nothing_are_left_out_and_counted(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    _documents(Path(), ["nobody is named here"])
    (Path("devlogs") / "short.md").write_text("ok\n")
    (Path("devlogs") / "same.md").write_text("again and again\n" * 40)
    (found,) = collected(capsys, "devlogs")["sources"]
    assert (found["documents"], found["poor"]) == (1, 2)


_OWN = """
from journeyman.core.document import Document
from journeyman.tracing.sources.base import Bookmark


class Tickets:
    kind = "tickets"

    def __init__(self, path=None):
        self.path = path

    def read(self, states):
        last = states.get("all", {}).get("last", 0)
        for number in range(last + 1, 4):
            yield Document(source="tickets", key=str(number), kind="ticket", text=f"ticket number {number} is open")
        yield Bookmark("all", {"last": 3})
"""


def test_a_source_of_ones_own_is_read_as_the_others_are(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    Path("own_tickets.py").write_text(_OWN)
    Path("journeyman.toml").write_text('[collect.sources.tickets]\nkind = "own_tickets:Tickets"\n')
    assert collected(capsys, "all")["sources"][0]["documents"] == 3
    assert collected(capsys, "all")["sources"][0]["documents"] == 0
    Path("journeyman.toml").write_text('[collect.sources.tickets]\nkind = "ticktes"\n')
    assert main(["collect", "all"]) == 2
    assert "no source 'ticktes'" in capsys.readouterr().err


def test_documents_are_found_shown_and_forgotten(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    def told(*arguments: str, code: int = 0) -> dict[str, Any]:
        assert main(["documents", *arguments, "--json"]) == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    assert told("list") == {"documents": [], "counts": []}
    _documents(Path(), ["the parser is slow", "the reader is fast"])
    collected(capsys, "devlogs")
    (found,) = told("list", "--words", "parser")["documents"]
    assert (found["title"], found["kind"], found["key"]) == ("Day 0", "devlog", "0.md")
    assert told("list")["counts"] == [{"source": "devlogs", "kind": "devlog", "documents": 2}]
    assert "the parser is slow" in told("show", found["id"][:8])["text"]
    assert main(["documents", "show", found["id"][:8]]) == 0
    assert "the parser is slow" in capsys.readouterr().out
    assert main(["documents", "show", "zzz"]) == 2
    assert main(["documents", "forget"]) == 2
    assert told("forget", "--words", "parser", "--yes") == {"forgotten": 1}
    assert [each["key"] for each in told("list")["documents"]] == ["1.md"]


_EARLIER = """
class CustomDataCollector:
    async def collect_data(self, max_samples):
        return [{"id": n, "content": f"sample number {n} of them", "metadata": {"n": n}} for n in range(3)][:max_samples]
"""


def test_a_collector_written_for_an_earlier_system_is_taken_as_it_is(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    Path("earlier.py").write_text(_EARLIER)
    Path("journeyman.toml").write_text('[collect.sources.mine]\nkind = "earlier:CustomDataCollector"\n')
    assert [collected(capsys, "all")["sources"][0]["stored"] for _ in range(2)] == [3, 0]


def test_the_names_of_an_earlier_system_do_the_same(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    _documents(Path(), ["write to ada@example.org", "nobody is named here"])

    def told(*arguments: str, code: int = 0) -> dict[str, Any]:
        assert main(["data-collection", *arguments, "--json"]) == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
        return found

    assert told("--collect-all", "--output", "data/training")["stored"] == 2
    rows = [json.loads(line) for line in Path("data/training/devlogs.jsonl").read_text().splitlines()]
    assert [row["title"] for row in rows] == ["Day 0", "Day 1"]
    assert "ada@" not in rows[0]["text"]
    assert told("--process-existing")["stored"] == 0
    Path("raw").mkdir()
    (Path("raw") / "old.md").write_text("# Old\n\nwhat was known before\n")
    assert told("--process-existing", "--input", "raw", "--output", "data/processed")["stored"] == 1
    for wrong in ([], ["--stream", "--collect-all"], ["--collect-all", "--input", "raw"]):
        assert main(["data-collection", *wrong]) == 2


# Processes that are killed, and that go on.

_RUN = [sys.executable, "-m", "journeyman", "collect"]


def _everything() -> dict[str, Any]:
    with open_documents(STORE) as store:
        return {trace.id: trace for trace in store.traces(Query())} | {each.id: each for each in store.documents()}


@pytest.mark.service
def test_whoever_is_killed_and_begins_again_has_what_was_read_in_one_go(
    capsys: pytest.CaptureFixture[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kills = int(os.environ.get("JOURNEYMAN_TEST_KILLS", "4"))
    agent_sessions.write(home, "claude-code", 30 + 15 * kills)
    agent_sessions.write(home, "codex", 30 + 15 * kills)
    _documents(Path(), [f"what we did on day {number}" for number in range(60)])
    kinds = ("claude-code", "codex", "devlogs")
    settings = "\n".join(f'[collect.sources.{kind}]\nkind = "{kind}"' for kind in kinds)
    Path("journeyman.toml").write_text(settings)
    chance, killed, rows_then = random.Random(3), 0, set[int]()
    for _ in range(kills):
        before = _told_traces()
        process = subprocess.Popen([*_RUN, "all"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # It is killed while it writes, however long it takes to begin.
        until = time.monotonic() + 30
        while process.poll() is None and _told_traces() == before and time.monotonic() < until:
            time.sleep(0.005)
        time.sleep(chance.random() * 0.05)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            killed += 1
        elif process.wait(timeout=30) == 0:
            break
        process.wait(timeout=30)
        rows_then.add(_told_traces())
    subprocess.run([*_RUN, "all"], check=True, capture_output=True, timeout=120)
    assert killed
    assert len(rows_then) > 1
    after, many = _everything(), rows()
    (home / "other").mkdir()
    (home / "other" / "journeyman.toml").write_text(settings.replace('"devlogs"', f'"devlogs"\npath = "{Path.cwd()}/devlogs"'))
    (home / "other" / ".journeyman").mkdir()
    (home / "other" / ".journeyman" / "key").write_text(Path(".journeyman/key").read_text())
    monkeypatch.chdir(home / "other")
    collected(capsys, "all")
    once = _everything()
    assert _without_place(after) == _without_place(once)
    assert rows() == many


def _told_traces() -> int:
    if not Path(STORE).exists():
        return 0
    with closing(sqlite3.connect(f"file:{STORE}?mode=ro", uri=True, timeout=10)) as database:
        try:
            return sum(database.execute(f"select count(*) from {name}").fetchone()[0] for name in ("traces", "documents"))
        except sqlite3.OperationalError:
            return 0


def _without_place(found: dict[str, Any]) -> list[Any]:
    return sorted(repr((each.key, each.text)) if isinstance(each, Document) else repr(each) for each in found.values())


@pytest.mark.service
@pytest.mark.parametrize("polling", [False, True])
def test_what_is_written_while_it_is_watched_comes_in_until_it_is_told_to_stop(home: Path, polling: bool) -> None:
    folder = home / ".claude/projects/x"
    folder.mkdir(parents=True)
    command = [*_RUN, "claude-code", "--watch", *(["--polling"] if polling else [])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert "watching claude-code" in process.stderr.readline()
            with (folder / "s.jsonl").open("a") as file:
                for number in range(20):
                    file.write(_text([_prompt(number), _answer(number)]))
                    file.flush()
                    time.sleep(0.02)
            assert _waited(lambda: len(_everything()) == 20)
            (folder / "new").mkdir()
            (folder / "new" / "t.jsonl").write_text(_text([_prompt(100), _answer(100)]))
            assert _waited(lambda: len(_everything()) == 21)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) == 0
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()


def _waited(met: Any, seconds: float = 15.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if Path(STORE).exists() and met():
            return True
        time.sleep(0.2)
    return False
