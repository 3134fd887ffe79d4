"""Environments: the packages that the code of a repository needs, in a Python of their own that sandboxes only read.

It is a virtual environment, made once and named by what is in it. The repository's own package is not, nor is anything of
Journeyman's. Nothing of the repository is run to make one: what it needs is read from its files, and pip installs that.
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.io.atomic import write_json
from journeyman.io.files import locked, read_object
from journeyman.sandbox.base import Interpreter

RUNNERS = ("pytest", "coverage")
"""What every environment has: what runs the tests, and says which lines they come by."""
EXTRAS = ("test", "tests", "testing", "dev", "develop")
"""Extras and groups in which packages name what their tests need."""
REQUIREMENTS = (
    "requirements.txt",
    "requirements-dev.txt",
    "requirements-test.txt",
    "requirements-tests.txt",
    "test-requirements.txt",
    "requirements/base.txt",
    "requirements/dev.txt",
    "requirements/test.txt",
    "requirements/tests.txt",
    "tests/requirements.txt",
)
_BUILDS = re.compile(
    r"^(sphinx|furo|tox|nox|pre-commit|black|mypy|ruff|flake8|twine|build|wheel|build-and-inspect)", re.IGNORECASE
)
"""What no test needs, and takes long to install."""
_INSTALL_SECONDS = 1800


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualEnvironment:
    """One that is there."""

    digest: str
    """16 hex digits made of its Python and of the name and version of each package."""
    folder: Path
    interpreter: Interpreter
    python: str
    """Such as 3.11.7."""
    distributions: tuple[str, ...]
    """`name==version` of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageNeeds:
    """What a repository says of itself."""

    name: str
    version: str
    requirements: tuple[str, ...]
    license: str = ""


def needs_of(files: Mapping[str, bytes], fallback: str) -> PackageNeeds:
    """What a repository needs to be tested, read from its pyproject.toml, setup.cfg, PKG-INFO and files of requirements.

    Args:
        files: By relative path.
        fallback: Its name, where it says none.

    Raises:
        InputError: Its pyproject.toml is no TOML.
    """
    project = _pyproject(files)
    told = project.get("project", {})
    info = Parser().parsestr(_text(files, "PKG-INFO").partition("\n\n")[0])
    setup = _setup(_text(files, "setup.cfg"))
    name = str(told.get("name") or info.get("Name") or setup.get("name") or fallback)
    found = [*told.get("dependencies", ()), *setup.get("install_requires", ())]
    optional: Mapping[str, Sequence[Any]] = {
        **setup.get("extras", {}),
        **told.get("optional-dependencies", {}),
        **project.get("dependency-groups", {}),
    }
    for extra in EXTRAS:
        found += _group(optional, extra)
    for wanted in info.get_all("Requires-Dist", ()):
        requirement, _, marker = wanted.partition(";")
        of_extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        if of_extra is None or of_extra[1] in EXTRAS:
            rest = re.sub(r"\s*(and\s+)?extra\s*==\s*['\"][^'\"]+['\"]", "", marker).strip()
            found.append(f"{requirement.strip()}{f' ; {rest}' if rest else ''}")
    for path in REQUIREMENTS:
        found += [line.partition(" #")[0].strip() for line in _text(files, path).splitlines()]
    wishes = (each for each in found if isinstance(each, str) and re.match(r"[A-Za-z0-9]", each) and not _BUILDS.match(each))
    own = _normal(name)
    return PackageNeeds(
        name=name,
        version=str(told.get("version") or info.get("Version") or setup.get("version") or "0"),
        requirements=tuple(dict.fromkeys(each for each in wishes if _normal(re.split(r"[\s\[<>=!~;@]", each)[0]) != own)),
        license=_license(told, str(info.get("License-Expression") or info.get("License") or setup.get("license") or "")),
    )


def build(
    folder: Path,
    needs: PackageNeeds,
    *,
    extra: Sequence[str] = (),
    python: str = "",
    said: Callable[[str], None] = lambda _: None,
) -> VirtualEnvironment:
    """The environment with what a repository needs; the one that is there, where one with the same wishes was made.

    Args:
        folder: Where environments are kept.
        extra: What it needs besides, as pip takes it.
        python: Another Python than this, as a path or a name on the path.
        said: Told what is done.

    Raises:
        InputError: There is no such Python, or something cannot be installed; pip's last line is said.
    """
    executable = _found_python(python)
    wanted = sorted({*RUNNERS, *needs.requirements, *extra})
    wish = hashlib.sha256(json.dumps([executable, needs.name, needs.version, wanted]).encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / f"{wish}.lock", patience=_INSTALL_SECONDS, busy=f"another process makes this environment in {folder}"):
        known = folder / f"{wish}.json"
        if known.exists() and (kept := _kept(folder / str(read_object(known).get("digest")))) is not None:
            return kept
        said(f"installing {len(wanted)} packages for {needs.name}: {', '.join(wanted)[:200]}")
        part = folder / f"{wish}.part"
        shutil.rmtree(part, ignore_errors=True)
        made = _made(part, executable, wanted, needs)
        final = folder / made
        if final.exists():
            shutil.rmtree(part)
        else:
            # A virtual environment may be moved: only its scripts, which nothing here calls, hold its path.
            part.rename(final)
        write_json(known, {"digest": made, "name": needs.name, "wanted": wanted})
    return opened(folder, made)


