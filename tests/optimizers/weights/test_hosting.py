from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError, SettingError
from journeyman.optimizers.weights.gguf.contents import Header, read_header
from journeyman.optimizers.weights.hardware import Gpu
from journeyman.optimizers.weights.hosting import SHARE, OllamaHostingProfile, cache_bytes
from journeyman.optimizers.weights.sizing import HardwareConfig, get_ryzen_optimized_config
from tests.support.ggufs import TINY, gguf

GPU = Gpu(kind="cuda", name="H100", memory_total=80 * 10**9, memory_free=None, bf16=True)


def model(size: int = 10**9, *, context: int = 32768) -> Header:
    """Shaped as Qwen2.5 1.5B, of any size."""
    values = {**TINY, "qwen2.context_length": context, "tokenizer.ggml.tokens": ("x",) * 151_936}
    return Header(path=Path("tiny.gguf"), size=size, values=values)


def machine(cores: int, memory: int | None, *gpus: Gpu) -> HardwareConfig:
    return HardwareConfig(usable_cores=cores, physical_cores=cores, memory_total=memory, gpus=gpus)


def test_the_documented_machine_gets_the_documented_profile() -> None:
    derived = OllamaHostingProfile.derive(get_ryzen_optimized_config(), model())
    assert (derived.num_parallel, derived.num_ctx, derived.num_thread) == (4, 4096, 14)
    assert replace(derived, reasons=()) == OllamaHostingProfile() == replace(OllamaHostingProfile.ryzen(), reasons=())


def test_the_cache_of_a_token_follows_from_the_models_shape() -> None:
    # Qwen2.5 1.5B: 28 layers × 2 heads × (128 + 128) × 2 bytes = 28 KiB a token.
    assert cache_bytes(model(), 4096) == 4096 * 28 * 1024
    assert cache_bytes(model(), 4096, "q8_0") == cache_bytes(model(), 4096) * 17 / 32


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (4, 3), (8, 6), (16, 14)])
def test_a_core_is_kept_back_as_soon_as_there_are_two(cores: int, threads: int) -> None:
    assert OllamaHostingProfile.derive(machine(cores, 24 * 10**9), model()).num_thread == threads


def test_two_cores_answer_one_at_a_time() -> None:
    assert OllamaHostingProfile.derive(machine(2, 24 * 10**9), model()).num_parallel == 1


def test_a_gpu_takes_more_at_once_with_flash_attention_whatever_torch_can_use() -> None:
    hardware = replace(machine(16, 10**11, GPU), gpus_unused="torch was built for the processor alone")
    derived = OllamaHostingProfile.derive(hardware, model())
    assert (derived.num_parallel, derived.flash_attention, derived.gpu_layers) == (8, True, -1)
    assert derived.environment["OLLAMA_FLASH_ATTENTION"] == "1"
    assert "num_gpu" not in derived.parameters


def test_a_gpu_that_is_too_small_is_left_to_the_server() -> None:
    derived = OllamaHostingProfile.derive(machine(16, 10**11, replace(GPU, memory_total=10**9)), model(4 * 10**9))
    assert (derived.flash_attention, derived.gpu_layers, derived.num_parallel) == (False, None, 4)
    assert "the server divides it" in str(derived.reasons)


def test_a_request_gets_shorter_before_the_model_is_refused() -> None:
    derived = OllamaHostingProfile.derive(machine(8, 2_200_000_000), model(), context=32768)
    assert derived.num_parallel == 1
    assert 512 <= derived.num_ctx < 32768
    assert any("do not fit into memory" in reason.why for reason in derived.reasons)


def test_what_will_not_fit_is_refused_with_advice() -> None:
    with pytest.raises(InputError, match=r"tiny.gguf does not fit: 9.0 GB of weights .* take a smaller type, such as Q4_K_M"):
        OllamaHostingProfile.derive(machine(8, 8 * 10**9), model(9 * 10**9))


def test_a_context_beyond_the_models_own_is_not_given() -> None:
    derived = OllamaHostingProfile.derive(machine(8, 10**11), model(context=1024), context=8192)
    assert derived.num_ctx == 1024
    assert any("trained for no more" in reason.why for reason in derived.reasons)


def test_memory_that_is_not_known_makes_it_careful() -> None:
    derived = OllamaHostingProfile.derive(machine(8, None), model())
    assert (derived.num_parallel, derived.num_ctx) == (1, 4096)


def test_a_model_whose_shape_is_not_told_is_served_one_at_a_time(tmp_path: Path) -> None:
    bare = read_header(gguf(tmp_path / "bare.gguf", {"general.architecture": "mystery"}))
    assert OllamaHostingProfile.derive(machine(8, 10**11), bare).num_parallel == 1


@given(
    cores=st.integers(1, 256), memory=st.integers(10**9, 10**12), size=st.integers(10**6, 10**11), wish=st.integers(1, 10**6)
)
def test_what_is_derived_fits_into_the_memory(cores: int, memory: int, size: int, wish: int) -> None:
    shape = model(size, context=131_072)
    try:
        derived = OllamaHostingProfile.derive(machine(cores, memory), shape, context=wish)
    except InputError:
        return
    assert size + derived.num_parallel * cache_bytes(shape, derived.num_ctx) <= SHARE * memory
    assert 1 <= (derived.num_thread or 0) <= cores
    assert {reason.name for reason in derived.reasons} >= {"num_parallel", "num_ctx", "num_thread"}


def test_llama_cpps_own_server_is_told_the_context_of_all_requests() -> None:
    arguments = OllamaHostingProfile(flash_attention=True, kv_cache_type="q8_0", gpu_layers=-1).llama_server
    assert arguments[arguments.index("--ctx-size") + 1] == str(4 * 4096)
    assert arguments[arguments.index("--cache-type-v") + 1] == "q8_0"
    assert arguments[arguments.index("--n-gpu-layers") + 1] == "999"


def test_the_python_server_keeps_no_scores_and_interrupts_nobody() -> None:
    arguments = OllamaHostingProfile(kv_cache_type="q8_0", flash_attention=True).python_server
    assert arguments[arguments.index("--n_ctx") + 1] == "4096"
    for name in ("--logits_all", "--interrupt_requests"):
        assert arguments[arguments.index(name) + 1] == "false"
    assert arguments[arguments.index("--type_k") + 1] == "8"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"num_parallel": 0}, "num_parallel"),
        ({"kv_cache_type": "q5"}, "kv_cache_type"),
        ({"kv_cache_type": "q8_0"}, "flash_attention"),
    ],
)
def test_a_setting_that_cannot_be_is_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(SettingError, match=named):
        OllamaHostingProfile(**settings)  # type: ignore[arg-type]
