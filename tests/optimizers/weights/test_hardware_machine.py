from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.optimizers.weights import hardware
from journeyman.optimizers.weights.sizing import HardwareConfig, HardwareProfile, detect_hardware, get_ryzen_optimized_config

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "33 31 0:29 {inside} /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {inside} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
)
ZEN3 = "fpu sse2 fma f16c avx avx2"
XEON = "fpu sse2 fma avx avx2 avx512f avx512_bf16 amx_bf16 amx_tile"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cpuinfo(flags: str, threads: int = 4, siblings: int = 2) -> str:
    blocks = (
        f"processor\t: {number}\nmodel name\t: AMD Ryzen 9 5950X\nphysical id\t: 0\n"
        f"core id\t\t: {number // siblings}\nflags\t\t: {flags}\n"
        for number in range(threads)
    )
    return "\n".join(blocks)


def v2(root: Path, **files: str) -> Path:
    told = {"proc/self/mountinfo": V2, "proc/self/cgroup": "0::/a.slice/job\n"}
    return tree(root, {**told, **{f"sys/fs/cgroup/{name.replace('__', '/')}": text for name, text in files.items()}})


def test_the_tightest_group_above_a_process_counts(tmp_path: Path) -> None:
    tree(
        v2(tmp_path),
        {
            "sys/fs/cgroup/a.slice/memory.max": "4294967296\n",
            "sys/fs/cgroup/a.slice/memory.current": "1073741824\n",
            "sys/fs/cgroup/a.slice/memory.stat": "anon 5\ninactive_file 73741824\n",
            "sys/fs/cgroup/a.slice/cpu.max": "150000 100000\n",
            "sys/fs/cgroup/a.slice/job/memory.max": "max\n",
            "sys/fs/cgroup/a.slice/job/cpu.max": "max 100000\n",
        },
    )
    assert hardware.limits(tmp_path) == hardware.CgroupLimits(cores=1.5, memory=2**32, memory_left=2**32 - 10**9)


def test_max_and_absent_files_are_no_limit(tmp_path: Path) -> None:
    none = hardware.CgroupLimits()
    assert hardware.limits(tmp_path) == none
    tree(v2(tmp_path), {"sys/fs/cgroup/a.slice/job/memory.max": "max\n", "sys/fs/cgroup/a.slice/job/cpu.max": "max 100000\n"})
    assert hardware.limits(tmp_path) == none


@pytest.mark.parametrize(("inside", "path"), [("/", "/docker/x"), ("/docker/x", "/docker/x"), ("/../..", "/docker/x")])
def test_version_1_is_read_where_it_is_mounted_even_when_the_path_is_the_hosts(tmp_path: Path, inside: str, path: str) -> None:
    below = path if inside == "/" else ""
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V1.format(inside=inside),
            "proc/self/cgroup": f"5:cpu,cpuacct:{path}\n4:memory:{path}\n0::/\n",
            f"sys/fs/cgroup/memory{below}/memory.limit_in_bytes": "2147483648\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            f"sys/fs/cgroup/cpu,cpuacct{below}/cpu.cfs_quota_us": "250000\n",
            f"sys/fs/cgroup/cpu,cpuacct{below}/cpu.cfs_period_us": "100000\n",
        },
    )
    found = hardware.limits(tmp_path)
    assert (found.cores, found.memory) == (2.5, 2**31)