def opened(folder: Path, digest: str) -> VirtualEnvironment:
    """One that was made here.

    Raises:
        InputError: It was not.
    """
    found = _kept(folder / digest) if re.fullmatch(r"[0-9a-f]{16}", digest) else None
    if found is None:
        raise InputError(f"there is no environment {digest} in {folder}; `journeyman tasks environment build REPO` makes it")
    return found


def interpreter_of(executable: str) -> tuple[Interpreter, str]:
    """What a Python says of itself, and its version."""
    asked = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix, sys.version.split()[0]]))"
    done = subprocess.run([executable, "-I", "-c", asked], capture_output=True, text=True, timeout=60, check=True)
    path, prefix, base, version = json.loads(done.stdout)
    return Interpreter(executable=path, prefix=prefix, base_prefix=base), version


def _made(part: Path, executable: str, wanted: Iterable[str], needs: PackageNeeds) -> str:
    """A virtual environment with packages; its digest."""
    _run([executable, "-m", "venv", "--without-pip", str(part)], "a virtual environment could not be made")
    python = str(part / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--no-input", *wanted], f"what {needs.name} needs could not be installed")
    listed = _run([*pip, "list", "--format=freeze"], "pip could not list what it installed")
    distributions = sorted(line.strip() for line in listed.splitlines() if "==" in line)
    _stand_in(python, needs)
    interpreter, version = interpreter_of(python)
    name = [interpreter.base_prefix, version, needs.name, needs.version, distributions]
    digest = hashlib.sha256(json.dumps(name).encode()).hexdigest()[:16]
    write_json(
        part / "environment.json", {"digest": digest, "name": needs.name, "python": version, "distributions": distributions}
    )
    return digest


def _stand_in(python: str, needs: PackageNeeds) -> None:
    """The package's metadata without its code, for code that asks which version of itself is installed."""
    asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(_run([python, "-I", "-c", asked], "the environment's Python does not run").strip())
    folder = packages / f"{_normal(needs.name).replace('-', '_')}-{needs.version}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {needs.name}\nVersion: {needs.version}\n")


def _run(words: Sequence[str], failed: str) -> str:
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired:
        raise InputError(f"{failed}: it took more than {_INSTALL_SECONDS // 60} minutes") from None
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if "WARNING" not in line and "notice" not in line]
        told = next(
            (line for line in lines if line.startswith("ERROR")), lines[-1] if lines else f"exit code {done.returncode}"
        )
        raise InputError(f"{failed}: {told.removeprefix('ERROR: ')}")
    return done.stdout


def _kept(place: Path) -> VirtualEnvironment | None:
    if not (place / "environment.json").exists():
        return None
    told = read_object(place / "environment.json")
    interpreter, version = interpreter_of(str(place / "bin/python"))
    return VirtualEnvironment(
        digest=str(told["digest"]),
        folder=place,
        interpreter=interpreter,
        python=version,
        distributions=tuple(told["distributions"]),
    )


def _found_python(python: str) -> str:
    """The base Python of this one, or another."""
    if not python:
        own = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
        return str(own) if own.exists() else sys.executable
    name = f"python{python}" if re.fullmatch(r"3\.\d+", python) else python
    if (found := shutil.which(name)) is None:
        raise InputError(f"there is no {name} on the path; install it, or leave --python out for {sys.version.split()[0]}")
    return found


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _text(files: Mapping[str, bytes], path: str) -> str:
    return files.get(path, b"").decode("utf-8", errors="replace")


def _pyproject(files: Mapping[str, bytes]) -> dict[str, Any]:
    try:
        return tomllib.loads(_text(files, "pyproject.toml"))
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the repository's pyproject.toml is no TOML: {error}") from None


def _group(groups: Mapping[str, Sequence[Any]], name: str) -> list[str]:
    """The requirements of an extra or a dependency group, with those that it includes."""
    found = list[str]()
    for each in groups.get(name, ()):
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, Mapping) and (inner := str(each.get("include-group"))) != name:
            found += _group({key: value for key, value in groups.items() if key != name}, inner)
    return found


def _setup(text: str) -> dict[str, Any]:
    """What setup.cfg declares."""
    parser = ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except ConfigError:
        return {}
    get = parser.get
    lines: Callable[[str], list[str]] = lambda value: [line.strip() for line in value.splitlines() if line.strip()]  # noqa: E731
    extras = (
        {key: lines(value) for key, value in parser.items("options.extras_require")}
        if parser.has_section("options.extras_require")
        else {}
    )
    return {
        "name": get("metadata", "name", fallback=""),
        "version": _plain(get("metadata", "version", fallback="")),
        "license": get("metadata", "license", fallback=""),
        "install_requires": lines(get("options", "install_requires", fallback="")),
        "extras": extras,
    }


def _plain(version: str) -> str:
    """`attr: module.__version__` is known only to whoever runs it."""
    return version if re.fullmatch(r"[0-9][\w.+!-]*", version) else ""


def _license(told: Mapping[str, Any], other: str) -> str:
    declared = told.get("license")
    if isinstance(declared, Mapping):
        declared = str(declared.get("text") or "").strip().splitlines()[:1]
        return (declared or [other])[0]
    return str(declared or other.strip().partition("\n")[0])
