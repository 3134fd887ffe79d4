"""Programming tasks with tests, in the formats of HumanEval and MBPP, and samples of models that tried them.

Parsing alone: what runs them is `rewards.unit_tests`.

A task is a row with `task_id` (or `name`) and either `prompt`, `entry_point` and `test`, as HumanEval has them, or `text` (or
`prompt`) and `test_list`, with `test_setup_code`, `test_imports` and `challenge_test_list`, as MBPP has them. A sample is a row
with `task_id` and what the model wrote: `completion` goes on where the prompt ends, `solution` stands alone. Both come as JSON
lines or one JSON list, gzipped or not. Everything that is wrong with a file is said at once.
"""

import ast
import builtins
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError, TaskError
from journeyman.core.task import Split, Task, is_name
from journeyman.io.markdown import fenced, fences
from journeyman.tasks import rows
from journeyman.tasks.questions import LEAST, SHARES, enough, share

MODULE = "solution"
"""What the module of the answer is called, where tests import from it."""
INSTRUCTIONS = (
    "Answer with the whole Python program in one ```python block. It is imported and tested, so it must not ask for input."
)

_IDS = ("task_id", "name", "id")
_CONTINUED = ("completion", "completions")
_ALONE = ("solution", "generation", "generations", "samples", "code", "output")
_PYTHON = frozenset({"", "python", "python3", "py"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTests:
    """What a solution must pass: what stands in `Task.answer`."""

    test: str
    """Python that raises when the solution is wrong. It names what it tests as if that stood above it."""
    entry_point: str = ""
    """The function that `check` of `test` is called with; empty when the tests call it themselves."""
    prompt: str = ""
    """The beginning of the program that a completion goes on with; empty when the question is plain words."""

    def json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False)

    def module(self) -> str:
        """The tests as a module that imports what it tests from `solution`."""
        given = _given(self.prompt, self.entry_point)
        called = f"check({self.entry_point})" if self.entry_point else ""
        body = "\n".join((given, self.test, called))
        try:
            tree = ast.parse(body)
        except SyntaxError as error:
            raise TaskError(f"the tests are no Python: {error}") from None
        free = sorted(_free(tree, self.entry_point))
        modules = [name for name in free if name in sys.stdlib_module_names and _is_base(tree, name)]
        tested = [name for name in free if name not in modules]
        imports = [f"import {name}" for name in modules] + [f"from {MODULE} import {name}" for name in tested]
        return "\n".join((*imports, body, ""))

    def program(self, text: str, *, continues: bool) -> str:
        """The module `solution` that an answer makes: after the prompt, or alone with the prompt's imports."""
        return self.prompt + text if continues else f"{_imports(self.prompt)}\n{text}"

    def goes_on(self, text: str) -> bool:
        """Whether a text looks like the rest of the prompt, and not like a program of its own."""
        return bool(self.prompt and self.entry_point) and self.entry_point not in _defined(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSample:
    """What a model wrote for a task."""

    task_id: str
    text: str
    continues: bool
    """Whether it goes on where the prompt ends."""


def code_tests(task: Task) -> CodeTests:
    """What a task's answer holds.

    Raises:
        TaskError: It is no task of this kind.
    """
    try:
        return CodeTests(**json.loads(task.answer))
    except (ValueError, TypeError):
        raise TaskError(f"{task.id} is no programming task: its answer holds no tests") from None


def answer(reply: str) -> str:
    """The program in a reply: its last block of code, or all of it where it has none."""
    found = [fence.text for fence in fences(reply) if fence.closed and fence.info.strip().casefold() in _PYTHON]
    return found[-1] if found else reply


def read_tasks(path: Path | str, *, domain: str = "code") -> tuple[Task, ...]:
    """The tasks of a file in the order they stand in, all of one split: see `split`.

    Raises:
        InputError: Something is wrong with the file; every fault with its line.
    """
    bad = rows.Complaints("these tasks cannot be used")
    found: dict[str, Task] = {}
    for row in rows.read(path, bad):
        task = _task(row, bad, domain)
        if task is not None and task.id in found:
            bad.add(row.where, f"{task.id} was there before")
        elif task is not None:
            found[task.id] = task
    bad.check()
    if not found:
        raise InputError(f"{path} holds no tasks")
    return tuple(found.values())


def right_replies(path: Path | str) -> Mapping[str, str]:
    """The solutions that the authors of the tasks of a file wrote, by task, as a model would reply; not every file has them."""
    found = dict[str, str]()
    for row in rows.read(path, rows.Complaints("these tasks cannot be used")):
        prompt, body = row.value.get("prompt", ""), row.value.get("canonical_solution")
        written = f"{prompt}{body}" if isinstance(body, str) else row.value.get("code")
        if isinstance(written, str):
            found[_id(row.value)] = fenced(written, "python")
    return found


def read_samples(path: Path | str, tasks: Sequence[Task]) -> tuple[CodeSample, ...]:
    """The samples of a file for these tasks, in order. A row may hold a list of them; one without an id is found by its prompt.

    Raises:
        InputError: Something is wrong with the file; every fault with its line.
    """
    bad = rows.Complaints("these samples cannot be used")
    by_prompt = {code_tests(task).prompt.strip(): task.id for task in tasks}
    known = {task.id for task in tasks}
    found: list[CodeSample] = []
    for row in rows.read(path, bad):
        id = _id(row.value) or by_prompt.get(str(row.value.get("prompt")).strip(), "")
        if id not in known:
            like = f"no task {id!r} in the file of tasks, where ids look like {tasks[0].id!r}" if tasks else f"no task {id!r}"
            bad.add(row.where, like if id else "no task_id; every sample needs one")
            continue
        found += _samples(row, id, bad)
    bad.check()
    if not found:
        raise InputError(f"{path} holds no samples")
    return _of_one_kind(found, {task.id: code_tests(task) for task in tasks})


def load(
    input: str,
    held_out: str = "",
    *,
    domain: str = "code",
    least: int = LEAST,
    read: Callable[..., tuple[Task, ...]] = read_tasks,
) -> tuple[Task, ...]:
    """Tasks in their splits: those of `held_out` are held out, others are shared out by a hash of the question.

    Args:
        read: Reads a file: it is given the path, and the `domain`.

    Raises:
        InputError: A file cannot be used, or a task is in both, be it under another id.
    """
    shares = {**SHARES, Split.HELD_OUT: 0} if held_out else SHARES
    inside = read(input, domain=domain) if input else ()
    outside = read(held_out, domain=domain) if held_out else ()
    seen = {task.id for task in inside} | {_on_one_line(task) for task in inside}
    if both := {task.id for task in outside if task.id in seen or _on_one_line(task) in seen}:
        raise InputError(f"{', '.join(sorted(both)[:5])} are both in {input} and held out in {held_out}; a task must be in one")
    more = {} if held_out else enough({task.question for task in inside}, least)
    shared = [replace(task, split=more.get(task.question) or share(task.question, shares)) for task in inside]
    return (*shared, *(replace(task, split=Split.HELD_OUT) for task in outside))


def _on_one_line(task: Task) -> str:
    return " ".join(task.question.split())


def _task(row: rows.FileRow, bad: rows.Complaints, domain: str) -> Task | None:
    value, id = row.value, _id(row.value)
    if not id:
        bad.add(row.where, "no task_id; every task needs one")
        return None
    made = _mbpp(value) if "test_list" in value else _humaneval(value)
    if isinstance(made, str):
        bad.add(row.where, made)
        return None
    question, tests = made
    try:
        tests.module()
    except TaskError as error:
        bad.add(row.where, str(error))
        return None
    cluster = value.get("cluster")
    if cluster is not None and not is_name(cluster):
        bad.add(row.where, f"cluster is {cluster!r}, and must be a text or a number")
        return None
    family = "" if cluster is None else str(cluster)
    return Task(id=id, question=question, answer=tests.json(), domain=domain, instructions=INSTRUCTIONS, cluster=family)


def _humaneval(value: Mapping[str, Any]) -> tuple[str, CodeTests] | str:
    prompt, entry, test = value.get("prompt"), value.get("entry_point"), value.get("test")
    if not (isinstance(prompt, str) and isinstance(entry, str) and isinstance(test, str) and test.strip()):
        return "neither prompt, entry_point and test, nor text and test_list; a task needs one or the other"
    entry = entry.strip()
    if not entry.isidentifier():
        return f"entry_point is {entry!r}, and must be the name of a function"
    return prompt, CodeTests(test=test, entry_point=entry, prompt=prompt)


def _mbpp(value: Mapping[str, Any]) -> tuple[str, CodeTests] | str:
    text = value.get("text", value.get("prompt"))
    if not isinstance(text, str):
        return "no text; every task needs what is asked"
    lists = [value.get(key) or [] for key in ("test_imports", "test_list", "challenge_test_list")]
    if not lists[1] or not all(isinstance(part, list) and all(isinstance(line, str) for line in part) for part in lists):
        return "test_list must be a list of lines of Python, and not empty"
    setup = value.get("test_setup_code") or ""
    lines = [*lists[0], str(setup), *lists[1], *lists[2]]
    example = lists[1][0]
    return f"{text}\nIt must pass, for example: {example}", CodeTests(test="\n".join(lines).replace("\r\n", "\n"))


def _samples(row: rows.FileRow, id: str, bad: rows.Complaints) -> Iterator[CodeSample]:
    key = next((key for key in (*_CONTINUED, *_ALONE) if row.value.get(key) is not None), "")
    if not key:
        bad.add(row.where, "no completion and no solution; every sample needs one")
        return
    texts = row.value[key] if isinstance(row.value[key], list) else [row.value[key]]
    for text in texts:
        if isinstance(text, str):
            yield CodeSample(task_id=id, text=text, continues=key in _CONTINUED)
        else:
            bad.add(row.where, f"{key} is no text")


def _of_one_kind(samples: Sequence[CodeSample], tests: Mapping[str, CodeTests]) -> tuple[CodeSample, ...]:
    """Some files call bodies of functions solutions. What most of those in a file are, all are."""
    alone = [sample for sample in samples if not sample.continues]
    bodies = sum(tests[sample.task_id].goes_on(sample.text) for sample in alone)
    if 2 * bodies <= len(alone):
        return tuple(samples)
    return tuple(replace(sample, continues=True) for sample in samples)


def _id(value: Mapping[str, Any]) -> str:
    found = next((value[key] for key in _IDS if value.get(key) is not None), "")
    return str(found) if isinstance(found, str | int) else ""


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _defined(text: str) -> set[str]:
    """Names that the top level of a program binds; all of a text that is no Python, by the look of it."""
    body = _parsed(text)
    if not body:
        return set(re.findall(r"^(?:def|class|async def)\s+(\w+)", text, re.MULTILINE)) | set(
            re.findall(r"^(\w+)\s*=", text, re.MULTILINE)
        )
    return _bound(ast.Module(body=body, type_ignores=[]))


def _imports(prompt: str) -> str:
    return "\n".join(ast.unparse(node) for node in _parsed(prompt) if isinstance(node, ast.Import | ast.ImportFrom))


def _given(prompt: str, entry_point: str) -> str:
    """What the prompt defines beside the function that is asked for: the tests may use it, as the task's author wrote it."""
    kept = [
        node
        for node in _parsed(prompt)
        if not (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == entry_point)
        and not isinstance(node, ast.Expr)
    ]
    return "\n".join(ast.unparse(node) for node in kept)


def _bound(tree: ast.AST) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.add((node.asname or node.name).partition(".")[0])
    return found


def _free(tree: ast.AST, entry_point: str) -> set[str]:
    """Names that are used and bound nowhere.

    A solution may have the name of a built-in function: the one that is asked for, or, where that is not said, the one that is
    called when nothing else could be meant.
    """
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    unbound = used - _bound(tree) - {"__name__", "__file__"}
    found = {name for name in unbound if not hasattr(builtins, name) or name == entry_point}
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return found or (called & unbound)


def _is_base(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
        for node in ast.walk(tree)
    )
