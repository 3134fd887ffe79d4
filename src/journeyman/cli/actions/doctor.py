"""What `journeyman doctor` looks at. Nothing is changed, made or imported that is not needed to look."""

import asyncio
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from rich.table import Table
from rich.text import Text

from journeyman.cli.console import console
from journeyman.core.errors import InputError, JourneymanError, SandboxError
from journeyman.models import embedded_sizes
from journeyman.optimizers.weights import model_shape, sizing
from journeyman.optimizers.weights.config import TrainingConfig
from journeyman.optimizers.weights.model_shape import Shape
from journeyman.optimizers.weights.sizing import HardwareConfig, Reason, detect_hardware, gib, reasons, resolve
from journeyman.optimizers.weights.sizing import TrainingEstimate as Estimate
from journeyman.sandbox import bubblewrap, load
from journeyman.sandbox.base import LANGUAGES, Language, Level

PYTHON = (3, 11)
KEYS = {
    "OPENAI_API_KEY": "for models named openai:…",
    "OPENAI_BASE_URL": "another server than OpenAI's",
    "JOURNEYMAN_STORE": "another store than the project's",
}
SERVERS = {
    "llama-server": "serves GGUF files; without it the server of llama-cpp-python does (the extra gguf)",
    "ollama": "for journeyman deploy ollama, on this machine or another (OLLAMA_HOST)",
}
_REQUIREMENT = re.compile(
    r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?\s*(?:>=\s*(?P<least>[\d.]+))?.*?(?:extra == ['\"](?P<extra>[\w-]+))?['\"]?$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One thing that was looked at. The fields are those of `--json`."""

    group: str
    name: str
    state: Literal["ok", "missing", "broken", "no"]
    """`no` is an answer, not a fault: a key that is not set."""
    detail: str = ""
    mend: str = ""
    """What to type, or to do."""
    needed: bool = False
    """Without it nothing works; an extra is missing only to those who want it."""

    @property
    def works(self) -> bool:
        return not self.needed or self.state == "ok"


def examine(start: Path | None = None, environment: Mapping[str, str] | None = None) -> list[HealthCheck]:
    """Look at everything. `start` is where the project is searched from, else the working folder."""
    told = os.environ if environment is None else environment
    return [*_packages(), *_weights(), *_servers(told), *_project(start, told), *_keys(told), *_machine(told)]


def _packages() -> Iterator[HealthCheck]:
    version = ".".join(map(str, sys.version_info[:3]))
    least = ".".join(map(str, PYTHON))
    old = sys.version_info < PYTHON
    yield HealthCheck(
        group="core",
        name="python",
        state="broken" if old else "ok",
        detail=version,
        mend=f"install Python {least} or newer" if old else "",
        needed=True,
    )
    try:
        own, requirements = metadata.version("journeyman"), metadata.requires("journeyman") or []
    except metadata.PackageNotFoundError:
        yield HealthCheck(group="core", name="journeyman", state="missing", mend="pip install journeyman", needed=True)
        return
    yield HealthCheck(group="core", name="journeyman", state="ok", detail=own, needed=True)
    found = [match for line in requirements if (match := _REQUIREMENT.match(line))]
    for match in sorted(found, key=lambda match: (match["extra"] or "", match["name"])):
        yield package(match["name"], match["least"], match["extra"])


def package(name: str, least: str | None, extra: str | None) -> HealthCheck:
    """Whether a package is installed, and new enough."""
    group = f"extra: {extra}" if extra else "core"
    mend = installing(extra)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return HealthCheck(group=group, name=name, state="missing", mend=mend, needed=extra is None)
    if least and _numbers(version) < _numbers(least):
        detail = f"{version}, and {least} or newer is needed"
        return HealthCheck(group=group, name=name, state="broken", detail=detail, mend=mend, needed=extra is None)
    return HealthCheck(group=group, name=name, state="ok", detail=version, needed=extra is None)


def installing(extra: str | None, direct_url: str | None = None) -> str:
    """What to type for this installation: a clone stays one. `direct_url` is pip's note of where it came from."""
    if direct_url is None:
        direct_url = metadata.distribution("journeyman").read_text("direct_url.json")
    origin = json.loads(direct_url) if direct_url else {}
    parts = f"[{extra}]" if extra else ""
    if not origin.get("dir_info", {}).get("editable"):
        return f"pip install 'journeyman{parts}'" if extra else "pip install --force-reinstall journeyman"
    clone = Path(url2pathname(urlsplit(origin["url"]).path))
    folder = "." if clone == Path.cwd() else clone
    return f"pip install -e {shlex.quote(f'{folder}{parts}')}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.split(r"[^\d.]", version, maxsplit=1)[0]))


def _weights() -> Iterator[HealthCheck]:
    if sizes := embedded_sizes():
        yield HealthCheck(group="embedded model", name="weights", state="ok", detail=", ".join(sizes))
    else:
        mend = "install journeyman again; to train them: python -m journeyman.experiments.pretrain"
        yield HealthCheck(group="embedded model", name="weights", state="missing", mend=mend)


def _servers(environment: Mapping[str, str]) -> Iterator[HealthCheck]:
    for name, why in SERVERS.items():
        path = shutil.which(name, path=environment.get("PATH"))
        yield HealthCheck(group="serving", name=name, state="ok" if path else "no", detail=path or why)


def _project(start: Path | None, environment: Mapping[str, str]) -> Iterator[HealthCheck]:
    try:
        from journeyman.experiments import settings

        project = settings.load(start, environment)
        detail = str(project.file) if project.file else f"no {settings.FILE}, so every setting has its default"
        yield HealthCheck(group="project", name="settings", state="ok", detail=detail, needed=True)
        yield _store(project.store_url)
    except JourneymanError as error:
        yield HealthCheck(group="project", name="settings", state="broken", detail=str(error), needed=True)
    except ImportError as error:
        detail = f"they cannot be looked at: {error}"
        yield HealthCheck(group="project", name="settings and store", state="broken", detail=detail, needed=True)


def _store(url: str) -> HealthCheck:
    from journeyman.stores import MEMORY, engine
    from journeyman.stores.urls import redacted

    shown = redacted(url)
    if url == MEMORY:
        return HealthCheck(group="project", name="store", state="ok", detail="in memory: nothing is kept", needed=True)
    try:
        step = engine.step_of(url)
    except JourneymanError as error:
        return HealthCheck(group="project", name="store", state="broken", detail=str(error), needed=True)
    if step is not None and step > engine.HEAD:
        detail = f"{shown} is at step {step}, and this Journeyman knows steps up to {engine.HEAD}"
        mend = "pip install --upgrade journeyman"
        return HealthCheck(group="project", name="store", state="broken", detail=detail, mend=mend, needed=True)
    known = "not there yet, made on first use" if step is None else f"schema step {step}"
    if step is not None and step < engine.HEAD:
        known += f", brought to {engine.HEAD} when it is opened next"
    return HealthCheck(group="project", name="store", state="ok", detail=f"{shown}: {known}", needed=True)


def _keys(environment: Mapping[str, str]) -> Iterator[HealthCheck]:
    for key, use in KEYS.items():
        yield HealthCheck(group="environment", name=key, state="ok" if environment.get(key) else "no", detail=use)


def _machine(environment: Mapping[str, str]) -> Iterator[HealthCheck]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield HealthCheck(group="machine", name="cores", state="ok", detail=str(cores))
    threads = environment.get("OMP_NUM_THREADS")
    yield HealthCheck(
        group="machine", name="threads", state="ok", detail=f"{threads} (OMP_NUM_THREADS)" if threads else "one a core"
    )
    if (memory := _memory()) is not None:
        yield HealthCheck(group="machine", name="memory", state="ok", detail=f"{memory / 2**30:.1f} GiB")


def _memory() -> int | None:
    """Bytes that this process may use, as far as the system says: a container's limit counts."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    told = limit.read_text().strip() if limit.is_file() else ""
    return min(physical, int(told)) if told.isdigit() else physical


# What `journeyman doctor` says of sandboxes: each is started, and tests itself.

GROUP = "sandbox"
MENDS = {
    "memory_group": "a control group that may be shared out: systemd-run --user --scope -p Delegate=yes journeyman …",
    "process_group": "a control group that may be shared out: systemd-run --user --scope -p Delegate=yes journeyman …",
    "no_capabilities": "a Python that every user may read: one below /usr or /opt instead of root's home",
    "no_new_privileges": "a kernel of 3.5 or newer",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER, on x86_64 or aarch64",
    "disk_limit": "bubblewrap, which gives each run a file system of its own",
    "inode_limit": "bubblewrap, which gives each run a file system of its own",
    "hidden_names": "bubblewrap, which shows a run only what it may read",
    "own_tmp": "bubblewrap, which gives each run a /tmp of its own",
    "limits_at_once": "bubblewrap, whose limits on disk and inodes refuse at once",
}
"""What would give a sandbox a wall that it lacks here."""


def examine_sandboxes() -> Iterator[HealthCheck]:
    """The sandbox that works here, how strong it is, and what would make it stronger."""
    found: dict[str, Level | str] = {name: _level(name) for name in ("bubblewrap", "landlock")}
    installed = bubblewrap.installed()
    for name, level in found.items():
        yield _check(name, level, installed=installed or name != "bubblewrap")
    working = next(((name, level) for name, level in found.items() if isinstance(level, Level)), None)
    if working is None:
        mend = "see above; or the code service of another machine: --ptc-url http://…"
        yield HealthCheck(
            group=GROUP, name="used", state="missing", detail="code that agents write cannot be run here", mend=mend
        )
        return
    name, level = working
    if installed:
        yield HealthCheck(
            group=GROUP, name="used", state="ok", detail=name if name == "bubblewrap" else f"{name}, the second choice"
        )
    else:
        # What one command brings is not fallen back from.
        yield HealthCheck(
            group=GROUP, name="used", state="missing", detail="none", mend="install bubblewrap, or say --sandbox landlock"
        )
    for wall in level.lacks:
        yield HealthCheck(group=GROUP, name=wall, state="no", detail=f"not to be had by {name} here", mend=MENDS.get(wall, ""))
    yield _languages()


def _check(name: str, level: Level | str, *, installed: bool) -> HealthCheck:
    if isinstance(level, str):
        return HealthCheck(group=GROUP, name=name, state="broken" if installed else "missing", detail=level)
    return HealthCheck(group=GROUP, name=name, state="ok", detail=f"{len(level.holds)} walls hold: {', '.join(level.holds)}")


def _level(name: str) -> Level | str:
    """What it measured when it was started, or why it did not start and what to do."""

    async def started() -> Level:
        box = load(name)
        try:
            await box.start()
            return box.level
        finally:
            await box.close()

    try:
        return asyncio.run(started())
    except SandboxError as error:
        return str(error)


def _languages() -> HealthCheck:
    there = [name for name, language in LANGUAGES.items() if _is_there(language)]
    return HealthCheck(group=GROUP, name="languages", state="ok", detail=", ".join(there))


def _is_there(language: Language) -> bool:
    if language.kind == "pytest":
        return find_spec("pytest") is not None
    return not language.commands or any(shutil.which(command[0]) for command in language.commands)


# What `journeyman hardware` finds, and how it shows it.

_PARTS = {
    "weights": "the frozen model",
    "adapter": "what is trained",
    "gradients": "of the adapter alone",
    "optimizer": "Adam's two moments of the adapter",
    "activations": "kept for the backward pass",
    "logits": "the part of the vocabulary that is worked on",
    "cache": "keys and values while completions are sampled",
    "libraries": "the interpreter and its libraries, or a GPU's driver",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFindings:
    hardware: HardwareConfig
    model: str = ""
    shape: Shape | None = None
    unknown: str = ""
    """Why the shape is not known."""
    config: TrainingConfig | None = None
    reasons: Sequence[Reason] = ()
    estimate: Estimate | None = None
    refusal: str = ""
    """Why the training will not fit, and what would."""


def look(profile: str, model: str, method: str) -> HardwareFindings:
    """Look at the machine, and at what training `model` would take, when one is named."""
    hardware = detect_hardware(profile)
    if not model:
        return HardwareFindings(hardware=hardware)
    shape, unknown = model_shape.find(model)
    open_config = TrainingConfig(base_model=model, method=method)
    config = resolve(open_config, shape, hardware)
    why = reasons(open_config, shape, hardware)
    estimate, refusal = None, ""
    if shape is not None:
        estimate = sizing.estimate(shape, config, hardware)
        try:
            sizing.must_fit(shape, config, hardware)
        except InputError as error:
            refusal = str(error)
    return HardwareFindings(
        hardware=hardware,
        model=model,
        shape=shape,
        unknown=unknown,
        config=config,
        reasons=why,
        estimate=estimate,
        refusal=refusal,
    )


def told(found: HardwareFindings) -> dict[str, Any]:
    """The fields of `--json`. Sizes in bytes; null is unknown, and for limits none."""
    hardware = found.hardware
    result = {**asdict(hardware), "derived": _derived(hardware.reasons())}
    if found.config is not None:
        result["training"] = {
            "model": found.model,
            "shape": asdict(found.shape) if found.shape else None,
            "unknown": found.unknown or None,
            "settings": found.config.json(),
            "derived": _derived(found.reasons),
            "estimate": {**asdict(found.estimate), "fits": found.estimate.fits} if found.estimate else None,
            "refusal": found.refusal or None,
        }
    return result


def _derived(given: Sequence[Reason]) -> dict[str, Any]:
    return {reason.name: {"value": reason.value, "why": reason.why} for reason in given}


def show(found: HardwareFindings) -> None:
    screen = console()
    screen.print(_table(f"Hardware ({found.hardware.profile})", list(_machine_hardware(found.hardware))))
    screen.print(_table("\nWhat follows from it", found.hardware.reasons()))
    if not found.model:
        return
    screen.print(_table(f"\nTraining {found.model} by {found.config.method if found.config else ''}", found.reasons))
    if found.estimate is None:
        screen.print(f"\n{found.unknown[:1].upper()}{found.unknown[1:]}.", soft_wrap=True)
        return
    screen.print(_table("\nWhat it would take", list(_taken(found.estimate))))
    verdict = {
        True: "It fits.",
        False: f"{found.refusal[:1].upper()}{found.refusal[1:]}.",
        None: "How much there is is not known.",
    }
    screen.print(f"\n{verdict[found.estimate.fits]}")


def _table(title: str, rows: Sequence[Reason]) -> Table:
    table = Table(
        title=Text(title, style="bold"), title_justify="left", box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 2)
    )
    table.add_column(no_wrap=True)
    table.add_column(min_width=8)
    table.add_column(style="dim")
    for name, value, why in rows:
        table.add_row(name, _said(value), why)
    return table


def _said(value: object) -> str:
    if value is None:
        return "unknown"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _machine_hardware(hardware: HardwareConfig) -> Iterator[Reason]:
    yield Reason("processor", hardware.cpu_name, ", ".join(hardware.instruction_sets))
    quota = "" if hardware.cpu_quota is None else f", a quota of {hardware.cpu_quota:g} included"
    cores = f"{hardware.usable_cores:g} of {hardware.logical_cores} logical ones{quota}"
    yield Reason("cores", hardware.physical_cores, f"physical; this process may use {cores}")
    limit = "no limit of a container" if hardware.memory_limit is None else f"a container's limit: {gib(hardware.memory_limit)}"
    yield Reason("memory", gib(hardware.ram), f"{gib(hardware.memory_available)} available now; {limit}")
    for gpu in hardware.gpus:
        bf16 = "bf16" if gpu.bf16 else "no bf16"
        yield Reason("GPU", gpu.name, f"{gib(gpu.memory_total)}, {gib(gpu.memory_free)} free, {gpu.kind}, {bf16}")
    if hardware.gpus_unused:
        yield Reason("", "not used", hardware.gpus_unused)
    elif not hardware.gpus:
        yield Reason("GPU", "none", "")


def _taken(estimate: Estimate) -> Iterator[Reason]:
    for name, why in _PARTS.items():
        yield Reason(name, gib(getattr(estimate, name)), why)
    yield Reason("peak", gib(estimate.peak), f"at one time, within a quarter; {estimate.place} has {gib(estimate.limit)}")
    yield Reason("step", _time(estimate.step_seconds), "one update, within a factor of about two")
    counted = "unknown" if estimate.steps is None else f"{estimate.steps:,}"
    tokens = "unknown" if estimate.tokens is None else f"{estimate.tokens:,}"
    yield Reason("in all", _time(estimate.seconds), f"{counted} updates, {tokens} tokens at most")
    yield Reason("cost", f"${estimate.cost:.2f}", "on a machine of one's own")


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "unknown"
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
