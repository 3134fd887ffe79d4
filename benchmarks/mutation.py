"""Breaks lines that stood elsewhere before, in both versions alike, and counts how often the tests of each notice.

    python -m benchmarks.mutation                                     # 500 mutants, seed 0
    python -m benchmarks.mutation --mutants 50 --seed 3 --json
    python -m benchmarks.mutation --before 10cfb6f --after HEAD --packages core io

What is changed, and where, is drawn by `benchmarks.mutants`: the same change to the same line, before and after.

Both versions are taken from the history into a scratch folder. Their cheap tests (`unit`, or what is not `slow`) are run once
with coverage, so that a mutant costs only the tests that run its line: those first that run little else, in a forked child of a
process that has imported what is slow, and nothing of the package. A test that fails counts where it passes without the mutant.
Where one version kills a mutant by those tests and the other does not, all tests of the other that run the line are tried, and
then, whatever their mark but `nightly`, those with the name of the tests that killed it. Tests are known to run a line only in
their own process.

A change that no test could notice survives on both sides, and so may one that only the sixteenth test would find: the shares
are low, alike. The exit code is 1 when fewer are killed after than before.
"""

import argparse
import ast
import atexit
import hashlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Literal

import pytest

from benchmarks.mutants import Mutant, Place, mutants

ROOT = Path(__file__).parents[1]
BEFORE = "10cfb6f"
"""The last version whose modules and tests stood where they had grown."""
PACKAGES = ("core", "stats", "experiments", "io")
TESTS = 15
SECONDS = 10.0
"""What the tests of one mutant may take together, as measured without it."""
ALL_SECONDS = 120.0
"""The same where the versions do not agree."""
MEMORY = 6 * 2**30
"""Bytes for a process of tests: a loop that never ends may also fill a list."""
SLOW_IMPORTS = (
    *("_hypothesis_pytestplugin", "anyio.pytest_plugin", "coverage", "hypothesis", "pytest_asyncio.plugin"),
    *("aiohttp", "alembic", "click", "filelock", "h11", "jinja2", "numpy", "openai", "pydantic", "pydantic_settings"),
    *("rich.console", "rich.table", "safetensors.numpy", "scipy.optimize", "scipy.stats", "sklearn.linear_model"),
    *("sqlalchemy.dialects.sqlite", "sqlalchemy.orm", "starlette.applications", "torch", "uvicorn", "yaml"),
)

Verdict = Literal["killed", "survived", "not covered"]


# Tests, run in forked children.


