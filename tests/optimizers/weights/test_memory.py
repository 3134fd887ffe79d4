import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.model_shape import LADDER, find, parse
from journeyman.optimizers.weights.sizing import SPARE, HardwareConfig, estimate, must_fit, resolve

MACHINE = HardwareConfig(memory_total=24 * 2**30, usable_cores=2, physical_cores=2, instruction_sets=("avx2",))
CONFIG = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100}


def weights(path: Path, **tensors: list[int]) -> None:
    header = json.dumps(
        {"__metadata__": {"format": "pt"}, **{name: {"dtype": "F32", "shape": shape} for name, shape in tensors.items()}}
    )
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode() + b"\0" * 16)


def test_parameters_of_published_models_are_counted_to_the_last_one() -> None:
    counted = {size: shape.parameters for size, shape in LADDER.items()}
    assert counted["135M"] == 134_515_008
    assert counted["0.5B"] == 494_032_768
    assert counted["1.5B"] == 1_543_714_304
    assert counted["7B"] == 7_615_616_512


def test_the_embedded_model_is_counted_in_its_file_and_by_its_configuration_alike() -> None:
    from journeyman.models import WEIGHTS

    shape, why = find("embedded:base")
    assert shape is not None, why
    assert shape == replace(
        parse("embedded:base", json.loads((WEIGHTS / "base" / "config.json").read_text())), file_bytes=shape.file_bytes
    )
    assert find(str(WEIGHTS / "base"))[0] == replace(shape, name=str(WEIGHTS / "base"))


def test_a_model_in_the_cache_of_the_hub_is_found_by_its_id(tmp_path: Path) -> None:
    model = tmp_path / "models--me--mine"
    (model / "snapshots" / "abc").mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text("abc\n")
    (model / "snapshots" / "abc" / "config.json").write_text(json.dumps(CONFIG))
    weights(model / "snapshots" / "abc" / "model.safetensors", a=[3, 5], b=[7])
    shape, why = find("me/mine", {"HF_HUB_CACHE": str(tmp_path)})
    assert shape is not None, why
    assert (shape.parameters, shape.hidden, shape.kv_heads, shape.context) == (22, 64, 4, None)


def test_a_shard_that_is_missing_leaves_the_count_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    weights(tmp_path / "model-1.safetensors", a=[3])
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    shape, _ = find(str(tmp_path))
    assert shape is not None
    assert shape.parameters == parse("x", CONFIG).parameters
    weights(tmp_path / "model-2.safetensors", b=[4])
    whole, _ = find(str(tmp_path))
    assert whole is not None
    assert whole.parameters == 7


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"hidden_size": 64}', '{"hidden_size": "64", "num_hidden_layers": 0}', "null"]
)
def test_a_configuration_that_cannot_be_used_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    shape, why = find(str(tmp_path))
    assert shape is None
    assert str(tmp_path / "config.json") in why


def test_a_model_that_is_not_here_is_unknown_with_what_to_type(tmp_path: Path) -> None:
    shape, why = find("nobody/nothing", {"HF_HUB_CACHE": str(tmp_path)})
    assert shape is None
    assert "`hf download nobody/nothing config.json`" in why
    assert "embedded:base" in find("embedded:huge")[1]


def test_what_makes_a_training_larger_makes_its_estimate_larger() -> None:
    shape = LADDER["0.5B"]
    config = resolve(TrainingConfig(base_model=shape.name, gradient_checkpointing=True), shape, MACHINE)
    peak = estimate(shape, config, MACHINE).peak
    changes = (
        {"per_device_batch_size": 4},
        {"max_prompt_tokens": 3000},
        {"gradient_checkpointing": False},
        {"method": "dpo"},
        {"lora_r": 64},
    )
    for change in changes:
        assert estimate(shape, replace(config, **change), MACHINE).peak > peak, change
    assert estimate(shape, replace(config, use_bf16=True), MACHINE).peak < peak


def test_the_parts_explain_the_peak() -> None:
    shape = LADDER["0.5B"]
    found = estimate(shape, resolve(TrainingConfig(base_model=shape.name, method="rft"), shape, MACHINE), MACHINE)
    fixed = found.libraries + found.weights + found.adapter + found.gradients + found.optimizer
    assert found.peak == fixed + found.activations + found.logits
    assert found.weights == 4 * shape.parameters
    assert (found.fits, found.limit, found.cost) == (True, 24 * 2**30, 0)


def test_what_will_not_fit_is_refused_with_advice_that_is_enough() -> None:
    shape, small = LADDER["1.5B"], replace(MACHINE, memory_total=18 * 2**30)
    config = resolve(TrainingConfig(base_model=shape.name, gradient_checkpointing=False, per_device_batch_size=2), shape, small)
    with pytest.raises(InputError, match=r"Qwen2.5-1.5B-Instruct would take about .* turn gradient checkpointing on"):
        must_fit(shape, config, small)
    found = must_fit(shape, replace(config, gradient_checkpointing=True), small)
    assert found.peak <= SPARE * 18 * 2**30
    with pytest.raises(InputError, match=r"take a smaller model, as Qwen/Qwen2.5-3B-Instruct"):
        must_fit(LADDER["14B"], resolve(TrainingConfig(), LADDER["14B"], MACHINE), MACHINE)


def test_memory_that_is_not_known_refuses_nothing() -> None:
    unknown = replace(MACHINE, memory_total=None)
    found = must_fit(LADDER["72B"], resolve(TrainingConfig(), LADDER["72B"], unknown), unknown)
    assert (found.limit, found.fits) == (None, None)


def test_settings_that_are_still_open_are_no_ground_for_an_estimate() -> None:
    with pytest.raises(InputError, match="per_device_batch_size is not resolved"):
        estimate(LADDER["0.5B"], TrainingConfig(), MACHINE)


@pytest.mark.parametrize(("method", "rows"), [("grpo", 600), ("kto", 600), ("rft", 600), ("grpo-offline", 600), ("dpo", 100)])
def test_updates_are_counted_by_what_a_method_learns_from_of_each_group(method: str, rows: int) -> None:
    told = TrainingConfig(method=method, num_examples=100, num_generations=6, num_epochs=2.0)
    config = replace(resolve(told, LADDER["0.5B"], MACHINE), per_device_batch_size=2, gradient_accumulation_steps=4)
    assert estimate(LADDER["0.5B"], config, MACHINE).steps == 2 * rows / 8
