"""All steps in one call: what is wrong with the last one is told before the first."""

from pathlib import Path

import pytest

from journeyman.errors import InputError
from journeyman.weights.pipeline import TrainingPipeline
from journeyman.weights.settings import RunSettings


@pytest.mark.parametrize(
    ("end", "message"),
    [({"quantization": "Q9"}, "'Q9' is no type"), ({"deploy_ollama": True, "name": "my model"}, "no model called 'my model'")],
)
def test_what_could_not_be_deployed_is_not_trained(tmp_path: Path, end: dict[str, object], message: str) -> None:
    settings = RunSettings(project=str(tmp_path), store=str(tmp_path / "j.db"))
    with pytest.raises(InputError, match=message):
        TrainingPipeline("an agent", "embedded:small", settings=settings).run_full_pipeline(**end)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