def test_version_1_says_no_limit_by_a_number_near_the_largest(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {
            "proc/self/mountinfo": V1.format(inside="/"),
            "proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        },
    )
    assert hardware.limits(tmp_path) == hardware.CgroupLimits()


@given(text=st.text(max_size=200))
def test_nothing_that_these_files_could_say_is_an_error(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.mktemp("strange")
    for name in ("proc/self/mountinfo", "proc/self/cgroup", "proc/meminfo", "proc/cpuinfo", "sys/fs/cgroup/memory.max"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
    hardware.limits(root)
    hardware.memory(root)
    hardware.processor(root, frozenset({0, 1}))


def test_two_threads_of_a_core_count_once_and_only_those_that_may_run(tmp_path: Path) -> None:
    tree(tmp_path, {"proc/cpuinfo": cpuinfo(ZEN3, threads=8)})
    assert hardware.processor(tmp_path, frozenset()).physical_cores == 4
    assert hardware.processor(tmp_path, frozenset({0, 1, 2})).physical_cores == 2
    assert hardware.processor(tmp_path, frozenset({9})).physical_cores is None


def test_a_processor_of_arm_tells_its_cores_elsewhere(tmp_path: Path) -> None:
    blocks = "\n".join(f"processor\t: {n}\nFeatures\t: fp asimd bf16 i8mm\n" for n in range(2))
    topology = {
        f"sys/devices/system/cpu/cpu{n}/topology/{name}": f"{n}\n"
        for n in range(2)
        for name in ("core_id", "physical_package_id")
    }
    found = hardware.processor(tree(tmp_path, {"proc/cpuinfo": blocks, **topology}), frozenset({0, 1}))
    assert found == hardware.Processor(name=None, instruction_sets=("asimd", "bf16"), physical_cores=2)


@pytest.mark.parametrize(("flags", "bf16", "word"), [(ZEN3, False, "AVX2 alone would emulate"), (XEON, True, "amx_bf16")])
def test_bf16_is_used_only_where_the_processor_has_it(tmp_path: Path, flags: str, bf16: bool, word: str) -> None:
    tree(tmp_path, {"proc/cpuinfo": cpuinfo(flags), "proc/meminfo": "MemTotal:  16000000 kB\nMemAvailable: 8000000 kB\n"})
    found = detect_hardware("CPU_ONLY", root=tmp_path)
    assert found.use_bf16 is bf16
    assert word in next(reason.why for reason in found.reasons() if reason.name == "use_bf16")
    assert (found.memory_total, found.memory_available) == (16_000_000 * 1024, 8_000_000 * 1024)


def test_a_containers_limit_is_the_memory_and_its_quota_the_threads(tmp_path: Path) -> None:
    tree(
        v2(tmp_path, memory__max="x"),
        {
            "proc/cpuinfo": cpuinfo(ZEN3, threads=64, siblings=1),
            "proc/meminfo": "MemTotal: 64000000 kB\nMemAvailable: 60000000 kB\n",
            "sys/fs/cgroup/a.slice/job/memory.max": f"{6 * 2**30}\n",
            "sys/fs/cgroup/a.slice/job/cpu.max": "150000 100000\n",
        },
    )
    found = detect_hardware("CPU_ONLY", root=tmp_path)
    assert (found.device_memory, found.threads, found.cpu_quota) == (6 * 2**30, 1, 1.5)


def test_the_documented_profile_gives_the_documented_settings_but_for_bf16() -> None:
    found = get_ryzen_optimized_config()
    assert found == detect_hardware("ryzen-optimized")
    assert (found.recommended_batch_size, found.gradient_accumulation_steps, found.num_generations) == (2, 4, 6)
    assert (found.recommended_model_size, found.lora_r, found.lora_alpha, found.context_length) == ("1.5B", 16, 32, 2048)
    assert found.gradient_checkpointing
    assert not found.use_bf16, "Zen 3 has no instructions for bf16"
    assert found.threads == 16


def test_what_is_derived_grows_with_the_memory() -> None:
    sizes = [
        HardwareConfig(
            memory_total=gib * 2**30, physical_cores=64, usable_cores=64, instruction_sets=("avx512f",)
        ).recommended_model_size
        for gib in (1, 8, 16, 24, 64)
    ]
    assert sizes[0] is None
    weights = [float(size.rstrip("MB")) * (1 if size.endswith("B") else 1e-3) for size in sizes[1:] if size]
    assert len(weights) == 4
    assert weights == sorted(weights)
    assert len(set(weights)) > 1


def test_a_profile_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"no profile 'TURBO'.*RYZEN_OPTIMIZED, AUTO_DETECT"):
        detect_hardware("TURBO")
    assert {profile.value for profile in HardwareProfile} == {"RYZEN_OPTIMIZED", "AUTO_DETECT", "GPU_ENABLED", "CPU_ONLY"}
