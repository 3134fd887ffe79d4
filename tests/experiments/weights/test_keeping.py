"""Adapters as artifacts."""

from pathlib import Path

import pytest

from journeyman.core.candidate import Kind
from journeyman.core.errors import InputError
from journeyman.optimizers.weights.adapters import keep, restore
from journeyman.stores.artifacts import Artifacts


def _adapter(folder: Path, weights: bytes = b"w" * 100) -> Path:
    folder.mkdir()
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    (folder / "adapter_model.safetensors").write_bytes(weights)
    return folder


def test_an_adapter_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    candidate = keep(_adapter(tmp_path / "one"), artifacts)
    back = restore(candidate, artifacts, tmp_path / "back")
    assert candidate.kind is Kind.ADAPTER
    assert (back / "adapter_model.safetensors").read_bytes() == b"w" * 100


def test_the_same_weights_are_one_candidate_wherever_and_whenever_they_lie(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    one, two = keep(_adapter(tmp_path / "one"), artifacts), keep(_adapter(tmp_path / "two"), artifacts)
    other = keep(_adapter(tmp_path / "three", b"v" * 100), artifacts)
    assert one.id == two.id
    assert one.id != other.id


def test_a_folder_without_an_adapter_is_not_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no adapter: it has no adapter_config\.json"):
        keep(tmp_path, Artifacts(tmp_path / "artifacts"))
