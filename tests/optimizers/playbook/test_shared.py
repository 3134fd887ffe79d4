"""Processes that share a playbook file lose none of each other's lessons, also when one is killed in the middle."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Add, Batch, Bullet, Playbook, Vote
from journeyman.io.files import locked
from journeyman.optimizers.playbook import edit, files
from journeyman.optimizers.playbook.journal import Journal, read, replay

COMMON = Bullet(id="b-common", content="Read the whole question first.")
LEARN = """
import hashlib, sys
from datetime import UTC, datetime
from pathlib import Path
from journeyman.models.embedders import load
from journeyman.optimizers.playbook.trainer import Lessons
from journeyman.optimizers.playbook.curator import Curator
from journeyman.models.scripted import Always
from journeyman.core.playbook import Insight
from journeyman.core.score import Experience, Reward, Score
from journeyman.core.task import Task
from journeyman.core.trace import ModelCall, Trace

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
now = datetime.now(UTC)
lessons = Lessons(path=path, reflector=Always("-"), curator=Curator(load("hashing")), stamp=lambda: "now", name=name)
for number in range(count):
    words = hashlib.sha256(f"{name} {number}".encode()).hexdigest()
    rule = " ".join(words[at : at + 6] for at in range(0, 60, 6))
    task = Task(id=f"{name}-{number}", question="What is it?")
    call = ModelCall(model="m", prompt="p", reply="r", shown=("b-common",))
    trace = Trace(id=task.id, task_id=task.id, candidate_id="base", started_at=now, steps=(call,))
    score = Score(trace_id=task.id, rewards=(Reward(name="right", value=1.0),))
    lessons.merge([Experience(task, trace, score)], [Insight(content=rule)])
    print(rule, flush=True)
"""
HOLD = """
import sys
from pathlib import Path
from journeyman.io.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def program(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    files.save(Playbook(bullets=(COMMON,)), tmp_path / "skillbook.json")
    return tmp_path / "skillbook.json"


@pytest.mark.service
def test_what_four_processes_learn_at_once_is_all_there_though_one_was_killed(path: Path) -> None:
    count = 25
    with (
        program(LEARN, path, "one", count) as one,
        program(LEARN, path, "two", count) as two,
        program(LEARN, path, "three", count) as three,
        program(LEARN, path, "killed", 10_000) as killed,
    ):
        said = [line(killed) for _ in range(10)]
        killed.kill()
        said += [text.strip() for process in (one, two, three) for text in process.communicate(timeout=300)[0].splitlines()]
        said += [text.strip() for text in killed.communicate(timeout=10)[0].splitlines() if text.endswith("\n") or text.strip()]
    found = files.load(path)
    learned = {bullet.content for bullet in found.bullets} - {COMMON.content}
    assert len(set(said)) >= 3 * count + 10
    assert set(said) <= learned
    assert len(learned - set(said)) <= 1, "of what was not said only what was under way at the kill may be there"
    assert found.bullets[0].helpful == found.bullets[0].shown == len(learned)
    assert replay(edit.journal_of(path)).bullets == found.bullets
    assert len(list(read(edit.journal_of(path)))) == len(learned) + 1


def test_a_lock_that_another_process_holds_is_not_had_and_one_sentence_says_so(path: Path) -> None:
    with program(HOLD, path) as holder:
        assert line(holder) == "held"
        with pytest.raises(PlaybookError, match=r"skillbook.json has been in use by another process for more than 0.05 s"):  # noqa: SIM117
            with locked(path, patience=0.05):
                pytest.fail("two held it")


def test_a_process_that_is_killed_has_let_go(path: Path) -> None:
    with program(HOLD, path) as holder:
        assert line(holder) == "held"
        holder.kill()
        holder.wait()
        had = False
        with locked(path, patience=10):
            had = True
        assert had


def test_a_lock_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="could not be made"), locked(tmp_path / "file" / "skillbook.json"):
        pytest.fail("there is no such place")


def test_what_a_crash_kept_from_the_file_is_merged_upon(path: Path) -> None:
    journal = Journal.create(edit.journal_of(path), files.load(path))
    lost = Bullet(id="b-1", content="It was learned just before the lights went out.")
    journal.append(Batch(id="before", deltas=(Add(bullet=lost),)))
    after = edit.merge(path, lambda _: Batch(id="after", deltas=(Vote(bullet_id="b-1", shown=1),)))
    assert after.moved is None
    assert [(bullet.id, bullet.shown) for bullet in files.load(path).bullets] == [("b-common", 0), ("b-1", 1)]


def test_a_file_that_is_not_there_begins_as_it_is_told(tmp_path: Path) -> None:
    batch = Batch(id="first", deltas=(Add(bullet=COMMON),))
    with pytest.raises(InputError, match="is not there"):
        edit.merge(tmp_path / "new.json", lambda _: batch)
    edit.merge(tmp_path / "new.json", lambda _: batch, new=Playbook())
    edit.merge(tmp_path / "new.json", lambda _: batch, new=Playbook())
    assert [bullet.support for bullet in files.load(tmp_path / "new.json").bullets] == [1]
