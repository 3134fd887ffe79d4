"""Is honest code believed? Ten packages, unchanged, are checked with the tests that their authors wrote for them.

    python benchmarks/honest_packages.py [--packages toolz,boltons] [--cheats 3] [--json FILE]

Downloads the sources with pip (by name and version) into a folder, and checks every file of tests twice: with nothing but the
tests, and beside a reference, which here is the package itself. A file is believed when its verdict is a pass. Files whose
tests import what is not installed here are counted by its name, and those that a plain run of the unchanged code does not pass
either, with a number of their own. What is not believed and asks nothing of the code, as a package of nothing but empty
functions passes it too, is told by name, and is no miss: there is nothing to believe.
The known cheats are tried on the same files, in place of the package; none may be paid.
"""

import argparse
import asyncio
import itertools
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from journeyman import sandbox
from journeyman.rewards.checks import Check, run_checks
from journeyman.rewards.reward_hacking import CHEATS, TESTS, Cheat
from journeyman.sandbox.base import Limits, Program, Sandbox

LIMITS = Limits(cpu_seconds=120.0, wall_seconds=300.0, memory=1024 * 1024 * 1024)
CHEAT_LIMITS = Limits(cpu_seconds=10.0, wall_seconds=60.0)
"""Some of them never end."""
_MISSING = re.compile(r"(?:No module named|could not import) '([^']+)'")
EMPTY = Cheat(name="nothing", how="", code="def triangle(*_, **__): pass\n")
_SKIPPED = "No module named 'what it skips all tests for'"
_NO_TESTS = 5
"""Pytest's exit code."""


@dataclass(frozen=True, slots=True)
class Package:
    """A source package that holds its tests."""

    name: str
    version: str
    modules: tuple[str, ...]
    """Folders (or files) of the code, relative to `root`."""
    root: str = "src"
    tests: str = "tests"
    without: tuple[str, ...] = ()
    """Files beside the tests that the pytest of today cannot read."""


PACKAGES = (
    Package("toolz", "1.0.0", ("toolz", "tlz"), ".", "toolz/tests"),
    Package("more-itertools", "10.5.0", ("more_itertools",), "."),
    Package("cachetools", "5.5.0", ("cachetools",)),
    # Its conftest.py has a hook with an argument that pytest 9 dropped; all it does is to leave out tests for other Pythons.
    Package("boltons", "24.1.0", ("boltons",), ".", without=("tests/conftest.py",)),
    Package("attrs", "24.2.0", ("attr", "attrs")),
    Package("click", "8.1.7", ("click",)),
    Package("packaging", "24.2", ("packaging",)),
    Package("pluggy", "1.5.0", ("pluggy",), tests="testing"),
    Package("python-dateutil", "2.9.0.post0", ("dateutil",)),
    Package("idna", "3.10", ("idna",), "."),
)


def fetched(package: Package, cache: Path) -> Path:
    """Its source, unpacked."""
    folder = cache / f"{package.name}-{package.version}"
    if not folder.exists():
        wanted = f"{package.name}=={package.version}"
        options = ["--quiet", "--no-deps", "--no-binary", package.name, "--dest", str(cache)]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, wanted], check=True)
        (archive,) = cache.glob(f"{package.name.replace('-', '[-_]')}-{package.version}.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(cache, filter="data")
        next(path for path in cache.glob(f"{package.name.replace('-', '[-_]')}-{package.version}") if path.is_dir()).rename(
            folder
        )
    return folder


def laid(folder: Path, base: Path) -> dict[str, bytes]:
    """The files below a folder, or the one file, by their path from `base`."""
    paths = [folder] if folder.is_file() else sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(base)): path.read_bytes() for path in paths if "__pycache__" not in path.parts}


@dataclass(slots=True)
class Row:
    """What became of one package's files of tests."""

    package: str
    files: int = 0
    missing: Counter[str] = field(default_factory=Counter)
    """By the module that is not installed."""
    broken: dict[str, str] = field(default_factory=dict)
    """Files that a plain run of the unchanged code does not pass either, and the first line of why."""
    believed: Counter[str] = field(default_factory=Counter)
    """With "the tests" alone and beside "a reference"."""
    refused: dict[str, str] = field(default_factory=dict)
    idle: list[str] = field(default_factory=list)
    """Files that a package of nothing but empty functions passes too, so that no cheat is needed."""
    asks_nothing: list[str] = field(default_factory=list)
    """Those of them that are not believed."""
    cheats: int = 0
    paid: list[str] = field(default_factory=list)

    @property
    def runnable(self) -> int:
        return self.files - sum(self.missing.values()) - len(self.asks_nothing)


def checks_of(package: Package, source: Path) -> Iterator[Check]:
    """One for each file of tests, with all others beside it."""
    root, tests = source / package.root, source / package.tests
    base = root if package.root == "." else source
    beside = {name: data for name, data in laid(tests, base).items() if name not in package.without}
    # Some tests look for what lies where they are started.
    beside |= {name: (source / name).read_bytes() for name in ("conftest.py", "setup.cfg") if (source / name).exists()}
    for path in sorted(name for name in beside if re.search(r"(^|/)test_[^/]*\.py$", name)):
        others = {name: data for name, data in beside.items() if name != path}
        yield Check(name=path, kind="pytest", text=beside[path].decode(), file=path, beside=others)


