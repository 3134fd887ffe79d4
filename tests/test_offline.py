"""Training from a program: the documented ways, what is written, and what is refused before anything is spent."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from journeyman import DatasetLoader, OfflineTrainer, PlaybookStage, TrainingConfig, create_offline_trainer
from journeyman.core.errors import InputError, JourneymanError, ModelRefused, TaskError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split
from journeyman.experiments.agents import candidate_of
from journeyman.optimizers.playbook import files
from journeyman.stores import open_store
from tests.support.offline import config, everywhere, learned_nothing, playbook, train
from tests.support.pupil import RULE, Pupil, reflecting, sums, write_sums

METRICS = {
    "training_summary": {"total_examples", "successful_generations", "failed_generations", "accuracy"},
    "insights": {"total_extracted", "helpful", "harmful", "neutral"},
    "playbook": {"bullets_added", "bullets_incremented", "final_size"},
    "timing": {"start_time", "end_time", "duration_seconds"},
}
"""As documented by the system that users come from."""


@pytest.fixture
def pupil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pupil:
    return everywhere(monkeypatch, tmp_path)


def test_a_playbook_that_passes_goes_where_it_should(pupil: Pupil) -> None:
    result = train(target_stage=PlaybookStage.PRODUCTION)
    assert result.evaluation is not None
    assert (result.evaluation["baseline"], result.evaluation["candidate"], result.evaluation["passed"]) == (0.0, 1.0, True)
    assert (result.finished, result.forced, result.stage) == (True, False, PlaybookStage.PRODUCTION)
    assert {bullet["stage"] for bullet in playbook()["bullets"]} == {"production"}
    assert RULE in {bullet["content"] for bullet in playbook()["bullets"]}


def test_the_playbook_and_the_metrics_are_as_documented(pupil: Pupil) -> None:
    result = train(num_examples=10)
    found = playbook()
    assert {"version", "created_at", "training_config", "bullets"} <= set(found)
    assert found["training_config"] == {
        "dataset": "custom",
        "num_examples": 10,
        "generator_model": "openai:gpt-5-mini",
        "reflector_model": "openai:gpt-5-nano",
    }
    documented = {"id", "content", "domain_id", "section", "stage", "activation_count", "confidence"}
    assert all(documented <= set(bullet) for bullet in found["bullets"])
    metrics = json.loads(Path("metrics/offline_training_metrics.json").read_text())
    for part, keys in METRICS.items():
        assert keys <= set(metrics[part]), part
    assert metrics["training_summary"]["total_examples"] == 10
    assert metrics["training_summary"]["accuracy"] == 0.5
    assert metrics["roles"]["generator"]["calls"] == 10
    assert metrics["accuracy_by_domain"] == {"fruit": 0.5}
    assert metrics == result.metrics.json()


def test_the_documented_basic_use_works(pupil: Pupil) -> None:
    trainer = create_offline_trainer(
        dataset_name="custom",
        input_path="sums.json",
        num_examples=10,
        generator_model="gpt-4-turbo",
        reflector_model="gpt-4o-mini",
        output_playbook_path="playbooks/trained.json",
    )
    result = trainer.train()
    assert result["playbook_size"] == len(playbook("playbooks/trained.json")["bullets"])
    assert (result["metrics"].correct_answers, result["metrics"].total_examples) == (0, 10)
    assert result["evaluation"]["passed"] is True


def test_the_documented_advanced_use_works(pupil: Pupil) -> None:
    files.save(Playbook(bullets=(Bullet(id="b-seed", content="Be brief.", domain="fruit"),)), "seed.json")
    made = TrainingConfig(
        dataset_name="custom",
        dataset_split="train",
        input_path="sums.json",
        num_examples=20,
        generator_model="gpt-4o",
        reflector_model="gpt-4o-mini",
        batch_size=20,
        similarity_threshold=0.85,
        target_stage=PlaybookStage.PRODUCTION,
        output_playbook_path="playbooks/production.json",
        output_metrics_path="metrics/production_metrics.json",
        save_checkpoints=True,
        checkpoint_interval=25,
    )
    result = OfflineTrainer(made).train(initial_playbook_path="seed.json")
    assert Path("metrics/production_metrics.json").exists()
    assert "b-seed" in {bullet.id for bullet in result.playbook.bullets}


def test_the_documented_use_of_own_examples_works(pupil: Pupil) -> None:
    examples = DatasetLoader(dataset_name="custom").load_from_json("sums.json", num_examples=8)
    trainer = OfflineTrainer(
        TrainingConfig(dataset_name="custom", num_examples=len(examples), output_playbook_path="playbooks/custom.json")
    )
    trainer._custom_examples = examples
    result = trainer.train()
    assert pupil.attempted[:8] == [task.id for task in examples]
    assert result["metrics"].total_examples == 8
    assert result.stage is PlaybookStage.SHADOW
    assert "0 held-out tasks were compared" in result.reason


def test_own_examples_are_examined_on_the_rest_of_the_file(pupil: Pupil) -> None:
    trainer = OfflineTrainer(config())
    trainer._custom_examples = DatasetLoader("custom").load_from_json("sums.json", num_examples=25)
    found = trainer.dataset
    assert (len(found.split(Split.TRAIN)), len(found.split(Split.HELD_OUT))) == (25, 35)
    assert not {task.question for task in found.split(Split.TRAIN)} & {task.question for task in found.split(Split.HELD_OUT)}


def test_held_out_examples_are_refused(pupil: Pupil) -> None:
    trainer = OfflineTrainer(config())
    trainer._custom_examples = [*sums(3), *sums(1, split=Split.HELD_OUT)]
    with pytest.raises(TaskError, match="cannot be learned from: held_out-000 is held out"):
        trainer.train()
    assert pupil.requests == []


def test_no_held_out_task_is_seen_while_it_learns(pupil: Pupil) -> None:
    train(evaluate=False)
    assert len(pupil.attempted) == 20
    assert not any(re.search(r"holds 10\d\d ", request.text) for request in pupil.requests)
    train()
    assert any(re.search(r"holds 10\d\d ", request.text) for request in pupil.requests)
    assert not any(re.search(r"holds 10\d\d ", request.text) for request in pupil.requests if reflecting(request))


def test_a_playbook_that_fails_the_gate_stays_in_shadow(pupil: Pupil) -> None:
    learned_nothing(pupil)
    result = train(target_stage="production")
    assert (result.stage, result.forced) == (PlaybookStage.SHADOW, False)
    assert "whose low end is not above" in result.reason
    assert {bullet["stage"] for bullet in playbook()["bullets"]} == {"shadow"}


def test_force_goes_there_and_is_recorded(pupil: Pupil) -> None:
    learned_nothing(pupil)
    result = train(target_stage=PlaybookStage.PRODUCTION, force=True)
    assert (result.stage, result.forced, result.json()["forced"]) == (PlaybookStage.PRODUCTION, True, True)
    assert {bullet["stage"] for bullet in playbook()["bullets"]} == {"production"}
    assert playbook()["training_config"]["forced"] is True
    kept = json.loads(Path(".journeyman", "runs", result.run_id, "result.json").read_text())
    assert kept["forced"] is True


@pytest.mark.parametrize(
    ("taught", "settings", "stages"),
    [
        (True, {}, [("shadow", False)]),
        (True, {"target_stage": "production"}, [("shadow", False), ("canary", False), ("production", False)]),
        (False, {"target_stage": "production"}, []),
        (False, {"target_stage": "production", "force": True}, [("shadow", True), ("canary", True), ("production", True)]),
        (
            True,
            {"target_stage": "production", "force": True, "evaluate": False},
            [("shadow", True), ("canary", True), ("production", True)],
        ),
        (True, {"evaluate": False}, []),
    ],
)
def test_the_release_of_what_passed_or_was_forced_is_kept(
    pupil: Pupil, taught: bool, settings: dict[str, Any], stages: list[tuple[str, bool]]
) -> None:
    if not taught:
        learned_nothing(pupil)
    result = train(**settings)
    with open_store(".journeyman/journeyman.db") as store:
        releases = list(store.releases())
        assert [(move.stage, move.forced) for release in releases for move in release.moves] == stages
        for release in releases:
            assert result.run_id in release.moves[0].reason
            candidate, written = store.candidate(release.candidate_id), files.load("playbooks/offline_trained.json")
            assert candidate is not None
            assert candidate == candidate_of(written), "the file is the candidate that the gate has seen"


def test_what_needed_no_force_was_not_forced(pupil: Pupil) -> None:
    assert not train(target_stage=PlaybookStage.PRODUCTION, force=True).forced
    learned_nothing(pupil)
    assert not train(force=True).forced


def test_without_an_evaluation_nothing_is_proven(pupil: Pupil) -> None:
    result = train(evaluate=False, target_stage=PlaybookStage.PRODUCTION)
    assert (result.stage, result.evaluation, result.reason) == (PlaybookStage.SHADOW, None, "not evaluated, so not proven")
    assert result.json()["evaluation"] is None


def test_the_limit_stops_cleanly_and_a_higher_one_goes_on(pupil: Pupil) -> None:
    whole = train(output_playbook_path="whole.json")
    stopped = train(max_cost=0.015, output_playbook_path="cut.json")
    assert (stopped.finished, stopped.stage) == (False, PlaybookStage.SHADOW)
    assert stopped.reason == "stopped after $0.0200, at the limit of $0.015; it can be resumed with a higher one"
    assert stopped.metrics.total_examples == 10
    again = OfflineTrainer(config()).resume()
    assert not again.finished, "the limit of the run holds until another is given"
    ended = OfflineTrainer(config(max_cost=5)).resume(stopped.run_id)
    assert ended.finished
    assert Path("cut.json").read_bytes() == Path("whole.json").read_bytes()
    assert whole.metrics.accuracy == ended.metrics.accuracy


def test_an_evaluation_that_would_go_past_the_limit_is_not_begun(pupil: Pupil) -> None:
    result = train(max_cost=0.1)
    assert "before the evaluation, which would probably go past the limit of $0.1" in result.reason
    assert len(pupil.attempted) == 20
    assert OfflineTrainer(config(max_cost=1)).resume().finished


def test_a_limit_needs_prices(pupil: Pupil) -> None:
    with pytest.raises(InputError, match="a limit on cost cannot be kept: ollama:qwen3 has no known price"):
        train(max_cost=1, generator_model="ollama:qwen3")
    with pytest.raises(InputError, match="openai:gpt-5-mini has no known price"):
        train(max_cost=1, base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_examples": 0}, "num_examples is 0, and must be at least 1"),
        ({"checkpoint_interval": 0}, "checkpoint_interval is 0, and must be at least 1"),
        ({"dataset_split": "test"}, "dataset_split is 'test', and must be 'train' or 'validation': test is for examining"),
        ({"reflect_on": "none"}, "reflect_on is 'none'"),
        ({"target_stage": "staging"}, "target_stage is 'staging', and must be 'shadow' or 'production'"),
        ({"similarity_threshold": 1.2}, "similarity_threshold is 1.2, and must lie above 0 and at most at 1"),
        ({"max_cost": -1}, "max_cost is -1, and must be above 0"),
        ({"alpha": 0}, "alpha is 0"),
        ({"min_gain": 2}, "min_gain is 2"),
        ({"dataset_name": "desks"}, "no data set 'desks'"),
        ({"input_path": "nowhere.json"}, "nowhere.json is not there"),
        ({"domain": "wood"}, "no tasks of domain 'wood'; there are fruit"),
        ({"dataset_split": "validation"}, "has no validation tasks"),
        ({"embedder": "magic"}, "no embedder 'magic'"),
        ({"generator_model": "opnai:x"}, "no model client 'opnai'"),
        ({"output_playbook_path": "sums.json/x.json"}, "sums.json is a file and not a folder; name another place"),
        ({"output_metrics_path": "."}, "it is a folder; name a file in it"),
        ({"project": "sums.json"}, "sums.json is a file and not a folder"),
        ({"store": "sums.json"}, "sums.json"),
        ({"store": "sqlite:///sums.json/x.db"}, "the folder sums.json of the store cannot be made"),
        ({"generator_model": "embedded:huge"}, "no embedded model 'huge'; there are: base"),
        ({"num_examples": "5"}, "num_examples is '5', and must be a whole number"),
        ({"num_examples": 1.5}, "num_examples is 1.5, and must be a whole number"),
        ({"num_examples": True}, "num_examples is True, and must be a whole number"),
        ({"domain": None}, "domain is None, and must be text"),
        ({"evaluate": 1}, "evaluate is 1, and must be true or false"),
        ({"max_cost": "1"}, "max_cost is '1', and must be a number"),
        ({"attempts_per_task": 101}, "attempts_per_task is 101, and must be at most 100"),
        ({"dataset_name": "desk", "num_examples": 10**9}, "num_examples is 1000000000, and must be at most 100000 at the desk"),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_spent(pupil: Pupil, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(JourneymanError) as caught:
        train(**wrong)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert pupil.requests == []
    assert not Path(".journeyman").exists(), "no run was begun"


def test_all_bad_rows_are_named_at_once(pupil: Pupil) -> None:
    Path("bad.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n{"question": "2+2?"}\n?\n')
    with pytest.raises(InputError, match=r"bad.jsonl:2: no answer.*\n.*bad.jsonl:3: no JSON"):
        train(input_path="bad.jsonl")


def test_a_missing_key_is_said_before_a_run_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    write_sums(tmp_path / "sums.json")
    with pytest.raises(ModelRefused, match="openai:gpt-5-mini needs a key: set OPENAI_API_KEY"):
        train()
    assert not Path(".journeyman").exists()


@pytest.mark.parametrize("text", ["", "{", '{"bullets": [{"id": 1}]}'])
def test_an_initial_playbook_that_is_none_is_refused(pupil: Pupil, text: str) -> None:
    Path("p.json").write_text(text)
    with pytest.raises(JourneymanError, match=r"p\.json"):
        OfflineTrainer(config()).train("p.json")
    assert not Path(".journeyman").exists()


def test_a_setting_that_is_none_is_named() -> None:
    with pytest.raises(InputError, match="there is no setting 'modell' in TrainingConfig; did you mean"):
        create_offline_trainer(modell="x")


def test_a_run_that_is_over_or_unknown_or_changed_is_not_resumed(pupil: Pupil) -> None:
    with pytest.raises(InputError, match=r"there is no unfinished run in .journeyman/runs; begin one without --resume"):
        OfflineTrainer(config()).resume()
    result = train(evaluate=False)
    with pytest.raises(InputError, match=f"the run {result.run_id} is over; its playbook is playbooks/offline_trained.json"):
        OfflineTrainer(config()).resume(result.run_id)
    with pytest.raises(InputError, match=f"there is no run 'other' in .journeyman/runs; there are: {result.run_id}"):
        OfflineTrainer(config()).resume("other")
    cut = train(max_cost=0.001)
    write_sums(Path("sums.json"), train=21)
    with pytest.raises(InputError, match=r"the data set of run .* has changed since it began"):
        OfflineTrainer(config(max_cost=9)).resume(cut.run_id)


def test_the_same_settings_give_the_same_playbook_and_another_folder(pupil: Pupil) -> None:
    one, two = train(output_playbook_path="1.json"), train(output_playbook_path="2.json")
    assert two.run_id == f"{one.run_id}-2"
    assert Path("1.json").read_bytes() == Path("2.json").read_bytes()


def test_the_stamp_can_be_given(pupil: Pupil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    train()
    assert playbook()["created_at"] == "1970-01-01T00:00:00+00:00"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH is 'soon'"):
        train()


def test_a_checkpoint_can_be_gone_on_from(pupil: Pupil) -> None:
    run = train(checkpoint_interval=10, evaluate=False)
    checkpoint = Path(".journeyman", "runs", run.run_id, "checkpoints", f"{run.run_id}-000010.json")
    result = OfflineTrainer(config()).train(initial_playbook_path=checkpoint)
    assert result.metrics.accuracy == 1.0, "it knows the rule from the start"
    assert result.evaluation is not None
    assert result.evaluation["baseline"] == 1.0, "and has to beat the checkpoint"


def test_a_run_and_its_attempts_are_in_the_store(pupil: Pupil) -> None:
    finished, stopped = train(), train(max_cost=0.001)
    pupil.line = lambda _: ModelRefused("no")
    with pytest.raises(ModelRefused):
        OfflineTrainer(config(max_cost=9)).resume(stopped.run_id)
    with open_store(".journeyman/journeyman.db") as store:
        assert [run.state for run in store.runs()] == ["finished", "stopped"]
        assert len(list(store.attempts(run_id=finished.run_id, split=Split.TRAIN))) == 20
        assert len(list(store.attempts(run_id=finished.run_id, split=Split.HELD_OUT))) == 80
        assert len(list(store.attempts(run_id=stopped.run_id))) == 5
