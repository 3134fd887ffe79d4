"""A run on the disk: whatever a kill leaves behind, it goes on from the last line of its journal."""

import json
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.playbook import Add, Batch, Bullet, Playbook
from journeyman.core.release import Stage
from journeyman.io.atomic import write_json
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.journal import replay
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, Tally, newest_unfinished


def batch(number: int) -> Batch:
    return Batch(id=f"test/1.{number}", deltas=(Add(bullet=Bullet(id=f"b-{number}", content=f"Rule {number}.")),), at="now")


def begun(folder: Path, batches: int = 3, interval: int = 0) -> PlaybookRun:
    run = PlaybookRun.begin(folder, {"name": "test"}, Playbook(), checkpoint_interval=interval)
    for number in range(batches):
        commit(run, number)
    return run


def commit(run: PlaybookRun, number: int) -> None:
    progress = Progress(attempts=Tally(attempts=5, correct=number), added=1)
    run.commit(batch(number), progress, frozenset({f"r-{number}"}), tasks=5 * (number + 1))


def same(one: PlaybookRun, other: PlaybookRun) -> bool:
    return (one.playbook, one.progress, one.refused, one.batches) == (
        other.playbook,
        other.progress,
        other.refused,
        other.batches,
    )


def test_it_is_read_again_as_it_was(tmp_path: Path) -> None:
    run = begun(tmp_path / "run")
    again = PlaybookRun(tmp_path / "run")
    assert same(run, again)
    assert (again.batches, again.progress.attempts.correct) == (3, 3)
    assert again.refused == {"r-0", "r-1", "r-2"}
    assert again.initial == Playbook()
    assert not again.finished
    again.finish({"passed": True})
    assert PlaybookRun(tmp_path / "run").finished


def test_there_is_one_run_in_a_folder(tmp_path: Path) -> None:
    begun(tmp_path)
    with pytest.raises(PlaybookError, match="holds a run already; resume it, or give the new one another name"):
        begun(tmp_path)


def test_a_kill_before_the_config_leaves_no_run(tmp_path: Path) -> None:
    begun(tmp_path / "a")
    (tmp_path / "a" / "config.json").unlink()
    assert newest_unfinished(tmp_path) is None
    assert same(begun(tmp_path / "a", batches=0), begun(tmp_path / "new", batches=0))


def test_a_kill_between_record_and_journal_repeats_the_batch(tmp_path: Path) -> None:
    """The record is there, the line is not: the batch was not merged."""
    run, whole = begun(tmp_path / "a", 2), begun(tmp_path / "b", 3)
    record = tmp_path / "b" / "batches" / "00003.json"
    (tmp_path / "a" / "batches" / "00003.json").write_bytes(record.read_bytes().replace(b'"correct": 2', b'"correct": 99'))
    again = PlaybookRun(tmp_path / "a")
    assert same(again, run)
    commit(again, 2)
    assert same(PlaybookRun(tmp_path / "a"), whole)


def test_no_line_is_written_before_its_record(tmp_path: Path) -> None:
    run = begun(tmp_path / "run", 2)
    batches = tmp_path / "run" / "batches"
    batches.rename(tmp_path / "aside")
    batches.write_text("in the way")
    with pytest.raises(InputError, match="could not be written"):
        commit(run, 2)
    batches.unlink()
    (tmp_path / "aside").rename(batches)
    assert PlaybookRun(tmp_path / "run").batches == 2


@pytest.mark.parametrize("left", [1, 20, 200])
def test_a_torn_tail_of_the_journal_was_never_merged(tmp_path: Path, left: int) -> None:
    whole = begun(tmp_path / "a", 3)
    path = tmp_path / "a" / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:left])
    again = PlaybookRun(tmp_path / "a")
    assert again.batches == 2
    commit(again, 2)
    assert same(again, whole)
    assert path.read_bytes() == b"".join(lines)


def test_the_same_batch_twice_is_merged_once(tmp_path: Path) -> None:
    run = begun(tmp_path, 2)
    before = files.dumps(run.playbook)
    assert files.dumps(run.playbook.apply(batch(1))) == before


@pytest.mark.parametrize("change", ["gone", "cut", "strange"])
def test_a_record_that_is_not_what_was_written_is_named(tmp_path: Path, change: str) -> None:
    begun(tmp_path)
    path = tmp_path / "batches" / "00002.json"
    text = path.read_text()
    path.unlink()
    if change != "gone":
        path.write_text(text[:40] if change == "cut" else '{"tasks": 5, "refused": [], "progress": {"attempts": "many"}}')
    with pytest.raises(PlaybookError, match=f"^{path} is "):
        PlaybookRun(tmp_path)