@dataclass(slots=True, eq=False)
class Chosen:
    """Runs these tests alone, and remembers which failed."""

    ids: Sequence[str] = ()
    names: frozenset[str] = frozenset()
    failed: list[str] = field(default_factory=list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item], config: pytest.Config) -> None:
        if self.names:
            items[:] = [item for item in items if getattr(item, "originalname", "") in self.names]
        else:
            rank = {name: at for at, name in enumerate(self.ids)}
            items[:] = sorted((item for item in items if item.nodeid in rank), key=lambda item: rank[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.nodeid not in self.failed:
            self.failed.append(report.nodeid)


@dataclass(frozen=True, slots=True)
class Steady:
    """Examples of properties are the same each time, and a failure is not made smaller."""

    examples: int | None = None
    """How many; as many as the version has them where nothing is said."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        from hypothesis import Phase, settings

        phases = (Phase.explicit, Phase.generate)
        most = self.examples or settings().max_examples
        settings.register_profile("mutation", settings(), derandomize=True, database=None, phases=phases, max_examples=most)
        settings.load_profile("mutation")


class Recorder:
    """Which test runs which lines, how long it takes and whether it passes. A shared fixture counts for all that use it."""

    def __init__(self, files: Sequence[str], scratch: Path) -> None:
        from coverage import Coverage

        self.files = files
        self.coverage = Coverage(data_file=str(scratch / "coverage"), include=list(files), config_file=False)
        self.seconds: dict[str, float] = defaultdict(float)
        self.failed: set[str] = set()
        self.fixtures: dict[str, list[str]] = {}
        self.context = ""

    @contextmanager
    def within(self, context: str) -> Iterator[None]:
        outer, self.context = self.context, context
        self.coverage.switch_context(context)
        try:
            yield
        finally:
            self.context = outer
            self.coverage.switch_context(outer)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.fixtures[item.nodeid] = list(getattr(item, "fixturenames", ()))
        with self.within(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: "pytest.FixtureDef[Any]") -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        with self.within(f"fixture {fixturedef.baseid} {fixturedef.argname}"):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def told(self, tree: Path) -> dict[str, Any]:
        data, lines = self.coverage.get_data(), {}
        for path in self.files:
            found = data.contexts_by_lineno(path)
            lines[str(Path(path).relative_to(tree))] = {
                line: sorted(filter(None, contexts)) for line, contexts in found.items()
            }
        return {"lines": lines, "seconds": self.seconds, "failed": sorted(self.failed), "fixtures": self.fixtures}


def apart(work: Callable[[], object], result: Path, *, cpu: float, wall: float) -> Any | None:
    """What a function returns in a forked child; `None` where it did not end in time, or not well."""
    result.unlink(missing_ok=True)
    pid = os.fork()
    if not pid:
        with suppress(BaseException):
            os.setsid()
            # What this process would take away at its end is still needed.
            atexit._clear()
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu), int(cpu) + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nothing, descriptor)
            written = json.dumps(work())
            result.write_text(written, encoding="utf-8")
        # Servers that tests share end when the process does.
        atexit._run_exitfuncs()
        os._exit(0)
    until = time.monotonic() + wall
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return json.loads(result.read_text(encoding="utf-8")) if result.exists() else None


class Version:
    """One version of the project in a folder of its own, and what its tests do."""

    def __init__(self, revision: str, scratch: Path) -> None:
        self.revision, self.scratch, self.tree = revision, scratch, scratch / "tree"
        self.content = hashlib.sha256(_git("rev-parse", f"{revision}:src", f"{revision}:tests")).hexdigest()[:16]
        with tarfile.open(fileobj=BytesIO(_git("archive", revision))) as archive:
            archive.extractall(self.tree, filter="data")
        # A mutant's own compiled form is never kept: the time of its file is new each time.
        subprocess.run([sys.executable, "-m", "compileall", "-q", "src", "tests"], cwd=self.tree, check=True)
        marked = '"unit:' in (self.tree / "pyproject.toml").read_text()
        self.marks, self.tried = ("unit", "not nightly") if marked else ("not slow", "")
        self.covering: dict[str, dict[int, set[str]]] = {}
        self.seconds: dict[str, float] = {}
        self.breadth: Counter[str] = Counter()
        self.left_out: set[str] = set()
        self.controls: dict[tuple[str, ...], list[str]] = {}
        self._times = count(2**31 - 10**7)

    def pytest(self, *arguments: str, plugin: object, examples: int | None = None) -> int:
        """Run in a child; the tests and what they start see this version alone."""
        source = str(self.tree / "src")
        os.chdir(self.tree)
        sys.path.insert(0, source)
        os.environ.update(PYTHONPATH=source, PYTHONDONTWRITEBYTECODE="1")
        common = ["--rootdir", ".", "-p", "no:cacheprovider", "-p", "no:xdist", "--assert=plain", "--tb=no", "--no-header"]
        return pytest.main([*common, f"--basetemp={self.scratch / 'tmp'}", *arguments], plugins=[plugin, Steady(examples)])

    def measure(self, files: Iterable[str], kept: Path | None) -> None:
        """Learn who runs which lines of these files: run the cheap tests once, or read it where it was kept."""
        paths = [str(self.tree / path) for path in sorted(files)]
        file = (kept or self.scratch) / f"{self.content}.json"

        def work() -> bool:
            recorder = Recorder(paths, self.scratch)
            recorder.coverage.start()
            self.pytest("-m", self.marks, "tests", plugin=recorder, examples=10)
            recorder.coverage.stop()
            file.write_text(json.dumps(recorder.told(self.tree)), encoding="utf-8")
            return True

        if not file.exists() and not apart(work, self.scratch / "result", cpu=3600, wall=7200):
            raise RuntimeError(f"the tests of {self.revision} did not end")
        told = json.loads(file.read_text(encoding="utf-8"))
        self.seconds, self.left_out = told["seconds"], set(told["failed"])
        users: dict[str, set[str]] = defaultdict(set)
        for test, names in told["fixtures"].items():
            for name in names:
                users[name].add(test)
        for path, lines in told["lines"].items():
            self.covering[path] = {int(line): self._tests(contexts, users) for line, contexts in lines.items()}
        self.breadth.update(test for lines in self.covering.values() for tests in lines.values() for test in tests)
        one = min(self.breadth, key=lambda test: self.seconds[test])
        if self.failures([one]):
            raise RuntimeError(f"{one} of {self.revision} passed, and does not pass alone")

    def _tests(self, contexts: Iterable[str], users: Mapping[str, set[str]]) -> set[str]:
        found = set[str]()
        for context in contexts:
            if context.startswith("fixture "):
                _, base, name = context.split(" ")
                found |= {test for test in users[name] if test.startswith(base)}
            else:
                found.add(context)
        return found & self.seconds.keys() - self.left_out

    def choose(self, place: Place, *, many: int, seconds: float) -> list[str]:
        """The tests that run a line: first those that run little else, each function once before any of them again."""
        lines = self.covering[place.path]
        inside = Counter(test for line in place.function for test in lines.get(line, ()))
        covering = {test for line in place.lines for test in lines.get(line, ())} - self.left_out
        ranked = sorted(covering, key=lambda test: (-inside[test] / self.breadth[test], self.seconds[test], test))
        turns = Counter[str]()
        again: dict[str, int] = {}
        for test in ranked:
            again[test] = turns[_function(test)]
            turns[_function(test)] += 1
        chosen: list[str] = []
        for test in sorted(ranked, key=lambda test: again[test]):
            seconds -= self.seconds[test]
            if chosen and (seconds < 0 or len(chosen) == many):
                break
            chosen.append(test)
        order = {path: at for at, path in reversed(list(enumerate(map(_file, chosen))))}
        return sorted(chosen, key=lambda test: order[_file(test)])

    @contextmanager
    def changed(self, place: Place, text: str) -> Iterator[None]:
        path = self.tree / place.path
        source, stat = path.read_bytes(), path.stat()
        path.write_bytes(place.replaced(source, text))
        moment = next(self._times)
        os.utime(path, (moment, moment))
        try:
            yield
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def failures(self, tests: Sequence[str], *, all_of_them: bool = False) -> list[str]:
        """Which of these tests fail: the first, or all; the last one, where they do not end."""
        cpu = 15 + 4 * sum(self.seconds[test] for test in tests)
        return self._failures(Chosen(ids=tests), sorted({_file(test) for test in tests}), cpu, all_of_them=all_of_them)

    def _failures(self, chosen: Chosen, files: Sequence[str], cpu: float, *, all_of_them: bool) -> list[str]:
        def work() -> list[str]:
            code = self.pytest("-m", self.tried, *([] if all_of_them else ["-x"]), *files, plugin=chosen)
            if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED) and not chosen.failed:
                raise RuntimeError("nothing of the package can be imported")
            return chosen.failed

        failed = apart(work, self.scratch / "result", cpu=cpu, wall=4 * cpu)
        return [chosen.ids[-1] if chosen.ids else files[-1]] if failed is None else list(failed)

    def killers(self, mutant: Mutant, place: Place, tests: list[str], *, all_of_them: bool = False) -> list[str]:
        """Which tests notice it, and pass without it."""
        while tests:
            with self.changed(place, mutant.text):
                failed = self.failures(tests, all_of_them=all_of_them)
            if not failed:
                return []
            last = max((at for at, test in enumerate(tests) if test in failed), default=len(tests) - 1)
            control = tuple(tests if all_of_them else tests[: last + 1])
            if control not in self.controls:
                self.controls[control] = self.failures(control, all_of_them=True)
            anyway = set(self.controls[control])
            if not anyway & set(failed):
                return failed
            self.left_out |= anyway
            tests = [test for test in tests if test not in anyway]
        return []

    def namesakes(self, mutant: Mutant, place: Place, names: frozenset[str]) -> list[str]:
        """Which tests of these names notice it, whatever makes them dear."""
        files = [path for path in sorted((self.tree / "tests").rglob("test_*.py")) if names & self._names(path)]
        paths = [str(path.relative_to(self.tree)) for path in files]
        if not paths:
            return []
        with self.changed(place, mutant.text):
            failed = self._failures(Chosen(names=names), paths, ALL_SECONDS, all_of_them=True)
        if failed:
            anyway = self._failures(Chosen(names=names), paths, ALL_SECONDS, all_of_them=True)
            failed = [test for test in failed if test not in anyway]
        return failed

    def _names(self, path: Path) -> set[str]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def _file(test: str) -> str:
    return test.partition("::")[0]


def _function(test: str) -> str:
    return test.partition("[")[0]


def _name(test: str) -> str:
    return _function(test).rpartition("::")[2]


# What became of them.


@dataclass(slots=True, kw_only=True)
class Judged:
    """What became of one mutant, before and after."""

    mutant: Mutant
    verdicts: list[Verdict]
    killers: list[list[str]]
    dear: list[bool] = field(default_factory=lambda: [False, False])
    """Whether it took tests that are not cheap."""

    @property
    def killed(self) -> tuple[bool, bool]:
        return self.verdicts[0] == "killed", self.verdicts[1] == "killed"

    def as_json(self) -> dict[str, object]:
        both = zip(("before", "after"), self.mutant.places, self.verdicts, self.killers, self.dear, strict=True)
        sides = {
            side: {"line": f"{place.path}:{place.start[0]}", "verdict": verdict, "killers": killers, "dear": dear}
            for side, place, verdict, killers, dear in both
        }
        return {"was": self.mutant.was, "now": self.mutant.text, "package": self.mutant.package, **sides}


def judge(mutant: Mutant, versions: Sequence[Version]) -> Judged:
    """Try it with the most fitting tests of each version."""
    verdicts, killers = list[Verdict](), list[list[str]]()
    for version, place in zip(versions, mutant.places, strict=True):
        tests = version.choose(place, many=TESTS, seconds=SECONDS)
        failed = version.killers(mutant, place, tests)
        verdicts.append("killed" if failed else "survived" if tests else "not covered")
        killers.append(failed)
    return Judged(mutant=mutant, verdicts=verdicts, killers=killers)


def settle(judged: Judged, versions: Sequence[Version]) -> None:
    """Where one version alone killed it: all that the other has, and the tests by the names of those that did."""
    missed = judged.killed.index(False)
    version, other = versions[missed], versions[1 - missed]
    mutant, place = judged.mutant, judged.mutant.places[missed]
    failed = version.killers(mutant, place, version.choose(place, many=sys.maxsize, seconds=ALL_SECONDS))
    if not failed:
        elsewhere = mutant.places[1 - missed]
        tests = other.choose(elsewhere, many=TESTS, seconds=SECONDS)
        all_killers = other.killers(mutant, elsewhere, tests, all_of_them=True) or judged.killers[1 - missed]
        judged.killers[1 - missed] = all_killers
        failed = version.namesakes(mutant, place, frozenset(map(_name, all_killers)))
        judged.dear[missed] = bool(failed)
    if failed:
        judged.verdicts[missed], judged.killers[missed] = "killed", failed


def warm() -> None:
    """Import what tests are slow to import, but for the package."""
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    sys.dont_write_bytecode = True
    for name in SLOW_IMPORTS:
        with suppress(ImportError):
            importlib.import_module(name)


def table(found: Sequence[Judged], packages: Sequence[str]) -> list[str]:
    """Both versions by root package, and in all."""
    heads = "".join(f"   {side + ': killed':>15}{'survived':>9}{'uncovered':>10}" for side in ("before", "after"))
    lines = [f"{'':13}{'mutants':>8}{heads}"]
    for name in (*packages, "all"):
        these = [judged for judged in found if name in (judged.mutant.package, "all")]
        line = f"{name:13}{len(these):8}"
        for side in range(2):
            counts = Counter(judged.verdicts[side] for judged in these)
            share = f"{counts['killed']} ({counts['killed'] / max(1, len(these)):.1%})"
            line += f"   {share:>15}{counts['survived']:9}{counts['not covered']:10}"
        lines.append(line)
    return lines


def paired(found: Sequence[Judged]) -> dict[str, int]:
    """How many each version alone killed, both, and neither."""
    counts = Counter(judged.killed for judged in found)
    words = {"both": (True, True), "only before": (True, False), "only after": (False, True), "neither": (False, False)}
    return {word: counts[killed] for word, killed in words.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutants", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--before", default=BEFORE, help="a revision (default: %(default)s)")
    parser.add_argument("--after", default="HEAD", help="a revision (default: %(default)s)")
    parser.add_argument("--packages", nargs="+", default=PACKAGES, help="where the lines stand after")
    parser.add_argument(
        "--kept", type=Path, help="a folder for what the tests run, so that another seed need not learn it again"
    )
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    warm()
    with tempfile.TemporaryDirectory() as scratch:
        versions = [
            Version(revision, Path(scratch, side)) for side, revision in (("before", given.before), ("after", given.after))
        ]
        drawn = mutants((versions[0].tree, versions[1].tree), given.packages, given.seed)
        for side, version in enumerate(versions):
            version.measure({mutant.places[side].path for mutant in drawn}, given.kept and given.kept.absolute())
            _say(f"{version.revision}: {len(version.seconds)} tests ({version.marks}), {len(version.left_out)} left out")
        found = []
        for at, mutant in enumerate(drawn[: given.mutants], 1):
            found.append(judge(mutant, versions))
            if len(set(found[-1].killed)) == 2:
                settle(found[-1], versions)
            _say(f"{at} of {given.mutants}: {mutant}: {', '.join(found[-1].verdicts)}")
    for version in versions:
        _say(f"{version.revision}: {len(version.left_out)} tests left out at the end")
    pairs = paired(found)
    if given.json:
        print(json.dumps({"paired": pairs, "mutants": [judged.as_json() for judged in found]}, indent=1))
    else:
        print(*table(found, given.packages), sep="\n")
        print("killed by " + ", ".join(f"{word} {number}" for word, number in pairs.items()))
        dear = [sum(judged.dear[side] for judged in found) for side in range(2)]
        print(f"by tests that are not cheap alone: before {dear[0]}, after {dear[1]}")
        print(*(f"only before: {judged.mutant}" for judged in found if judged.killed == (True, False)), sep="\n")
    return int(pairs["only before"] > pairs["only after"])


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
