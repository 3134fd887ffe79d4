"""Code made needlessly complex by steps that change nothing of what it does: what it was before is the reference."""

import ast
import random
import textwrap
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass

from journeyman.experiments.task_generation.base import Rejected, TaskDraft, TaskSource
from journeyman.rewards.development.code_measures import complexity
from journeyman.rewards.repository.behaviour import FEWEST, Target, behaviour, comparable, differing
from journeyman.rewards.repository.source import tangled
from journeyman.sandbox.base import Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask, split_of
from journeyman.tasks.repository.mutations import SourceFunction

COMPLEX = 8
"""The complexity from which a function is worth simplifying."""
SHARE = 0.7
"""What may be left of it."""
COVERED = 0.9
"""Of the statements of a function, that tests must come by."""
MOST_COVERING = 40
_MOST_LINES = 120
_STEPS = 12


class Refactor:
    """A function that tests cover, made complex."""

    category = Category.REFACTOR
    version = "1"

    def drafts(self, subject: TaskSource, chance: random.Random) -> Iterator[TaskDraft]:
        found = list(subject.functions())
        chance.shuffle(found)
        for path, function in found:
            text = subject.tree.text(path)
            if covered(subject, path, function) < COVERED or (worse := worsened(text, function, chance)) is None:
                continue
            source = f"{subject.tree.module_of(path)}:{function.name}"
            yield TaskDraft(
                key=source,
                source=source,
                path=path,
                base={path: worse},
                reference={path: text},
                lines=tuple(function.lines),
                told={"function": function.name, "seed": str(chance.getrandbits(32))},
            )

    async def task(self, draft: TaskDraft, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
        tests = subject.covering(draft.path, draft.lines)[:MOST_COVERING]
        place = (draft.path, draft.told["function"])
        given = tangled(subject.tree.changed(draft.base))[place]
        most = int(SHARE * given)
        if given < COMPLEX or tangled(subject.tree)[place] > most:
            return Rejected("it is not complex enough")
        measure = {"path": draft.path, "function": place[1], "most": most, "seed": int(draft.told["seed"])}
        task = RepositoryTask(
            category=self.category,
            repository=subject.name,
            tree=subject.tree.digest,
            environment=subject.environment.digest,
            statement=_statement(draft, given, most),
            base=draft.base,
            reference=draft.reference,
            checks=Checks(pass_to_pass=tests, measure=measure),
            level={"lines": float(len(draft.lines)), "files": 1.0, "covering": float(len(tests)), "complexity": float(given)},
            source=draft.source,
            made_by=f"refactor {self.version}",
            license=subject.license,
            split=split_of(subject.name, draft.source),
        )
        return await _valid(task, subject, box)


async def _valid(task: RepositoryTask, subject: TaskSource, box: Sandbox) -> RepositoryTask | Rejected:
    target = Target.of(task.checks.measure, task.checks.pass_to_pass)
    first, second = [await behaviour(box, subject.tree, target, subject.plugins) for _ in range(2)]
    if comparable(first) < FEWEST:
        return Rejected("there are too few inputs", f"{comparable(first)} of {first.recorded} recorded calls; {first.broken}")
    if why := differing(first, second):
        return Rejected("it does now this and now that", why)
    return task


def covered(subject: TaskSource, path: str, function: SourceFunction) -> float:
    """The share of a function's statements that its tests come by."""
    statements = {node.lineno for each in function.body for node in ast.walk(each) if isinstance(node, ast.stmt)}
    return len(statements & subject.covered(path)) / len(statements) if statements else 0.0


def _statement(draft: TaskDraft, given: int, most: int) -> str:
    return (
        f"The function `{draft.told['function']}` in `{draft.path}` does what it should, but it is hard to read: its "
        f"cyclomatic complexity is {given}. Rewrite it so that it is at most {most}, and does exactly what it does now with "
        "whatever it is called with: what it gives, what it raises, and what it does to its arguments. What the package offers "
        f"keeps its names and parameters. Functions that you add may have a complexity of at most {most} too; that of no other "
        "may rise. The tests must go on passing; they are run with `python -m pytest`. Complexity is one, and one more for "
        "each branch, `and`, `or`, loop, handler, or condition of a comprehension; a lambda counts where it stands."
    )


def rewritten(text: str, function: SourceFunction, body: Sequence[ast.stmt]) -> str | None:
    """A file with another body of a function, all else as it stands; `None` where the function stands on one line."""
    lines = text.splitlines(keepends=True)
    first = function.body[0]
    if not lines[first.lineno - 1][: first.col_offset].isspace():
        return None
    # Comments above the first statement stay; those within go with what they were about.
    new = textwrap.indent(ast.unparse(ast.Module(body=list(body), type_ignores=[])), " " * first.col_offset)
    return "".join([*lines[: first.lineno - 1], f"{new}\n", *lines[function.last :]])


def worsened(text: str, function: SourceFunction, chance: random.Random) -> str | None:
    """The file with the function made complex; `None` where nothing here makes it so."""
    named = {node.id for node in ast.walk(function.node) if isinstance(node, ast.Name)}
    if not function.body or {"locals", "vars", "eval", "exec", "globals", "dir"} & named:
        return None
    body = deepcopy(function.body)
    for number in range(_STEPS):
        step = chance.choice(_STEPS_OF)
        places = [(block, at) for block in _blocks(body) for at in range(len(block)) if step.fits(block, at)]
        if places:
            block, at = chance.choice(places)
            block[at:] = step.made(block, at, f"decided_{number}")
        if _complexity(body) >= max(COMPLEX, 2 * _complexity(function.body)) or len(_unparsed(body)) > _MOST_LINES:
            break
    if _complexity(body) < COMPLEX:
        return None
    return rewritten(text, function, body)


def _complexity(body: Sequence[ast.stmt]) -> int:
    return complexity(ast.Module(body=list(body), type_ignores=[]))


def _unparsed(body: Sequence[ast.stmt]) -> list[str]:
    return ast.unparse(ast.Module(body=list(body), type_ignores=[])).splitlines()


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """It, and every block within that is in no function of its own."""
    yield body
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for name in ("body", "orelse", "finalbody"):
                if inner := getattr(node, name, None):
                    yield from _blocks(inner)
            for handler in getattr(node, "handlers", ()):
                yield from _blocks(handler.body)


@dataclass(frozen=True, slots=True)
class _Step:
    """A change of statements, from one of a block on, that changes nothing of what they do."""

    fits: Callable[[list[ast.stmt], int], bool]
    made: Callable[[list[ast.stmt], int, str], list[ast.stmt]]


def _ends(block: Sequence[ast.stmt]) -> bool:
    """Whether nothing behind it is come by."""
    return bool(block) and isinstance(block[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _declares(block: Sequence[ast.stmt]) -> bool:
    kinds = ast.Global | ast.Nonlocal | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    return any(isinstance(node, kinds) for each in block for node in ast.walk(each))


def _has_tail(block: list[ast.stmt], at: int) -> bool:
    return isinstance(block[at], ast.If) and len(block) > at + 1 and not _declares(block[at + 1 :])


def _with_tail(block: list[ast.stmt], at: int, _: str) -> list[ast.stmt]:
    """What follows an `if` stands in both of its branches instead."""
    node, tail = block[at], block[at + 1 :]
    assert isinstance(node, ast.If)
    for branch in (node.body, node.orelse):
        if not _ends(branch):
            branch += deepcopy(tail)
    return [node]


def _is_if(block: list[ast.stmt], at: int) -> bool:
    node = block[at]
    return isinstance(node, ast.If) and not (isinstance(node.test, ast.Name) and node.test.id.startswith("decided_"))


def _by_flag(block: list[ast.stmt], at: int, name: str) -> list[ast.stmt]:
    """The condition is first asked for a flag, and then the flag."""
    node = block[at]
    assert isinstance(node, ast.If)
    yes, no = (ast.Assign(targets=[ast.Name(name, ast.Store())], value=ast.Constant(each), lineno=0) for each in (True, False))
    asked = ast.If(test=node.test, body=[yes], orelse=[no])
    return [asked, ast.If(test=ast.Name(name, ast.Load()), body=node.body, orelse=node.orelse), *block[at + 1 :]]


def _is_joined(block: list[ast.stmt], at: int) -> bool:
    node = block[at]
    return isinstance(node, ast.If) and isinstance(node.test, ast.BoolOp) and not _declares(node.body + node.orelse)


def _taken_apart(block: list[ast.stmt], at: int, _: str) -> list[ast.stmt]:
    """`and` is an `if` within an `if`, and `or` one behind the other, with what they share standing twice."""
    node = block[at]
    assert isinstance(node, ast.If) and isinstance(node.test, ast.BoolOp)  # noqa: PT018 - told to the type checker
    first, *others = node.test.values
    rest = others[0] if len(others) == 1 else ast.BoolOp(op=node.test.op, values=others)
    if isinstance(node.test.op, ast.And):
        inner = ast.If(test=rest, body=node.body, orelse=deepcopy(node.orelse))
        return [ast.If(test=first, body=[inner], orelse=node.orelse), *block[at + 1 :]]
    behind = ast.If(test=rest, body=deepcopy(node.body), orelse=node.orelse)
    return [ast.If(test=first, body=node.body, orelse=[behind]), *block[at + 1 :]]


def _has_ternary(block: list[ast.stmt], at: int) -> bool:
    node = block[at]
    return isinstance(node, ast.Return | ast.Assign) and isinstance(node.value, ast.IfExp)


def _without_ternary(block: list[ast.stmt], at: int, _: str) -> list[ast.stmt]:
    node = block[at]
    assert isinstance(node, ast.Return | ast.Assign)
    assert isinstance(node.value, ast.IfExp)
    yes, no = deepcopy(node), deepcopy(node)
    yes.value, no.value = node.value.body, node.value.orelse
    return [ast.If(test=node.value.test, body=[yes], orelse=[no]), *block[at + 1 :]]


_STEPS_OF = (
    _Step(_has_tail, _with_tail),
    _Step(_is_if, _by_flag),
    _Step(_is_joined, _taken_apart),
    _Step(_has_ternary, _without_ternary),
)
