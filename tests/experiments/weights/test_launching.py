"""How the training program is started: what is refused, and what the launcher is told."""

import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, MissingExtra
from journeyman.experiments.weights import run as launching
from journeyman.experiments.weights import run as runs
from journeyman.experiments.weights.config import RunSettings
from journeyman.optimizers.weights.config import TrainingConfig

CONFIG = TrainingConfig(
    base_model="embedded:small", method="grpo", dataset_name="desk", domain="oslo", num_examples=8, validation=4
)
MINE = "distributed_type: MULTI_GPU\nuse_cpu: true\nnum_processes: 3\n"


@pytest.fixture
def no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without one: the tools of the drivers are looked for in this folder alone."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return folder


@pytest.fixture
def two_gpus(no_gpu: Path) -> None:
    tool = no_gpu / "nvidia-smi"
    rows = "".join(f"{number}, GPU-{number}, NVIDIA H100, 81559, 81008, 9.0\n" for number in range(2))
    tool.write_text(f"#!/bin/sh\n/bin/cat <<'END'\n{rows}END\n")
    tool.chmod(0o755)


def settings(tmp_path: Path, **told: str) -> RunSettings:
    return RunSettings(project=str(tmp_path / "p"), store=str(tmp_path / "p" / "j.db"), held_out=5, **told)  # type: ignore[arg-type]


def test_by_itself_the_program_is_started_by_this_python(tmp_path: Path) -> None:
    assert launching.command(RunSettings(), tmp_path) == [sys.executable, "-m", "journeyman.experiments.weights"]


@pytest.mark.parametrize(("named", "processes"), [("cpu", "2"), ("cpu:4", "4")])
def test_a_launch_that_is_shipped_is_kept_with_the_run(tmp_path: Path, named: str, processes: str) -> None:
    run = runs.begin(CONFIG, settings(tmp_path, launch=named))
    command = launching.command(run.settings, run.folder)
    assert command[1:3] == ["-m", "accelerate.commands.launch"]
    assert command[3:7] == ["--config_file", str(run.folder / "launch.yaml"), "--num_processes", processes]
    assert command[7:] == ["-m", "journeyman.experiments.weights"]
    assert (run.folder / "launch.yaml").read_bytes() == (launching.SHIPPED / "cpu.yaml").read_bytes()


def test_a_run_is_gone_on_with_as_it_was_begun_when_the_file_has_changed(tmp_path: Path) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text(MINE)
    asked = settings(tmp_path, launch=str(mine))
    before = launching.command(asked, runs.begin(CONFIG, asked).folder)
    mine.unlink()
    again = runs.reopen(None, settings(tmp_path))
    assert launching.command(again.settings, again.folder) == before
    assert "3" in before


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize("named", ["gpus", "fsdp"])
def test_there_is_a_process_for_each_gpu(tmp_path: Path, named: str) -> None:
    asked = settings(tmp_path, launch=named)
    launching.check(CONFIG, asked)
    launching.keep(asked, tmp_path)
    command = launching.command(asked, tmp_path)
    assert command[command.index("--num_processes") + 1] == "2"


def test_ray_is_told_how_much_room_the_program_needs(tmp_path: Path) -> None:
    asked = settings(tmp_path, launch="fsdp:4", workers="ray:auto")
    launching.keep(asked, tmp_path)
    command = launching.command(asked, tmp_path)
    submit, program = command[: command.index("--")], command[command.index("--") + 1 :]
    assert submit[1:4] == ["-m", "journeyman.io.executors.ray_program", "ray:auto"]
    assert submit[-4:] == ["--processes", "4", "--gpus", "4"]
    assert program[:2] == ["-m", "accelerate.commands.launch"]
    assert program[-2:] == ["-m", "journeyman.experiments.weights"]


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("told", "generation", "message"),
    [
        ({"launch": "tpu"}, "auto", "launch is 'tpu', and must be one of cpu, deepspeed-zero2, .*, or a file of accelerate's"),
        ({"launch": "cpu:0"}, "auto", "launch is 'cpu:0': 0 is no number of processes"),
        ({"launch": "gpus"}, "auto", "launch is 'gpus', which trains on GPUs, and there is none here: take cpu"),
        ({}, "vllm", "generation is vllm, which writes on a GPU, and there is none here: leave it at auto"),
        ({"workers": "local"}, "auto", "workers is 'local', and must be here, ray or ray:ADDRESS"),
    ],
)
def test_what_cannot_be_started_is_refused_before_there_is_a_run(
    tmp_path: Path, told: dict[str, str], generation: str, message: str
) -> None:
    config = replace(CONFIG, generation=generation)
    with pytest.raises(InputError, match=message):
        runs.begin(config, settings(tmp_path, **told))
    assert not list((tmp_path / "p").glob("runs/*"))


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    ("module", "told", "generation"),
    [
        ("vllm", {}, "vllm"),
        ("deepspeed", {"launch": "deepspeed-zero3"}, "auto"),
        ("ray", {"workers": "ray"}, "auto"),
    ],
)
def test_what_is_not_installed_is_one_sentence_with_what_to_type(
    tmp_path: Path, module: str, told: dict[str, str], generation: str
) -> None:
    if find_spec(module) is not None:
        pytest.skip(f"{module} is installed")
    config = replace(CONFIG, generation=generation)
    with pytest.raises(MissingExtra, match=f"^{module} is missing: pip install "):
        runs.begin(config, settings(tmp_path, **told))


@pytest.mark.parametrize("text", ["{", "- a\n", "num_processes: 2\n"])
def test_a_file_that_is_not_accelerates_is_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=f"^{path} is not a file of accelerate's: "):
        launching.find_launcher(str(path))


@pytest.mark.training
@pytest.mark.parametrize(
    ("name", "launcher"),
    [
        ("cpu", "multi_gpu"),
        ("gpu", None),
        ("gpus", "multi_gpu"),
        ("fsdp", "use_fsdp"),
        ("deepspeed-zero2", "use_deepspeed"),
        ("deepspeed-zero3", "use_deepspeed"),
    ],
)
def test_accelerate_reads_what_is_shipped_as_it_is_meant(name: str, launcher: str | None) -> None:
    launch = pytest.importorskip("accelerate.commands.launch", reason="needs the extra: pip install 'journeyman[weights]'")
    found = launching.find_launcher(name)
    told = ["--config_file", str(found.path), "--num_processes", "2", "-m", "journeyman.experiments.weights", "RUN"]
    read, _, _ = launch._validate_launch_command(launch.launch_command_parser().parse_args(told))
    assert {each for each in ("multi_gpu", "use_fsdp", "use_deepspeed") if getattr(read, each)} == {launcher} - {None}
    assert found.deepspeed == (launcher == "use_deepspeed")
    assert (read.fsdp_version, read.fsdp_state_dict_type) == (2, "FULL_STATE_DICT") or name != "fsdp"
    assert launcher != "use_deepspeed" or str(read.zero_stage) == name[-1]


def test_every_launch_that_is_shipped_is_checked_above() -> None:
    assert launching.names() == ["cpu", "deepspeed-zero2", "deepspeed-zero3", "fsdp", "gpu", "gpus"]
