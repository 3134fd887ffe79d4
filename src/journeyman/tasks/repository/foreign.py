"""Tasks that others made: rows of SWE-bench and SWE-smith beside a clone of the repository, and the programs of QuixBugs.

Patches are applied by git in a temporary folder, and nothing of them is run. What a row says of its tests is believed only when
running them has shown it (`experiments.task_generation.base.settled`).
"""

import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.io.jsonl import Unusable, iter_jsonl, json_object
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of
from journeyman.tasks.repository.tree import Tree, git, in_tests, read_tree

FORMATS = ("swe-bench", "swe-smith", "quixbugs")
_QUIXBUGS = "quixbugs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTask:
    """A row as a task, before anything of it was run."""

    task: RepositoryTask
    tree: Tree
    """What it starts from: to be kept under its digest."""


def read_foreign(
    format: str, path: Path, *, environment: str, clone: Path | None = None, commit: str = ""
) -> Iterator[ForeignTask]:
    """The tasks of a file, one by one.

    Args:
        format: One of `FORMATS`.
        environment: The digest of the environment that they are checked in.
        clone: The repository that the rows are of; QuixBugs needs none.
        commit: Of the repository, for rows that name none.

    Raises:
        InputError: There is no such format, or the file or a row of it cannot be used; file and line are named.
    """
    if format not in FORMATS:
        raise InputError(f"no format of tasks {format!r}; there are {', '.join(FORMATS)}")
    if format == _QUIXBUGS:
        rows = [line.value for line in iter_jsonl(path, _program)]
        yield from _quixbugs(rows, environment)
        return
    if clone is None:
        raise InputError(f"rows of {format} hold patches alone; name a clone of the repository that they are of")
    trees: dict[str, Tree] = {}

    def at(wanted: str) -> Tree:
        if wanted not in trees:
            trees.clear()  # Rows of one commit mostly follow each other, and a tree may be large.
            trees[wanted] = read_tree(clone, commit=wanted)
        return trees[wanted]

    read = _of_bench if format == "swe-bench" else _of_smith
    for line in iter_jsonl(path, lambda text: read(json_object(text), at, commit, environment)):
        yield line.value


def applied(tree: Tree, patch: str, *, reverse: bool = False) -> dict[str, str | None]:
    """The texts that a patch changes, as they are after it, by path; of `None` there is none.

    Raises:
        Unusable: It does not apply to these files, or makes what is no text.
    """
    touched = set(re.findall(r"^(?:--- a|\+\+\+ b)/([^\t\n]+)", patch, re.MULTILINE))
    touched |= set(re.findall(r"^(?:rename|copy) (?:from|to) ([^\n]+)", patch, re.MULTILINE))
    if not touched or any(name.startswith("/") or ".." in name.split("/") for name in touched):
        raise Unusable("its patch changes no file, or one outside of the repository")
    with tempfile.TemporaryDirectory(prefix="journeyman-patch-") as held:
        folder, file = Path(held, "files"), Path(held, "patch")
        for path in touched & tree.files.keys():
            place = folder / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(tree.files[path])
        folder.mkdir(exist_ok=True)
        file.write_text(patch if patch.endswith("\n") else f"{patch}\n")
        try:
            # In a repository of its own, or git would look for one above.
            git(folder, "init", "--quiet")
            git(folder, "apply", "--whitespace=nowarn", *(["--reverse"] if reverse else []), str(file))
        except InputError as error:
            raise Unusable(f"its patch does not apply: {str(error).rpartition('failed: ')[2]}") from None
        return {path: _text(folder / path, path) for path in sorted(touched)}


def _text(place: Path, path: str) -> str | None:
    if place.is_symlink():
        raise Unusable(f"its patch makes {path} a link")
    try:
        return place.read_bytes().decode() if place.is_file() else None
    except UnicodeDecodeError:
        raise Unusable(f"its patch makes {path}, which is no text") from None


def _of_bench(row: Mapping[str, Any], at: Callable[[str], Tree], commit: str, environment: str) -> ForeignTask:
    """A row of SWE-bench: an issue, the patch that closed it, and that of its tests."""
    tree = at(_said(row, "base_commit") if row.get("base_commit") else commit)
    changed = applied(tree, _said(row, "patch"))
    tests = applied(tree, _said(row, "test_patch"))
    task = RepositoryTask(
        **_common(row, tree, environment, "swe-bench"),
        statement=_said(row, "problem_statement"),
        reference={path: text for path, text in changed.items() if not in_tests(path)},
        checks=Checks(tests={path: text for path, text in tests.items() if text is not None}, **_named(row)),
    )
    return ForeignTask(task=task, tree=tree)


