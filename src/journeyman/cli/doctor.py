"""`journeyman doctor`: what is here, what is not, and what to type.

Nothing is changed, made or imported that is not needed to look.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import click

from journeyman.cli.shared import emit, json_option
from journeyman.core import extension, registry
from journeyman.core.errors import JourneymanError, SandboxError
from journeyman.core.format import counted
from journeyman.core.installation import installing
from journeyman.models import embedded_sizes
from journeyman.sandbox import bubblewrap, started
from journeyman.sandbox.base import LANGUAGES, Language, Level

_COLOURS = {"ok": "green", "missing": "yellow", "broken": "red", "no": None}
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


HealthState = Literal["ok", "missing", "broken", "no"]


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One thing that was looked at. The fields are those of `--json`."""

    group: str
    name: str
    state: HealthState
    """`no` is an answer, not a fault: a key that is not set."""
    detail: str = ""
    mend: str = ""
    """What to type, or to do."""
    needed: bool = False
    """Without it nothing works; an extra is missing only to those who want it."""

    @property
    def works(self) -> bool:
        return not self.needed or self.state == "ok"


@click.command()
@click.option("--verbose", "-v", is_flag=True, help="Every package, wall and variable, each in a line.")
@click.pass_context
@json_option
def command(ctx: click.Context, verbose: bool, as_json: bool) -> None:
    """Say what is installed, what is missing, and how to mend it.

    Exit code 0 when everything needed works, 1 when something needed is broken. Of keys it only says whether they are set.

    \b
    Examples:
      journeyman doctor
      journeyman doctor --verbose
      journeyman doctor --json
    """
    checks = [*examine(), *examine_sandboxes()]
    works = all(check.works for check in checks)
    if not as_json:
        _say_verdict(checks)
        _show(checks if verbose else list(_in_short(checks)))
        if not verbose:
            click.echo("Each in a line: journeyman doctor --verbose")
    emit({"ok": works, "checks": [asdict(check) for check in checks]}, as_json=as_json)
    ctx.exit(0 if works else 1)


def _say_verdict(checks: list[HealthCheck]) -> None:
    broken = [check for check in checks if not check.works]
    if not broken:
        click.secho("Everything needed works.", bold=True, fg="green")
    for check in broken:
        said = ": ".join(part for part in (f"{check.name} is {check.state}", check.detail) if part)
        click.secho(f"Needed, and it does not work: {said}{f' → {check.mend}' if check.mend else ''}", bold=True, fg="red")


def _in_short(checks: list[HealthCheck]) -> Iterator[HealthCheck]:
    """A line for the packages that are needed, one for each extra, and of the rest what is there."""
    for group, members in _by_group(checks).items():
        extra = group.removeprefix("extra: ")
        if group == "core":
            named = [f"{each.name} {each.detail}" for each in members if each.name in ("python", "journeyman")]
            yield _folded(members, group="core", name="packages", there=", ".join(named))
        elif extra != group:
            yield _folded(members, group="extras", name=extra, there="")
        elif group == "sandbox":
            yield from (each for each in members if each.name in ("used", "languages"))
            lacking = [each.name for each in members if each.state == "no"]
            yield from [HealthCheck(group=group, name="lacking", state="no", detail=", ".join(lacking))] if lacking else []
        else:
            yield from (each for each in members if each.state != "no")


def _by_group(checks: list[HealthCheck]) -> dict[str, list[HealthCheck]]:
    found: dict[str, list[HealthCheck]] = {}
    for check in checks:
        found.setdefault(check.group, []).append(check)
    return found


def _folded(members: list[HealthCheck], *, group: str, name: str, there: str) -> HealthCheck:
    """All as one: as bad as the worst of them, which are named."""
    by_weight: tuple[Literal["broken", "missing"], ...] = ("broken", "missing")
    state: HealthState = next((state for state in by_weight if any(each.state == state for each in members)), "ok")
    bad = [each for each in members if each.state in ("broken", "missing")]
    detail = ", ".join(f"{each.name} {each.detail}".strip() for each in bad) or there
    return replace(members[0], group=group, name=name, state=state, detail=detail, mend=bad[0].mend if bad else "")


def _show(checks: list[HealthCheck]) -> None:
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            click.secho(group, bold=True)
        state = click.style(f"{check.state:8}", fg=_COLOURS[check.state])
        click.echo(f"  {state} {check.name:22} {check.detail}".rstrip())
        if check.mend:
            click.echo(f"  {'':8} {'':22} → {check.mend}")


def examine(start: Path | None = None, environment: Mapping[str, str] | None = None) -> list[HealthCheck]:
    """Look at everything. `start` is where the project is searched from, else the working folder."""
    given = os.environ if environment is None else environment
    return [
        *_packages(),
        *extensions(),
        *_weights(),
        *_servers(given),
        *_project(start, given),
        *_keys(given),
        *_machine(given),
    ]


def _packages() -> Iterator[HealthCheck]:
    version = ".".join(map(str, sys.version_info[:3]))
    least = ".".join(map(str, PYTHON))
    old = sys.version_info < PYTHON
    mend = f"install Python {least} or newer" if old else ""
    core = partial(HealthCheck, group="core", needed=True)
    yield core(name="python", state="broken" if old else "ok", detail=version, mend=mend)
    try:
        own, requirements = metadata.version("journeyman"), metadata.requires("journeyman") or []
    except metadata.PackageNotFoundError:
        yield core(name="journeyman", state="missing", mend=installing(None))
        return
    yield core(name="journeyman", state="ok", detail=own)
    matches = [match for line in requirements if (match := _REQUIREMENT.match(line))]
    for match in sorted(matches, key=lambda match: (match["extra"] or "", match["name"])):
        if match["extra"] == "all":
            # All others once more.
            continue
        yield package(match["name"], match["least"], match["extra"])


