"""Planners are found by file, folder and id; to look changes nothing."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError, StoreError
from journeyman.core.release import Release, Stage
from journeyman.experiments.planner import workers as policies
from journeyman.experiments.settings import load
from journeyman.optimizers.planner.artifact import save_reinforced
from journeyman.optimizers.planner.policy import ReinforcedPlanner, selector_for
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.registry import in_production
from tests.support.planners import opened, shake, written

pytestmark = pytest.mark.training

ASKED = "easy letter number 4, and bread for it"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_STORE", raising=False)
    return tmp_path


def second(folder: Path, seed: int = 0) -> Path:
    """A phase 2 beside phase 1."""
    start = written(folder)
    selector = selector_for(opened(start).model)
    shake(selector, 1.0, seed)
    path = folder / "phase2_best.safetensors"
    save_reinforced(path, start, selector, {})
    return path


def kept(path: Path) -> Candidate:
    project = load()
    candidate = policies.keep_planner(path, Artifacts(project.artifacts))
    with open_store(project.store_url) as store:
        store.add_candidate(candidate)
    return candidate


def test_a_planner_is_found_by_its_file_with_or_without_suffix_and_by_its_folder() -> None:
    written(Path("checkpoints"))
    found = [policies.find_planner(f"checkpoints{rest}") for rest in ("/phase1_best", "/phase1_best.safetensors", "", "/")]
    assert {(each.id, each.where) for each in found} == {(found[0].id, "checkpoints/phase1_best.safetensors")}


def test_of_a_folder_it_is_the_planner_of_phase_2_where_there_is_one() -> None:
    path = second(Path("checkpoints"))
    found = policies.find_planner("checkpoints")
    assert found.path == path
    assert isinstance(found.planner, ReinforcedPlanner)
    assert found.learned is found.planner.planner


def test_the_folder_that_one_stands_in_is_a_folder_like_any_other() -> None:
    written(Path())
    assert policies.find_planner(".").path == Path("phase1_best.safetensors")


def test_what_was_kept_is_found_by_its_id_when_its_file_is_gone() -> None:
    path = second(Path("checkpoints"))
    plan = policies.find_planner(str(path)).planner.plan(ASKED)
    candidate = kept(path)
    shutil.rmtree("checkpoints")
    for name in (candidate.id, candidate.id[:6]):
        found = policies.find_planner(name)
        assert (found.id, found.where) == (candidate.id, candidate.id)
        assert found.planner.plan(ASKED) == plan
        assert opened(found.path).plan(ASKED).subtasks, "others can open the file"


def test_a_file_and_its_candidate_have_one_id() -> None:
    path = written(Path("checkpoints"))
    assert kept(path).id == policies.find_planner(str(path)).id


@pytest.mark.parametrize("where", ["nobody", "0000", ".", "/", "..", "no/such/folder/"])
def test_who_is_not_there_is_said_in_a_sentence_and_to_look_makes_no_store(where: str, here: Path) -> None:
    with pytest.raises(InputError, match=r"no planner .* no file is called that: train one"):
        policies.find_planner(where)
    assert list(here.iterdir()) == []


def test_the_beginning_of_several_ids_is_not_enough() -> None:
    for seed in range(2):
        kept(second(Path("checkpoints"), seed))
    with pytest.raises(InputError, match="2 of them begin so; type more of it"):
        policies.find_planner("")


def test_a_store_elsewhere_is_looked_into_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOURNEYMAN_STORE", f"sqlite:///{tmp_path / 'elsewhere.db'}")
    candidate = kept(written(Path("checkpoints")))
    assert policies.find_planner(candidate.id[:8]).id == candidate.id


def test_a_file_that_was_spoilt_is_not_opened() -> None:
    candidate = kept(written(Path("checkpoints")))
    (artifact,) = load().artifacts.iterdir()
    artifact.chmod(0o600)
    artifact.write_bytes(artifact.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError):
        policies.find_planner(candidate.id)


def test_in_production_is_the_newest_planner_and_never_a_policy_of_another_kind() -> None:
    store = open_store("memory:")
    assert in_production(store, policies.FORMAT) is None
    others = (Candidate(kind=Kind.POLICY, body='{"format": "router"}'), Candidate(kind=Kind.POLICY, body="?"))
    planners = [policies.keep_planner(second(Path("checkpoints"), seed), Artifacts(Path("artifacts"))) for seed in range(2)]
    start = datetime(2026, 1, 1, tzinfo=UTC)
    for days, candidate in enumerate((*planners, *others)):
        store.add_candidate(candidate)
        at = start + timedelta(days=days)
        store.add_release(Release.begin(candidate.id, Stage.PRODUCTION, "for a test", at, forced=True))
    assert in_production(store, policies.FORMAT) == planners[-1].id
