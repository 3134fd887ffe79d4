"""The figures of the house, beside what they may be: `make figures`. Structural ones that fall behind end it with exit code 1.

    python benchmarks/figures.py            # a table
    python benchmarks/figures.py --json     # one object

Everything is read from the source's syntax; nothing of the package is imported, but for the two start-up times.
"""

import ast
import json
import re
import resource
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import connected_components

ROOT = Path(__file__).parents[1]
PACKAGE = "journeyman"
FACADE = {PACKAGE, f"{PACKAGE}.__main__"}
"""They name everything for the user's sake, so they are nobody's importer."""

_UNCOUNTED = ("tests", "benchmarks", "build", "dist")

WRITERS = {"run": "add_run", "evaluation": "add_evaluation", "look": "record_look", "release": "add_release"}
"""What is kept of an experiment, and the method of a store that writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measure of the house."""

    name: str
    value: float
    limit: float
    structural: bool = True
    """Whether falling behind is a failure, or something to know."""
    offenders: tuple[str, ...] = ()

    @property
    def kept(self) -> bool:
        return self.value <= self.limit


class House:
    """The modules of the package and how they import each other; late imports and those for types alone included."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.paths = dict(sorted((_dotted(path, source), path) for path in (source / PACKAGE).rglob("*.py")))
        self.trees = {name: ast.parse(path.read_text()) for name, path in self.paths.items()}

    @cached_property
    def imports(self) -> Mapping[str, set[str]]:
        """Module to the modules of the package that it imports."""
        return {name: set(self._imported(name)) - {name} for name in self.trees}

    @cached_property
    def importers(self) -> Mapping[str, set[str]]:
        """Module to who imports it, the facade left out."""
        found: dict[str, set[str]] = defaultdict(set)
        for name in self.imports.keys() - FACADE:
            for other in self.imports[name]:
                found[other].add(name)
        return found

    @property
    def rooms(self) -> set[str]:
        return {name.split(".")[1] for name, path in self.paths.items() if path.parent.parent == self.source / PACKAGE}

    @property
    def loose(self) -> list[str]:
        """Modules in the package's root, but for its facade."""
        return sorted(
            path.name for path in (self.source / PACKAGE).glob("*.py") if path.name not in ("__init__.py", "__main__.py")
        )

    @property
    def single(self) -> list[str]:
        """Modules that exactly one other module imports."""
        return sorted(name for name in self.paths if len(self.importers.get(name, ())) == 1)

    @property
    def cycles(self) -> list[str]:
        return [" <-> ".join(sorted(group)) for group in _strongly_connected(self.imports)]

    @property
    def twice(self) -> list[str]:
        """Public class names that more than one module defines."""
        count = Counter(
            node.name
            for tree in self.trees.values()
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        )
        return sorted(name for name, times in count.items() if times > 1)

    @property
    def functions(self) -> list[int]:
        """Their lengths, in lines, ascending."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        nodes = (node for tree in self.trees.values() for node in ast.walk(tree) if isinstance(node, kinds))
        return sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)

    def writers(self, method: str) -> list[str]:
        """Modules that call a method of a store, the stores themselves left out."""
        call = re.compile(rf"\.{method}\(")
        outside = (name for name in self.paths if not name.startswith(f"{PACKAGE}.stores"))
        return sorted(name for name in outside if call.search(self.paths[name].read_text()))

    def _resolved(self, importer: str, node: ast.ImportFrom) -> str:
        """The module that is named, also where it is by dots: what runs in the sandbox has a package of another name there."""
        if not node.level:
            return node.module or ""
        up = node.level - (self.paths[importer].name == "__init__.py")
        package = importer.split(".")[: len(importer.split(".")) - up]
        return ".".join([*package, *([node.module] if node.module else [])])

    def _imported(self, importer: str) -> Iterator[str]:
        for node in ast.walk(self.trees[importer]):
            if isinstance(node, ast.ImportFrom):
                module = self._resolved(importer, node)
                for alias in node.names:
                    whole = f"{module}.{alias.name}"
                    yield from (name for name in (whole if whole in self.paths else module,) if name in self.paths)
            elif isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.paths)


def figures(root: Path = ROOT) -> list[Figure]:
    """All that can be told from the source."""
    house = House(root / "src")
    lines = [len(path.read_text().splitlines()) for path in house.paths.values()]
    folders = [
        each for each in root.iterdir() if each.is_dir() and not each.name.startswith(".") and each.name not in _UNCOUNTED
    ]
    others = [*root.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    total = sum(len(path.read_text().splitlines()) for path in others)
    rooms, single = sorted(house.rooms), house.single
    return [
        Figure(name="packages in the root", value=len(rooms), limit=15, offenders=tuple(rooms)),
        Figure(name="modules loose in the root", value=len(house.loose), limit=0, offenders=tuple(house.loose)),
        Figure(name="import cycles", value=len(house.cycles), limit=0, offenders=tuple(house.cycles)),
        Figure(name="public class names used twice", value=len(house.twice), limit=0, offenders=tuple(house.twice)),
        Figure(name="modules with one importer, %", value=_share(single, house.paths), limit=5, offenders=tuple(single)),
        *(
            Figure(
                name=f"modules that write a {what}", value=len(found := house.writers(method)), limit=1, offenders=tuple(found)
            )
            for what, method in WRITERS.items()
        ),
        Figure(name="lines of a file, p95", value=_percentile(lines, 0.95), limit=600),
        Figure(name="lines of a function, p95", value=_percentile(house.functions, 0.95), limit=40),
        Figure(name="files of the package", value=len(house.paths), limit=380, structural=False),
        Figure(name="lines, tests and benchmarks left out", value=total, limit=70_000, structural=False),
    ]


def times() -> list[Figure]:
    """Seconds of CPU that two commands take, the least of five runs."""
    with tempfile.TemporaryDirectory() as folder:
        help_ = min(_cpu(["--help"], folder) for _ in range(5))
        listing = min(_cpu(["traces", "list"], folder) for _ in range(5))
    return [
        Figure(name="CPU of --help, s", value=round(help_, 3), limit=0.12, structural=False),
        Figure(name="CPU of traces list on an empty store, s", value=round(listing, 3), limit=0.5, structural=False),
    ]


def _cpu(arguments: list[str], folder: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", PACKAGE, *arguments], cwd=folder, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _dotted(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _share(some: list[str], of: Mapping[str, Path]) -> float:
    return round(100 * len(some) / len(of), 1)


def _percentile(values: Iterable[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[int(len(ordered) * share)]


def _strongly_connected(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of more than one that reach each other."""
    names = list(graph)
    place = {name: number for number, name in enumerate(names)}
    edges = np.zeros((len(names), len(names)), dtype=np.int8)
    for name, others in graph.items():
        edges[place[name], [place[other] for other in others]] = 1
    _, labels = connected_components(edges, connection="strong")
    groups: dict[int, list[str]] = defaultdict(list)
    for name, label in zip(names, labels.tolist(), strict=True):
        groups[label].append(name)
    return [group for group in groups.values() if len(group) > 1]


def main() -> int:
    """Print them. 1 when a structural one falls behind."""
    found = [*figures(), *times()]
    if "--json" in sys.argv:
        print(json.dumps([{"name": f.name, "value": f.value, "limit": f.limit, "kept": f.kept} for f in found], indent=1))
    else:
        for figure in found:
            mark = "ok" if figure.kept else "no" if figure.structural else "--"
            print(f"{mark} {figure.name:42} {figure.value:>9g}  <= {figure.limit:g}")
            if not figure.kept and figure.offenders:
                print("     " + re.sub(rf"\b{PACKAGE}\.", "", ", ".join(figure.offenders)))
    return int(any(figure.structural and not figure.kept for figure in found))


if __name__ == "__main__":
    raise SystemExit(main())
