"""What `journeyman doctor` looks at. Nothing is changed, made or imported that is not needed to look."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit
from urllib.request import url2pathname

from journeyman.errors import JourneymanError
from journeyman.models import embedded_sizes

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
class Check:
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


def examine(start: Path | None = None, environment: Mapping[str, str] | None = None) -> list[Check]:
    """Look at everything. `start` is where the project is searched from, else the working folder."""
    told = os.environ if environment is None else environment
    return [*_packages(), *_weights(), *_servers(told), *_project(start, told), *_keys(told), *_machine(told)]


def _packages() -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    least = ".".join(map(str, PYTHON))
    old = sys.version_info < PYTHON
    yield Check(
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
        yield Check(group="core", name="journeyman", state="missing", mend="pip install journeyman", needed=True)
        return
    yield Check(group="core", name="journeyman", state="ok", detail=own, needed=True)
    found = [match for line in requirements if (match := _REQUIREMENT.match(line))]
    for match in sorted(found, key=lambda match: (match["extra"] or "", match["name"])):
        yield package(match["name"], match["least"], match["extra"])


def package(name: str, least: str | None, extra: str | None) -> Check:
    """Whether a package is installed, and new enough."""
    group = f"extra: {extra}" if extra else "core"
    mend = installing(extra)
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(group=group, name=name, state="missing", mend=mend, needed=extra is None)
    if least and _numbers(version) < _numbers(least):
        detail = f"{version}, and {least} or newer is needed"
        return Check(group=group, name=name, state="broken", detail=detail, mend=mend, needed=extra is None)
    return Check(group=group, name=name, state="ok", detail=version, needed=extra is None)


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


def _weights() -> Iterator[Check]:
    if sizes := embedded_sizes():
        yield Check(group="embedded model", name="weights", state="ok", detail=", ".join(sizes))
    else:
        mend = "install journeyman again; to train them: python -m journeyman.pretrain"
        yield Check(group="embedded model", name="weights", state="missing", mend=mend)


def _servers(environment: Mapping[str, str]) -> Iterator[Check]:
    for name, why in SERVERS.items():
        path = shutil.which(name, path=environment.get("PATH"))
        yield Check(group="serving", name=name, state="ok" if path else "no", detail=path or why)


def _project(start: Path | None, environment: Mapping[str, str]) -> Iterator[Check]:
    try:
        from journeyman import config

        project = config.load(start, environment)
        detail = str(project.file) if project.file else f"no {config.FILE}, so every setting has its default"
        yield Check(group="project", name="settings", state="ok", detail=detail, needed=True)
        yield _store(project.store_url)
    except JourneymanError as error:
        yield Check(group="project", name="settings", state="broken", detail=str(error), needed=True)
    except ImportError as error:
        detail = f"they cannot be looked at: {error}"
        yield Check(group="project", name="settings and store", state="broken", detail=detail, needed=True)


def _store(url: str) -> Check:
    from journeyman.stores import MEMORY, schema
    from journeyman.stores.urls import redacted

    shown = redacted(url)
    if url == MEMORY:
        return Check(group="project", name="store", state="ok", detail="in memory: nothing is kept", needed=True)
    try:
        step = schema.step_of(url)
    except JourneymanError as error:
        return Check(group="project", name="store", state="broken", detail=str(error), needed=True)
    if step is not None and step > schema.HEAD:
        detail = f"{shown} is at step {step}, and this Journeyman knows steps up to {schema.HEAD}"
        mend = "pip install --upgrade journeyman"
        return Check(group="project", name="store", state="broken", detail=detail, mend=mend, needed=True)
    known = "not there yet, made on first use" if step is None else f"schema step {step}"
    if step is not None and step < schema.HEAD:
        known += f", brought to {schema.HEAD} when it is opened next"
    return Check(group="project", name="store", state="ok", detail=f"{shown}: {known}", needed=True)


def _keys(environment: Mapping[str, str]) -> Iterator[Check]:
    for key, use in KEYS.items():
        yield Check(group="environment", name=key, state="ok" if environment.get(key) else "no", detail=use)


def _machine(environment: Mapping[str, str]) -> Iterator[Check]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    yield Check(group="machine", name="cores", state="ok", detail=str(cores))
    threads = environment.get("OMP_NUM_THREADS")
    yield Check(group="machine", name="threads", state="ok", detail=f"{threads} (OMP_NUM_THREADS)" if threads else "one a core")
    if (memory := _memory()) is not None:
        yield Check(group="machine", name="memory", state="ok", detail=f"{memory / 2**30:.1f} GiB")


def _memory() -> int | None:
    """Bytes that this process may use, as far as the system says: a container's limit counts."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = Path("/sys/fs/cgroup/memory.max")
    told = limit.read_text().strip() if limit.is_file() else ""
    return min(physical, int(told)) if told.isdigit() else physical
