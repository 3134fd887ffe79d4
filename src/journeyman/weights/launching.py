"""How the training program is started: by itself, as several processes of `accelerate launch`, on a machine of a Ray cluster.

--launch cpu           one of the files in `launch/`, beside this one
--launch fsdp:4        with four processes instead of one for each GPU
--launch mine.yaml     what `accelerate config` wrote
--workers ray:ADDRESS  wherever the cluster has room; the run's folder must lie where all its machines see it
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from journeyman.errors import InputError, MissingExtra, SettingError
from journeyman.learn.weights import gpus
from journeyman.learn.weights.config import TrainingConfig
from journeyman.learn.weights.program import MODULE, PARENT
from journeyman.weights.settings import RunSettings

SHIPPED = Path(__file__).parent / "launch"
FILE = "launch.yaml"
"""In a run's folder: what `accelerate launch` is told. Its changes are those of the run alone."""
HERE = "here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A file of `accelerate launch`."""

    path: Path
    processes: int | None
    """`None` for one on each GPU."""
    on_gpus: bool
    deepspeed: bool


def names() -> list[str]:
    """The files that come with Journeyman."""
    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def find(named: str) -> Launch:
    """A launch by its name or file, and `:PROCESSES` behind it.

    Raises:
        InputError: There is none, or the file is not one of accelerate's.
    """
    name, count = _parts(named)
    path = SHIPPED / f"{name}.yaml" if name in names() else Path(name)
    if not path.is_file():
        raise SettingError("launch", f"{{}} is {named!r}, and must be one of {', '.join(names())}, or a file of accelerate's")
    told = _read(path)
    processes = count if count is not None else told.get("num_processes")
    if processes is not None and (not isinstance(processes, int) or processes < 1):
        raise SettingError("launch", f"{{}} is {named!r}: {processes!r} is no number of processes")
    deepspeed = str(told["distributed_type"]).upper() == "DEEPSPEED"
    return Launch(path=path, processes=processes, on_gpus=not told.get("use_cpu", False), deepspeed=deepspeed)


def check(config: TrainingConfig, settings: RunSettings) -> None:
    """See that a training can be started as it is asked for. What is on the machines of a cluster is not known here.

    Raises:
        InputError: It needs a GPU that is not there, or is no launch at all.
        MissingExtra: It needs what is not installed.
    """
    asked = find(settings.launch) if settings.launch else None
    if settings.workers != HERE:
        _needs("ray", "pip install 'journeyman[ray]'")
        return
    if asked is not None:
        _needs("accelerate", "pip install 'journeyman[weights]'")
        if asked.deepspeed:
            _needs("deepspeed", "pip install deepspeed, or take the launch fsdp")
        if asked.on_gpus and not gpus.find():
            raise SettingError("launch", f"{{}} is {settings.launch!r}, which trains on GPUs, and there is none here: take cpu")
    if config.generation == "vllm":
        if not gpus.find():
            raise SettingError("generation", "{} is vllm, which writes on a GPU, and there is none here: leave it at auto")
        _needs("vllm", "pip install vllm, or leave the generation at auto")


def keep(settings: RunSettings, folder: Path) -> None:
    """Put what `accelerate launch` is told into a run's folder, where every machine finds it."""
    if settings.launch:
        (folder / FILE).write_bytes(find(settings.launch).path.read_bytes())


def command(settings: RunSettings, folder: Path) -> list[str]:
    """What starts the program of a run, before its folder."""
    program = ["-m", MODULE]
    room = []
    if settings.launch:
        kept = (folder / FILE).resolve()
        count = _parts(settings.launch)[1]
        asked = find(f"{kept}:{count}" if count is not None else str(kept))
        processes = asked.processes or max(1, len(gpus.find()))
        told = ["--config_file", str(kept), "--num_processes", str(processes)]
        program = ["-m", "accelerate.commands.launch", *told, *program]
        room = ["--processes", str(processes), "--gpus", str(processes if asked.on_gpus else 0)]
    if settings.workers == HERE:
        return [sys.executable, *program]
    submit = ["-m", "journeyman.workers.ray_program", settings.workers, "--environment", PARENT, *room]
    return [sys.executable, *submit, "--", *program]


def _parts(named: str) -> tuple[str, int | None]:
    """The name or file, and how many processes stand behind it."""
    name, _, count = named.rpartition(":")
    return (name, int(count)) if name and count.isascii() and count.isdecimal() else (named, None)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path} is not a file of accelerate's: {' '.join(str(error).split())}") from None
    if not isinstance(found, dict) or "distributed_type" not in found:
        raise InputError(f"{path} is not a file of accelerate's: it has no distributed_type; `accelerate config` writes one")
    return found


def _needs(module: str, remedy: str) -> None:
    if find_spec(module) is None:
        raise MissingExtra(f"{module} is missing: {remedy}")