def package(name: str, least: str | None, extra: str | None) -> HealthCheck:
    """Whether a package is installed, and new enough."""
    found = partial(HealthCheck, group=f"extra: {extra}" if extra else "core", name=name, needed=extra is None)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return found(state="missing", mend=installing(extra))
    if least and _numbers(version) < _numbers(least):
        return found(state="broken", detail=f"{version}, and {least} or newer is needed", mend=installing(extra))
    return found(state="ok", detail=version)


def extensions() -> Iterator[HealthCheck]:
    """What other packages add, each loaded as when its name is said: one that is broken is otherwise found out by its users."""
    for kind in registry.KINDS:
        for name, entry in registry.added(kind).items():
            found = partial(HealthCheck, group="extensions", name=f"{kind}: {name}")
            package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value
            if name in registry.KINDS[kind]:
                yield found(state="no", detail=f"{package}: Journeyman has a name like this itself, and keeps it")
                continue
            try:
                # An importer is shown every file that nobody knows, so that it must be such as can be made.
                extension.make(kind, name) if kind == "importers" else registry.load(kind, name)
            except JourneymanError as error:
                yield found(state="broken", detail=str(error), mend=f"mend or uninstall {package}")
            else:
                yield found(state="ok", detail=package)


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
    found = partial(HealthCheck, group="project", needed=True)
    try:
        from journeyman.experiments import settings
        from journeyman.experiments.place import FILE

        project = settings.load(start, environment)
        detail = str(project.file) if project.file else f"no {FILE}, so every setting has its default"
        yield found(name="settings", state="ok", detail=detail)
        try:
            yield _store(project.store_url)
        except JourneymanError as error:
            yield found(name="store", state="broken", detail=str(error))
    except JourneymanError as error:
        yield found(name="settings", state="broken", detail=str(error))
    except ImportError as error:
        yield found(name="settings and store", state="broken", detail=f"they cannot be looked at: {error}")


def _store(url: str) -> HealthCheck:
    """
    Raises:
        JourneymanError: It cannot be opened.
    """
    from journeyman.stores import MEMORY, engine
    from journeyman.stores.urls import redacted

    found = partial(HealthCheck, group="project", name="store", needed=True)
    shown = redacted(url)
    if url == MEMORY:
        return found(state="ok", detail="in memory: nothing is kept")
    step = engine.step_of(url)
    if step is not None and step > engine.HEAD:
        detail = f"{shown} is at step {step}, and this Journeyman knows steps up to {engine.HEAD}"
        return found(state="broken", detail=detail, mend=f"install the newer Journeyman, as this was: {installing(None)}")
    state = "not there yet, made on first use" if step is None else f"schema step {step}"
    if step is not None and step < engine.HEAD:
        state += f", brought to {engine.HEAD} when it is opened next"
    return found(state="ok", detail=f"{shown}: {state}")


def _keys(environment: Mapping[str, str]) -> Iterator[HealthCheck]:
    for key, use in KEYS.items():
        yield HealthCheck(group="environment", name=key, state="ok" if environment.get(key) else "no", detail=use)


def _machine(environment: Mapping[str, str]) -> Iterator[HealthCheck]:
    from journeyman.optimizers.weights.sizing import HardwareProfile, detect_hardware

    found = partial(HealthCheck, group="machine", state="ok")
    hardware = detect_hardware(HardwareProfile.CPU_ONLY)
    yield found(name="cores", detail=f"{hardware.usable_cores:g}")
    threads = environment.get("OMP_NUM_THREADS")
    yield found(name="threads", detail=f"{threads} (OMP_NUM_THREADS)" if threads else "one a core")
    if hardware.ram is not None:
        yield found(name="memory", detail=f"{hardware.ram / 2**30:.1f} GiB")


# What `journeyman doctor` says of sandboxes: each is started, and tests itself.

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
    found = partial(HealthCheck, group="sandbox")
    levels: dict[str, Level | str] = {name: _level(name) for name in ("bubblewrap", "landlock")}
    installed = bubblewrap.installed()
    for name, level in levels.items():
        if isinstance(level, Level):
            yield found(
                name=name,
                state="ok",
                detail=f"{counted(len(level.holds), 'wall holds', 'walls hold')}: {', '.join(level.holds)}",
            )
        else:
            yield found(name=name, state="broken" if installed or name != "bubblewrap" else "missing", detail=level)
    working = next(((name, level) for name, level in levels.items() if isinstance(level, Level)), None)
    if working is None:
        mend = "see above; or the code service of another machine: --ptc-url http://…"
        yield found(name="used", state="missing", detail="code that agents write cannot be run here", mend=mend)
        return
    name, level = working
    if installed:
        yield found(name="used", state="ok", detail=name if name == "bubblewrap" else f"{name}, the second choice")
    else:
        # What one command brings is not fallen back from.
        yield found(name="used", state="missing", detail="none", mend="install bubblewrap, or say --sandbox landlock")
    for wall in level.lacks:
        yield found(name=wall, state="no", detail=f"not to be had by {name} here", mend=MENDS.get(wall, ""))
    languages = [name for name, language in LANGUAGES.items() if _is_there(language)]
    yield found(name="languages", state="ok", detail=", ".join(languages))


def _level(name: str) -> Level | str:
    """What it measured when it was started, or why it did not start and what to do."""

    async def measured() -> Level:
        async with started(name) as box:
            return box.level

    try:
        return asyncio.run(measured())
    except SandboxError as error:
        return str(error)


def _is_there(language: Language) -> bool:
    if language.kind == "pytest":
        return find_spec("pytest") is not None
    return not language.commands or any(shutil.which(command[0]) for command in language.commands)
