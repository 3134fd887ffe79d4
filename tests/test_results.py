"""The file of results: of its run alone, and as much as the run knows, however often that was interrupted."""

import json
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.core.playbook import Add, Batch, Bullet, Playbook
from journeyman.experiments.playbook.scenarios import Results
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, Spent


def learned_once(folder: Path) -> PlaybookRun:
    run = PlaybookRun.begin(folder, {"name": "test"}, Playbook())
    batch = Batch(id="test/1.1", deltas=(Add(bullet=Bullet(id="b-1", content="A rule.")),), at="now")
    run.commit(batch, Progress(reflector=Spent(calls=1, input_tokens=7, output_tokens=3, cost=0.5)), frozenset(), tasks=1)
    return run


def test_a_run_that_is_gone_on_with_knows_what_it_learned_and_paid_before(tmp_path: Path) -> None:
    """Also when nothing is left to learn, because it was interrupted at its examination."""
    Results.of_run(learned_once(tmp_path / "run"), tmp_path, planned=1)
    found = Results.of_run(PlaybookRun(tmp_path / "run"), tmp_path, planned=1).json()
    assert found["skills"] == {"initial": 0, "final": 1}
    assert found["reflection"] == {"cost_usd": 0.5, "tokens_used": 10}
    assert (found["total_cost_usd"], found["total_tokens"]) == (0.5, 10)


def test_runs_that_begin_in_one_second_have_files_of_their_own(tmp_path: Path) -> None:
    runs = [PlaybookRun.begin(tmp_path / name, {"name": name}, Playbook()) for name in "abc"]
    made = [Results.of_run(run, tmp_path / "results", planned=1) for run in runs]
    assert len({result.session_id for result in made}) == 3
    assert sorted(result.path for result in made) == sorted((tmp_path / "results").iterdir())


def test_a_run_finds_its_file_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    run = PlaybookRun.begin(tmp_path / "run", {"name": "test"}, Playbook())
    Results.of_run(run, Path("results"), planned=1)
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = Results.of_run(run, Path("results"), planned=1)
    assert again.path.parent == tmp_path / "results"
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("name", ["run/results.json", "training_results"])
def test_a_file_that_is_not_what_was_written_is_said(tmp_path: Path, name: str) -> None:
    run = PlaybookRun.begin(tmp_path / "run", {"name": "test"}, Playbook())
    path = Results.of_run(run, tmp_path, planned=1).path
    (path if name == "training_results" else tmp_path / name).write_text(json.dumps([]))
    with pytest.raises(InputError, match="is not what was written"):
        Results.of_run(run, tmp_path, planned=1)
