from dataclasses import fields, replace

import pytest

from journeyman.optimizers.weights.config import METHODS, TrainingConfig
from journeyman.optimizers.weights.model_shape import LADDER, find
from journeyman.optimizers.weights.sizing import HardwareConfig, estimate, get_ryzen_optimized_config, quick, reasons, resolve

LEFT = {"max_steps", "desirable_weight", "undesirable_weight"}
"""What may stay open: it follows from epochs and rows."""
MACHINE = HardwareConfig(memory_total=24 * 2**30, usable_cores=2, physical_cores=2, instruction_sets=("avx2",))


def test_the_documented_settings_follow_for_the_documented_model_and_machine() -> None:
    config = TrainingConfig()
    found = resolve(config, find(config.base_model)[0], get_ryzen_optimized_config())
    assert (found.per_device_batch_size, found.gradient_accumulation_steps, found.num_generations) == (2, 4, 6)
    assert (found.learning_rate, found.lora_r, found.lora_alpha, found.num_epochs) == (5e-5, 16, 32, 3)
    assert (found.max_prompt_tokens or 0) + (found.max_completion_tokens or 0) == 2048
    assert (found.gradient_checkpointing, found.use_bf16) == (True, False)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("model", ["embedded:base", "embedded:small", "Qwen/Qwen2.5-0.5B-Instruct", "nobody/knows"])
def test_nothing_that_a_training_needs_stays_open(method: str, model: str) -> None:
    config = TrainingConfig(base_model=model, method=method)
    found = resolve(config, find(model)[0], MACHINE)
    assert {field.name for field in fields(found) if getattr(found, field.name) is None} <= LEFT
    told = {reason.name: reason for reason in reasons(config, find(model)[0], MACHINE)}
    assert all(getattr(found, name) == reason.value and reason.why for name, reason in told.items())
    changed = {field.name for field in fields(found) if getattr(found, field.name) != getattr(config, field.name)}
    assert changed == set(told)


def test_what_was_set_stays_and_has_no_reason() -> None:
    config = TrainingConfig(base_model="embedded:base", learning_rate=1e-4, per_device_batch_size=3, max_prompt_tokens=100)
    found = resolve(config, find("embedded:base")[0], MACHINE)
    assert (found.learning_rate, found.per_device_batch_size, found.max_prompt_tokens) == (1e-4, 3, 100)
    told = {reason.name for reason in reasons(config, find("embedded:base")[0], MACHINE)}
    assert told.isdisjoint({"learning_rate", "per_device_batch_size", "max_prompt_tokens"})
    assert resolve(found, find("embedded:base")[0], MACHINE) == found


def test_a_tiny_model_learns_with_other_settings_than_a_real_one() -> None:
    found = resolve(TrainingConfig(base_model="embedded:base"), find("embedded:base")[0], MACHINE)
    assert (found.per_device_batch_size, found.gradient_accumulation_steps, found.num_generations) == (64, 1, 8)
    assert (found.learning_rate, found.max_steps, found.gradient_checkpointing) == (6e-3, 40, False)


def test_less_memory_makes_smaller_batches_and_more_accumulation() -> None:
    shape = LADDER["1.5B"]
    less = replace(MACHINE, memory_total=12 * 2**30)
    wide, narrow = (resolve(TrainingConfig(base_model=shape.name), shape, machine) for machine in (MACHINE, less))
    assert (wide.per_device_batch_size, wide.gradient_accumulation_steps) == (2, 4)
    assert (narrow.per_device_batch_size, narrow.gradient_accumulation_steps) == (1, 8)
    assert estimate(shape, narrow, less).peak < estimate(shape, wide, MACHINE).peak


def test_prompts_with_a_playbook_have_more_room_and_never_more_than_the_model() -> None:
    bare, told = (
        resolve(TrainingConfig(base_model="embedded:base", context=context), find("embedded:base")[0], MACHINE)
        for context in ("", "playbook.json")
    )
    assert (bare.max_prompt_tokens or 0) < (told.max_prompt_tokens or 0)
    short = replace(LADDER["0.5B"], context=512)
    found = resolve(TrainingConfig(), short, MACHINE)
    assert (found.max_prompt_tokens or 0) + (found.max_completion_tokens or 0) <= 512


def test_a_quick_run_is_short_and_otherwise_the_same() -> None:
    config = TrainingConfig(base_model="embedded:base", num_examples=400, learning_rate=1e-3)
    short = quick(config)
    assert (short.max_steps, short.num_examples, short.validation, short.learning_rate) == (10, 64, 16, 1e-3)
    assert quick(replace(config, max_steps=3)).max_steps == 3


def test_where_the_memory_is_not_known_a_real_model_computes_again_what_it_could_keep() -> None:
    unknown, shape = replace(MACHINE, memory_total=None), LADDER["1.5B"]
    assert resolve(TrainingConfig(base_model=shape.name), shape, unknown).gradient_checkpointing
    assert unknown.gradient_checkpointing
    why = next(each.why for each in reasons(TrainingConfig(), shape, unknown) if each.name == "gradient_checkpointing")
    assert why == "usual; how much memory there is is not known"
