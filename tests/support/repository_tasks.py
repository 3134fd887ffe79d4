"""Tasks of the small package, and an environment for them that is made without a network."""

import os
import shutil
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from journeyman import sandbox
from journeyman.agents.workshop import RepositoryWorkshop
from journeyman.experiments.task_generation.generate import kept_tree
from journeyman.sandbox import environments
from journeyman.sandbox.base import Sandbox
from journeyman.tasks import repository
from journeyman.tasks.repository import Category, Checks, RepositoryTask
from journeyman.tasks.repository.tree import Tree, read_tree
from tests.support import wheels
from tests.support.repositories import package
from tests.support.shared import shared

RATES, LABELS = "tests/test_rates.py", "tests/test_labels.py"


@dataclass(frozen=True, slots=True)
class Bug:
    path: str
    right: str
    wrong: str
    function: str
    fails: tuple[str, ...]
    passes: tuple[str, ...]


BUGS = (
    Bug(
        "parcels/rates.py", "ZONES.get(country.upper(), 4)", "ZONES.get(country, 4)", "zone",
        (f"{RATES}::test_zone_of_a_country",), (f"{RATES}::test_zone_that_is_not_known", f"{RATES}::test_price_by_zone"),
    ),
    Bug(
        "parcels/rates.py", "total = total * 2", "total = total * 3", "price",
        (f"{RATES}::test_express_costs_twice_as_much",), (f"{RATES}::test_price_by_weight",),
    ),
    Bug(
        "parcels/rates.py", "if best is None or cost < best[0]", "if best is None or cost <= best[0]", "cheapest",
        (f"{RATES}::test_the_cheapest_of_some",), (f"{RATES}::test_price_by_zone",),
    ),
    Bug(
        "parcels/labels.py", 'lines.append("FRAGILE")', 'lines.append("fragile")', "label",
        (f"{LABELS}::test_what_breaks_is_said_on_the_label",), (f"{LABELS}::test_a_label",),
    ),
    Bug(
        "parcels/labels.py", "len(line) + 1 + len(word) > width", "len(line) + 9 + len(word) > width", "wrapped",
        (f"{LABELS}::test_a_long_street_takes_two_lines",), (f"{LABELS}::test_no_text_is_no_line",),
    ),
    Bug(
        "parcels/rates.py", "(grams - 1000) // 500 * 50", "(grams - 1000) // 500 * 60", "price",
        (f"{RATES}::test_price_by_weight", f"{RATES}::test_the_heaviest_parcel"), (f"{RATES}::test_price_by_zone",),
    ),
)  # fmt: skip


def environment(folder: Path, name: str = "parcels") -> str:
    """The environment of the package, or of the same by another name, in a folder of environments; its digest.

    It is made once for all tests, without a network, and each has links to its files.
    """
    kept, digest = _kept(name).splitlines()
    shutil.copytree(
        kept, folder, symlinks=True, copy_function=_linked, ignore=shutil.ignore_patterns("*.lock"), dirs_exist_ok=True
    )
    return digest


@cache
def _kept(name: str) -> str:
    return shared(f"env-{name}", lambda place: _built(place, name), lambda _: None)


def _built(place: Path, name: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        wheels.without_network(patch, place / "wheels")
        needs = environments.PackageNeeds(name=name, version="1.2.0", requirements=("pytest",))
        return f"{place / 'made'}\n{environments.build(place / 'made', needs).digest}"


def _linked(source: str, to: str) -> None:
    try:
        os.link(source, to)
    except OSError:
        shutil.copy2(source, to)


def kept_package(folder: Path, environments_folder: Path) -> Tree:
    """The package, and where tasks find its files."""
    tree = read_tree(package(folder))
    tree.pack(environments_folder / "trees" / f"{tree.digest}.tar.gz")
    return tree


def tasks_of(tree: Tree, digest: str) -> tuple[RepositoryTask, ...]:
    """One for each bug."""
    found = []
    for bug in BUGS:
        text = tree.text(bug.path)
        assert text.count(bug.right) == 1
        found.append(
            RepositoryTask(
                category=Category.BUG_FIX,
                repository="parcels",
                tree=tree.digest,
                environment=digest,
                statement=f"`{bug.function}` does not do what it did. Mend it.",
                base={bug.path: text.replace(bug.right, bug.wrong)},
                reference={bug.path: text},
                checks=Checks(fail_to_pass=bug.fails, pass_to_pass=bug.passes),
                source=f"{bug.path.removesuffix('.py').replace('/', '.')}:{bug.function}",
            )
        )
    return tuple(found)


def written(folder: Path, environments_folder: Path, digest: str) -> Path:
    """A file of the tasks."""
    repository.write(folder / "tasks.jsonl", tasks_of(kept_package(folder, environments_folder), digest))
    return folder / "tasks.jsonl"


def workshop(
    tasks: tuple[RepositoryTask, ...], folder: Path, *, beside: tuple[str, ...] = (), walls: str = "auto"
) -> RepositoryWorkshop:
    """Where they are worked on, in the strongest sandbox that works here or another."""

    def opened(digest: str) -> Sandbox:
        return sandbox.load(walls, interpreter=replace(environments.opened(folder, digest).interpreter, beside=beside))

    return RepositoryWorkshop(tasks, lambda digest: kept_tree(digest, folder), opened)
