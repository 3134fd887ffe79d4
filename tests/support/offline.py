"""Training from a program with the pupil as every model, in a folder of its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman import OfflineTrainer, TrainingConfig, TrainingResult
from journeyman.experiments import wiring
from tests.support.pupil import Pupil, reflecting, write_sums


def everywhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Pupil:
    """Whatever model is named, the pupil answers."""
    monkeypatch.chdir(folder)
    made = Pupil()
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: made)
    write_sums(folder / "sums.json")
    return made


def config(**more: Any) -> TrainingConfig:
    return TrainingConfig(**{"dataset_name": "custom", "input_path": "sums.json", "batch_size": 5, **more})


def train(**more: Any) -> TrainingResult:
    return OfflineTrainer(config(**more)).train()


def playbook(path: str = "playbooks/offline_trained.json") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(path).read_text())
    return found


def learned_nothing(pupil: Pupil) -> None:
    useless = '{"insights": [{"verdict": "neutral", "content": "Fruit is healthy.", "about": ""}], "shown": []}'
    pupil.line = lambda request: useless if reflecting(request) else None
