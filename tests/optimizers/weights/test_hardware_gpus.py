import stat
from pathlib import Path

import pytest

from journeyman.core.errors import InputError
from journeyman.optimizers.weights import hardware
from journeyman.optimizers.weights.sizing import detect_hardware

TWO_NVIDIA = """\
0, GPU-5c0f, NVIDIA H100 80GB HBM3, 81559, 81008, 9.0
1, GPU-77aa, Tesla T4, 15360, [N/A], 7.5
"""
ROCM = """WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "702699520",
 "Card Series": "AMD Instinct MI250X", "GFX Version": "gfx90a"}, "system": {"Driver version": "6.7"}}
"""
AMD_STATIC = """{"gpu_data": [{"gpu": 0, "asic": {"market_name": "Radeon RX 6800", "target_graphics_version": "gfx1030"},
 "vram": {"type": "GDDR6", "size": {"value": 16368, "unit": "MB"}}}]}"""
AMD_METRIC = (
    """[{"gpu": 0, "mem_usage": {"total_vram": {"value": 16368, "unit": "MB"}, "free_vram": {"value": 16000, "unit": "MB"}}}]"""
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def tool(folder: Path, name: str, script: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def printing(folder: Path, name: str, text: str) -> None:
    tool(folder, name, f"/bin/cat <<'END'\n{text}\nEND")


def found(folder: Path, **environment: str) -> tuple[hardware.Gpu, ...]:
    return hardware.find({"PATH": str(folder), **environment})


def test_nvidias_are_read_and_bf16_begins_with_compute_capability_8(path: Path) -> None:
    printing(path, "nvidia-smi", TWO_NVIDIA)
    h100, t4 = found(path)
    assert h100 == hardware.Gpu(
        kind="cuda",
        name="NVIDIA H100 80GB HBM3",
        memory_total=81559 * 2**20,
        memory_free=81008 * 2**20,
        bf16=True,
        capability="9.0",
    )
    assert (t4.name, t4.memory_free, t4.bf16) == ("Tesla T4", None, False)


@pytest.mark.parametrize(
    ("told", "names"), [("1", ["Tesla T4"]), ("GPU-5c0f", ["NVIDIA H100 80GB HBM3"]), ("", []), ("-1", [])]
)
def test_only_gpus_that_a_program_would_see_count(path: Path, told: str, names: list[str]) -> None:
    printing(path, "nvidia-smi", TWO_NVIDIA)
    assert [gpu.name for gpu in found(path, CUDA_VISIBLE_DEVICES=told)] == names


def test_an_old_driver_is_asked_again_without_what_it_does_not_know(path: Path) -> None:
    tool(path, "nvidia-smi", 'case "$1" in *compute_cap*) exit 2;; esac\necho "0, GPU-1, GeForce GTX 970, 4096, 4000"')
    (gpu,) = found(path)
    assert (gpu.name, gpu.memory_total, gpu.bf16, gpu.capability) == ("GeForce GTX 970", 2**32, False, None)


def test_rocms_json_is_read_past_its_warnings(path: Path) -> None:
    printing(path, "rocm-smi", ROCM)
    (gpu,) = found(path)
    assert (gpu.kind, gpu.name, gpu.bf16, gpu.memory_free) == ("rocm", "AMD Instinct MI250X", True, 68_000_000_000)


def test_amd_smi_goes_before_rocm_smi(path: Path) -> None:
    printing(path, "rocm-smi", ROCM)
    tool(path, "amd-smi", f"case \"$1\" in static) echo '{AMD_STATIC}';; *) echo '{AMD_METRIC}';; esac")
    (gpu,) = found(path)
    assert (gpu.name, gpu.bf16, gpu.memory_total) == ("Radeon RX 6800", False, 16368 * 2**20)
    assert gpu.memory_free == 16000 * 2**20


@pytest.mark.parametrize("script", ["exit 9", "echo 'NVIDIA-SMI has failed'", "echo", "kill -9 $$"])
def test_a_tool_that_fails_means_no_gpu(path: Path, script: str) -> None:
    for name in ("nvidia-smi", "amd-smi", "rocm-smi"):
        tool(path, name, script)
    assert found(path) == ()


def test_a_tool_that_hangs_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "TIMEOUT", 0.3)
    tool(path, "nvidia-smi", "exec /bin/sleep 30")
    assert found(path) == ()


def test_a_gpu_that_torch_was_not_built_for_is_named_and_not_used(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printing(path, "nvidia-smi", TWO_NVIDIA)
    environment = {"PATH": str(path)}
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.0+cpu")
    seen = detect_hardware(environment=environment)
    assert len(seen.gpus) == 2
    assert seen.gpu is None
    assert "built for the processor alone" in seen.gpus_unused
    with pytest.raises(InputError, match="built for the processor alone"):
        detect_hardware("GPU_ENABLED", environment=environment)


def test_settings_follow_from_the_gpu_where_there_is_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    printing(path, "nvidia-smi", TWO_NVIDIA)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.0")
    seen = detect_hardware("GPU_ENABLED", environment={"PATH": str(path)})
    assert seen.gpu is not None
    assert (seen.gpu.name, seen.device_memory) == ("NVIDIA H100 80GB HBM3", 81559 * 2**20)
    assert (seen.use_bf16, seen.num_generations) == (True, 8)
    assert detect_hardware("CPU_ONLY", environment={"PATH": str(path)}).gpus == ()


def test_a_gpu_that_was_asked_for_and_is_not_there_is_an_error(path: Path) -> None:
    with pytest.raises(InputError, match="GPU_ENABLED needs a GPU, and none was found"):
        detect_hardware("GPU_ENABLED", environment={"PATH": str(path)})