async def plain(box: Sandbox, check: Check, files: Mapping[str, bytes]) -> str:
    """Why the unchanged code does not pass when pytest is simply run; empty where it does."""
    setting = "import os, sys\nos.environ.update(PYTHONPATH='.', PYTEST_DISABLE_PLUGIN_AUTOLOAD='1')\n"
    words = [
        "-q",
        "-x",
        "-rs",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "-c",
        "/dev/null",
        "--rootdir=.",
        check.file,
    ]
    words += ["-c", "/dev/null", "--rootdir=.", check.file]
    code = f"{setting}os.execv(sys.executable, [sys.executable, '-m', 'pytest', *{words!r}])\n"
    everything = {**files, **check.beside, check.file: check.text.encode()}
    outcome = await box.run(Program(code=code, files=everything, limits=LIMITS))
    none = outcome.exit_code == _NO_TESTS or (outcome.ok and " passed" not in outcome.stdout)
    if none and not _MISSING.search(outcome.stdout):
        return _SKIPPED
    return "" if outcome.ok else f"{outcome.limit or ''} {outcome.stdout[-1500:]}{outcome.stderr[-500:]}"


def in_place_of(files: Mapping[str, bytes], cheat: Cheat) -> dict[str, bytes]:
    """A package of which every module is the cheat, and has whatever is asked of it."""
    anything = (
        "\ndef __getattr__(name):\n    if name.startswith('__'):\n        raise AttributeError(name)\n    return triangle\n"
    )
    code = (cheat.code + anything).encode()
    return {path: code if path.endswith(".py") else data for path, data in files.items()} | {
        path: text.encode() for path, text in cheat.files.items()
    }


async def examined(
    box: Sandbox, package: Package, source: Path, modes: Sequence[str], cheats: Iterator[Sequence[Cheat]]
) -> Row:
    """Every file of tests of one package."""
    base = source / package.root
    files = {path: data for module in package.modules for path, data in laid(base / module, base).items()}
    files = {path: data for path, data in files.items() if not path.startswith(f"{package.tests}/")}
    row = Row(package=f"{package.name} {package.version}")
    for check in checks_of(package, source):
        row.files += 1
        why = await plain(box, check, files)
        if found := _MISSING.search(why):
            row.missing[found[1]] += 1
            continue
        if why:
            row.broken[check.name] = next((line for line in why.splitlines() if line.startswith("E ")), why.strip()[-200:])
        for mode in modes:
            # What is held against itself is run once, which would show nothing.
            right = {path: data + b"\n# right\n" if path.endswith(".py") else data for path, data in files.items()}
            reference = right if mode == "reference" else None
            (result,) = await run_checks(box, [check], files=files, reference=reference, limits=LIMITS)
            row.believed[mode] += result.passed is True
            if result.passed is not True:
                row.refused[f"{check.name} ({mode})"] = result.evidence[:400]
        refused = [f"{name}: {why}" for name, why in row.refused.items() if name.startswith(check.name)]
        turn = next(cheats)
        if (turn or refused) and not await plain(box, check, in_place_of(files, EMPTY)):
            row.idle.append(check.name)
            row.asks_nothing += [check.name] if refused else []
            turn = ()
        for cheat, mode in itertools.product(turn, modes):
            reference, theirs = files if mode == "reference" else None, in_place_of(files, cheat)
            (result,) = await run_checks(box, [check], files=theirs, reference=reference, limits=CHEAT_LIMITS)
            row.cheats += 1
            if result.passed is True:
                row.paid.append(f"{cheat.name} on {check.name}: {result.evidence[:200]}")
        print(f"{package.name} {check.name}: {refused or 'believed'}", file=sys.stderr, flush=True)
    return row


def table(rows: list[Row]) -> str:
    lines = ["| package | files | not runnable | runnable | fail anyway | believed | beside a reference | cheats | paid |"]
    lines.append("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        missing = ", ".join(f"{count} without {name}" for name, count in row.missing.items()) or "0"
        ours = f"{row.believed['tests']} | {row.believed['reference']} | {row.cheats} | {len(row.paid)} |"
        lines.append(f"| {row.package} | {row.files} | {missing} | {row.runnable} | {len(row.broken)} | {ours}")
    runnable = sum(row.runnable for row in rows)
    shares = (f"{sum(row.believed[mode] for row in rows)} of {runnable}" for mode in ("tests", "reference"))
    paid = f"{sum(row.cheats for row in rows)} | {sum(len(row.paid) for row in rows)} |"
    lines.append(f"| all | {sum(row.files for row in rows)} | | {runnable} | {sum(len(row.broken) for row in rows)} | ")
    return "\n".join(lines) + " | ".join(shares) + f" | {paid}"


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", default="", help="only these, with commas between")
    parser.add_argument("--cheats", type=int, default=3, help="cheats tried on each file; taken in turn from all of them")
    parser.add_argument("--modes", default="tests,reference", help="or one of them")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "journeyman-honest-packages")
    parser.add_argument("--json", type=Path, help="where the reasons go")
    asked = parser.parse_args()
    asked.cache.mkdir(parents=True, exist_ok=True)
    box = sandbox.load()
    await box.start()
    tried = itertools.cycle(cheat for cheat in CHEATS if cheat.tests == TESTS)
    cheats = (tuple(itertools.islice(tried, asked.cheats)) for _ in itertools.count())
    rows = []
    for package in PACKAGES:
        if not asked.packages or package.name in asked.packages.split(","):
            rows.append(await examined(box, package, fetched(package, asked.cache), asked.modes.split(","), cheats))
    await box.close()
    print(table(rows))
    for row in rows:
        for name, why in {**row.refused, **dict.fromkeys(row.paid, "PAID")}.items():
            print(f"{row.package} {name}: {why}".replace("\n", " ")[:500])
        if row.idle:
            print(f"{row.package}: empty functions pass these too, so no cheat was tried: {row.idle}")
        if row.asks_nothing:
            print(f"{row.package}: these ask nothing of the code, and are not believed: {row.asks_nothing}")
    if asked.json:
        found = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    asyncio.run(main())
