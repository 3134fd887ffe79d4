"""All steps in one call: what is wrong with the last one is told before the first."""

from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights.config import PipelineConfig, RunSettings
from journeyman.experiments.weights.pipeline import TrainingPipeline
from journeyman.experiments.weights.run import WeightsRun
from journeyman.experiments.weights.training import WeightsWatcher
from journeyman.io.atomic import write_json
from journeyman.optimizers.weights.config import TrainingConfig


@pytest.mark.parametrize(
    ("end", "message"),
    [({"quantization": "Q9"}, "'Q9' is no type"), ({"deploy_ollama": True, "name": "my model"}, "no model called 'my model'")],
)
def test_what_could_not_be_deployed_is_not_trained(tmp_path: Path, end: dict[str, object], message: str) -> None:
    settings = RunSettings(project=str(tmp_path), store=str(tmp_path / "j.db"))
    with pytest.raises(InputError, match=message):
        TrainingPipeline("an agent", "embedded:small", settings=settings).run_full_pipeline(**end)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def begun(settings: RunSettings, *, over: dict[str, object] | None = None) -> WeightsRun:
    """A run of a pipeline that was stopped, before or after its training was over."""
    config = TrainingConfig(
        base_model="embedded:small", method="rft", dataset_name="desk", domain="oslo", num_examples=8, validation=4
    )
    run = runs.begin(config, settings)
    asked = {"agent": "", "dataset": "", "deploy_ollama": False, "deploy_llamacpp": True, "quantization": "Q8_0", "name": ""}
    write_json(run.folder / "pipeline.json", {"asked": asked})
    if over is not None:
        run.finish({"run_id": run.id, "folder": str(run.folder), "evaluation": None, "passed": False, "reason": "why", **over})
    return run


@pytest.fixture
def settings(tmp_path: Path) -> RunSettings:
    return RunSettings(project=str(tmp_path), store=str(tmp_path / "j.db"), held_out=5)


def test_a_pipeline_whose_training_is_over_goes_on_behind_it_as_it_was_asked_for(settings: RunSettings) -> None:
    run = begun(settings, over={"adapter": str(settings.project), "evaluation": {}, "reason": "gain +0.0"})
    result = TrainingPipeline(settings=settings).resume()
    assert result.asked == PipelineConfig(deploy_llamacpp=True, quantization="Q8_0")
    assert not result.done
    assert result.notes == ("neither exported nor deployed, as it did not pass: gain +0.0",)
    assert result["run_id"] == run.id
    with pytest.raises(InputError, match=f"the pipeline {run.id} is done"):
        TrainingPipeline(settings=settings).resume(run.id)
    with pytest.raises(InputError, match="there is no unfinished pipeline of weights"):
        TrainingPipeline(settings=settings).resume()


def test_a_pipeline_that_stops_says_how_to_go_on_and_stays_unfinished(settings: RunSettings) -> None:
    run = begun(settings, over={"adapter": str(Path(settings.project, "gone"))})
    said: list[str] = []
    for _ in range(2):
        with pytest.raises(InputError):
            TrainingPipeline(settings=settings, watcher=WeightsWatcher(said=said.append)).resume()
    assert said.count(f"stopped; go on with: journeyman pipeline weights --resume {run.id}") == 2


def test_a_training_alone_is_no_pipeline_to_go_on_with(settings: RunSettings) -> None:
    run = begun(settings)
    (run.folder / "pipeline.json").unlink()
    with pytest.raises(InputError, match=f"a training alone: go on with `journeyman train weights --resume {run.id}`"):
        TrainingPipeline(settings=settings).resume(run.id)


def test_that_nothing_can_be_proven_is_said_before_anything_is_trained(settings: RunSettings) -> None:
    said: list[str] = []
    pipeline = TrainingPipeline("an agent", "embedded:small", settings=settings, watcher=WeightsWatcher(said=said.append))
    with pytest.raises(InputError, match="store of traces"):
        pipeline.run_full_pipeline(deploy_ollama=True, name="agent")
    assert said == [
        "without tasks (--tasks) nothing can be proven: what is learned will be exported, and deployed only with --force"
    ]