def _of_smith(row: Mapping[str, Any], at: Callable[[str], Tree], commit: str, environment: str) -> ForeignTask:
    """A row of SWE-smith: the patch that put a fault into the code."""
    tree = at(str(row.get("base_commit") or commit))
    base = applied(tree, _said(row, "patch"))
    common = _common(row, tree, environment, "swe-smith")
    name = common["repository"]
    task = RepositoryTask(
        **common,
        statement=str(row.get("problem_statement") or "")
        or f"Something that used to work with {name} does not any more. Find the fault in the code and mend it.",
        base=base,
        reference={path: tree.text(path) if path in tree.files else None for path in base},
        checks=Checks(**_named(row)),
    )
    return ForeignTask(task=task, tree=tree)


def _common(row: Mapping[str, Any], tree: Tree, environment: str, made_by: str) -> dict[str, Any]:
    """What every row has."""
    name = _said(row, "repo").rpartition("/")[2]
    source = _said(row, "instance_id")
    return {
        "category": Category.BUG_FIX,
        "repository": name,
        "tree": tree.digest,
        "environment": environment,
        "source": source,
        "made_by": made_by,
        "created": str(row.get("created_at") or "")[:10],
        "split": split_of(name, source),
    }


def _said(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        raise Unusable(f"there is no {key!r} in it; a row of SWE-bench or SWE-smith is wanted")
    return value


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """The tests that decide: of the cases of one, the function."""
    found: dict[str, Any] = {}
    for key, name in (("FAIL_TO_PASS", "fail_to_pass"), ("PASS_TO_PASS", "pass_to_pass")):
        value = row.get(key) or []
        tests = json.loads(value) if isinstance(value, str) else value
        if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
            raise Unusable(f"{key} is no list of tests")
        found[name] = tuple(dict.fromkeys(test.partition("[")[0] for test in tests))
        if strange := next((test for test in found[name] if "::" not in test), ""):
            raise Unusable(f"the test {strange!r} is not named as pytest does it: path::name")
    if not found["fail_to_pass"]:
        raise Unusable("FAIL_TO_PASS names no test")
    again = set(found["fail_to_pass"])
    return found | {"pass_to_pass": tuple(test for test in found["pass_to_pass"] if test not in again)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    name: str
    buggy: str
    fixed: str
    tests: str
    """As the file that they are run from."""


def _program(text: str) -> _Program:
    row = json_object(text)
    name, buggy, fixed, tests = (row.get(key) for key in ("name", "buggy", "fixed", "pytest"))
    if not all(isinstance(each, str) and each for each in (name, buggy, fixed, tests)) or not str(name).isidentifier():
        raise Unusable("no program of QuixBugs: name, buggy, fixed and pytest are texts")
    return _Program(name=str(name), buggy=str(buggy), fixed=str(fixed), tests=_with_cases(row))


_NODE = """

class Node:
    def __init__(self, value=None, successor=None, successors=[], predecessors=[], incoming_nodes=[], outgoing_nodes=[]):
        self.value = value
        self.successor = successor
        self.successors = successors
        self.predecessors = predecessors
        self.incoming_nodes = incoming_nodes
        self.outgoing_nodes = outgoing_nodes

"""


def _with_cases(row: Mapping[str, Any]) -> str:
    """Its file of tests with all in it that QuixBugs keeps elsewhere, and of the program what it is in the repository."""
    name, text = str(row["name"]), str(row["pytest"])
    switch = re.compile(r"if pytest\.use_correct:\n.*\nelse:\n +(from .*)\n")
    text = switch.sub(r"\1\n", text)
    text = text.replace("from node import Node\n", _NODE).replace("pytest.run_slow", "False")
    text = text.replace("from load_testdata import load_json_testcases\n", "")
    cases = f"[\n{''.join(f'    {case!r},{chr(10)}' for case in row.get('json_testcases') or ())}]"
    return text.replace(f"load_json_testcases({name}.__name__)", cases)


def _quixbugs(programs: list[_Program], environment: str) -> Iterator[ForeignTask]:
    """Each program with its fault, among the others without theirs."""
    files = {"python_programs/__init__.py": b""}
    for each in programs:
        files[f"python_programs/{each.name}.py"] = each.fixed.encode()
        files[f"tests/test_{each.name}.py"] = each.tests.encode()
    tree = Tree(files)
    for each in programs:
        path, tests = f"python_programs/{each.name}.py", f"tests/test_{each.name}.py"
        named = tuple(f"{tests}::{test}" for test in re.findall(r"^def (test\w*)\(", each.tests, re.MULTILINE))
        task = RepositoryTask(
            category=Category.BUG_FIX,
            repository="QuixBugs",
            tree=tree.digest,
            environment=environment,
            statement=(
                f"`{each.name}` in `python_programs.{each.name}` does not do what its documentation says. One line of it is "
                "wrong. Find the fault and mend it. Its tests are not in the repository; they are run with `python -m pytest`."
            ),
            base={path: each.buggy},
            reference={path: each.fixed},
            checks=Checks(fail_to_pass=named),
            may_change=(path,),
            level={"lines": 1.0, "files": 1.0},
            source=f"{each.name}",
            made_by=_QUIXBUGS,
            license="MIT",
            split=split_of("QuixBugs", each.name),
        )
        yield ForeignTask(task=task, tree=tree)