def test_a_folder_without_a_run_is_none(tmp_path: Path) -> None:
    with pytest.raises(PlaybookError, match="this is not the folder of a run"):
        PlaybookRun(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="could not be written"):
        PlaybookRun.begin(tmp_path / "file" / "run", {}, Playbook())


def test_two_at_once_are_noticed(tmp_path: Path) -> None:
    begun(tmp_path, 1)
    one, other = PlaybookRun(tmp_path), PlaybookRun(tmp_path)
    commit(one, 1)
    with pytest.raises(PlaybookError, match="was changed by another process"):
        commit(other, 1)


def test_only_one_process_goes_on_with_a_run(tmp_path: Path) -> None:
    begun(tmp_path / "r-1", 1)
    one, other = PlaybookRun(tmp_path / "r-1"), PlaybookRun(tmp_path / "r-1")
    with one.alone():
        with pytest.raises(PlaybookError, match=r"^the run r-1 is under way in another process; wait for it or stop it$"):
            other.alone().__enter__()
        commit(one, 1)
    with pytest.raises(PlaybookError, match=r"^the run r-1 was gone on with by another process; look at it, then resume it"):
        other.alone().__enter__()
    with PlaybookRun(tmp_path / "r-1").alone():
        one.finish({})
    with pytest.raises(PlaybookError, match="was gone on with"):
        PlaybookRun(tmp_path / "r-1").alone().__enter__()


def test_a_checkpoint_is_a_playbook_for_people_and_for_older_tools(tmp_path: Path) -> None:
    run = begun(tmp_path / "r-1", 5, interval=10)
    names = [path.name for path in sorted((tmp_path / "r-1" / "checkpoints").iterdir())]
    assert names == ["r-1-000010.json", "r-1-000020.json"]
    checkpoint = json.loads((tmp_path / "r-1" / "checkpoints" / names[1]).read_text())
    assert list(checkpoint) == ["timestamp", "config", "metrics", "playbook"]
    assert checkpoint["metrics"] == {"total_examples": 20, "correct_answers": 6, "playbook_size": 4}
    assert files.load(tmp_path / "r-1" / "checkpoints" / names[1]).bullets == run.playbook.bullets[:4]
    cut_out = tmp_path / "playbook.json"
    cut_out.write_text(json.dumps(checkpoint["playbook"]))
    assert files.load(cut_out).bullets == run.playbook.bullets[:4]


def test_checkpoints_come_every_so_many_examples_also_after_a_resume(tmp_path: Path) -> None:
    begun(tmp_path / "r", 2, interval=15)
    run = PlaybookRun(tmp_path / "r", checkpoint_interval=15)
    for number in range(2, 7):
        commit(run, number)
    assert [path.stem[-6:] for path in sorted((tmp_path / "r" / "checkpoints").iterdir())] == ["000015", "000030"]
    begun(tmp_path / "none", 5)
    assert not (tmp_path / "none" / "checkpoints").exists()


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": 1})
    with pytest.raises(TypeError):
        write_json(tmp_path / "x.json", {"a": object()})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_what_the_gate_decided_is_the_last_line_and_no_batch(tmp_path: Path) -> None:
    run = begun(tmp_path, 2)
    learned = run.playbook
    settled = run.settle(Stage.PRODUCTION, name="test", at="then")
    assert {bullet.stage for bullet in settled.bullets} == {Stage.PRODUCTION}
    assert replay(run.journal) == settled
    lines = run.journal.read_bytes()
    again = PlaybookRun(tmp_path)
    assert (again.batches, again.playbook, again.progress) == (2, learned, run.progress)
    assert again.settle(Stage.PRODUCTION, name="test", at="later") == settled
    assert run.journal.read_bytes() == lines, "once more is nothing more"


def test_another_decision_after_a_kill_holds(tmp_path: Path) -> None:
    run = begun(tmp_path, 2)
    for stage in (Stage.PRODUCTION, Stage.SHADOW, Stage.PRODUCTION):
        assert {bullet.stage for bullet in run.settle(stage, name="test", at="then").bullets} == {stage}
        assert (PlaybookRun(tmp_path).batches, PlaybookRun(tmp_path).playbook) == (2, run.playbook)


def test_what_is_at_its_stage_already_needs_no_line(tmp_path: Path) -> None:
    run = begun(tmp_path, 2)
    assert run.settle(Stage.SHADOW, name="test", at="then") == run.playbook
    assert len(run.journal.read_bytes().splitlines()) == 3


def test_the_newest_unfinished_run_is_found(tmp_path: Path) -> None:
    assert newest_unfinished(tmp_path / "nowhere") is None
    for name in ("b", "c", "a"):
        begun(tmp_path / name, 0)
    assert newest_unfinished(tmp_path) == tmp_path / "a"
    PlaybookRun(tmp_path / "a").finish({})
    assert newest_unfinished(tmp_path) == tmp_path / "c"
