"""Small changes of lines that two versions of the project have in common, for `benchmarks.mutation`.

Lines are taken from the functions of the given packages that stand in another file of the version before, with the same name
and, but for docstrings, annotations and decorators, the same syntax. Each mutant is one small change of such a line: a
comparison, a constant, a condition or an operator, a value not returned, a statement left out. Not changed are texts of errors,
of the log and within f-strings, and what a class or a module says outside of functions.
"""

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

LOGS = {"log", "logger", "logging"}
"""Names of what is only said."""

SWAPPED: Mapping[type[ast.AST], Callable[[], Any]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

Function = ast.FunctionDef | ast.AsyncFunctionDef

# What can be changed in a function.


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One change that can be made in a file."""

    node: ast.expr | ast.stmt
    """What is replaced."""
    text: str
    lines: range
    """The statement's own lines, without those of its body."""


@singledispatch
def changes(node: ast.AST) -> Iterator[str]:
    """What may stand in the place of an expression."""
    yield from ()


@changes.register
def _(node: ast.Compare) -> Iterator[str]:
    yield ast.unparse(ast.Compare(node.left, [SWAPPED[type(node.ops[0])](), *node.ops[1:]], node.comparators))


@changes.register
def _(node: ast.BoolOp) -> Iterator[str]:
    yield ast.unparse(ast.BoolOp(SWAPPED[type(node.op)](), node.values))


@changes.register
def _(node: ast.BinOp) -> Iterator[str]:
    texts = any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right))
    if type(node.op) in SWAPPED and not texts:
        yield ast.unparse(ast.BinOp(node.left, SWAPPED[type(node.op)](), node.right))


@changes.register
def _(node: ast.UnaryOp) -> Iterator[str]:
    if isinstance(node.op, ast.Not):
        yield ast.unparse(node.operand)


@changes.register
def _(node: ast.Constant) -> Iterator[str]:
    value = node.value
    if isinstance(value, bool):
        yield str(not value)
    elif isinstance(value, int | float):
        yield str(value + 1)
    elif isinstance(value, str):
        yield repr("" if value else "changed")


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def conditions(node: ast.AST) -> list[ast.expr]:
    """What decides in it whether something is done."""
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        return [node.test]
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return [test for part in node.generators for test in part.ifs]
    return []


def without(statement: ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """What may stand in the place of a whole statement, or of the value that it returns."""
    if isinstance(statement, ast.Return) and statement.value and not _is_none(statement.value):
        yield statement.value, "None"
    elif isinstance(statement, ast.Expr | ast.AugAssign | ast.Raise | ast.Delete):
        yield statement, "pass"
    elif isinstance(statement, ast.Break | ast.Continue):
        yield statement, "continue" if isinstance(statement, ast.Break) else "break"


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def statements(body: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Those that do something, from the outermost in, and without what is only said: docstrings and the log."""
    for part in body:
        if isinstance(part, ast.stmt) and not _only_says(part):
            yield part
        if isinstance(part, ast.stmt | ast.excepthandler | ast.match_case) and not _only_says(part):
            inner = (getattr(part, name, ()) for name in ("body", "handlers", "cases", "orelse", "finalbody"))
            for below in inner:
                yield from statements(below)


def _only_says(part: ast.AST) -> bool:
    if not isinstance(part, ast.Expr):
        return isinstance(part, ast.If) and ast.unparse(part.test).endswith("TYPE_CHECKING")
    if isinstance(part.value, ast.Call) and isinstance(part.value.func, ast.Attribute):
        return ast.unparse(part.value.func.value) in LOGS
    return isinstance(part.value, ast.Constant)


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """A statement and the expressions of its own, down to what has no place of its own in the file or is only for types."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "args") and isinstance(node, ast.AnnAssign | ast.Lambda):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.expr | ast.comprehension | ast.keyword | ast.withitem) and not _is_for_types(node, part):
                yield from expressions(part)


def _is_for_types(node: ast.AST, part: ast.AST) -> bool:
    return isinstance(part, ast.JoinedStr) or (
        isinstance(node, ast.Call) and ast.unparse(node.func) == "cast" and part is node.args[0]
    )


def sites(function: Function) -> Iterator[Site]:
    """All changes of a function, in the order of its syntax."""
    for statement in statements(function.body):
        below = [part.lineno for part in ast.iter_child_nodes(statement) if isinstance(part, ast.stmt)]
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        lines = range(first, max(first, min([last, *(line - 1 for line in below)])) + 1)
        for node, text in without(statement):
            yield Site(node=node, text=text, lines=lines)
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Raise | ast.Assert):
            continue
        for part in expressions(statement):
            for test in conditions(part):
                # One that is always true may be a loop without end, which costs much and says little.
                for text in ("False",) if isinstance(part, ast.While) else ("True", "False"):
                    yield Site(node=test, text=text, lines=lines)
            if isinstance(part, ast.expr):
                yield from (Site(node=part, text=f"({text})", lines=lines) for text in changes(part))


# The same change in two versions.


class Bare(ast.NodeTransformer):
    """Takes away what may differ between two versions of what is the same."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._bare(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._bare(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def _bare(self, node: Function) -> ast.AST:
        node.returns, node.decorator_list = None, []
        arguments = node.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if argument:
                argument.annotation = None
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A function, and where it stands."""

    path: str
    node: Function

    @property
    def key(self) -> str:
        return ast.dump(Bare().visit(copy.deepcopy(self.node)))


def functions(tree: Path, packages: Sequence[str] = ("",)) -> dict[str, Found]:
    """The functions and methods of a version by what they do; not those that stand there twice."""
    found: dict[str, list[Found]] = defaultdict(list)
    package = tree / "src" / "journeyman"
    for path in sorted(path for name in packages for path in (package / name).rglob("*.py")):
        for node in _outermost(ast.parse(path.read_text(encoding="utf-8"))):
            function = Found(path=str(path.relative_to(tree)), node=node)
            found[function.key].append(function)
    return {key: same[0] for key, same in found.items() if len(same) == 1}


def _outermost(node: ast.AST) -> Iterator[Function]:
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part
        else:
            yield from _outermost(part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a mutant is in one version."""

    path: str
    function: range
    lines: range
    start: tuple[int, int]
    end: tuple[int, int]
    """Lines from 1, and bytes from 0, as in `ast`."""

    @classmethod
    def of(cls, site: Site, function: Found) -> "Place":
        node, whole = site.node, function.node
        return cls(
            path=function.path,
            function=range(whole.lineno + 1, (whole.end_lineno or whole.lineno) + 1),
            lines=site.lines,
            start=(node.lineno, node.col_offset),
            end=(node.end_lineno or node.lineno, node.end_col_offset or 0),
        )

    def replaced(self, source: bytes, text: str) -> bytes:
        lines = source.splitlines(keepends=True)
        (first, left), (last, right) = self.start, self.end
        head, tail = b"".join(lines[: first - 1]) + lines[first - 1][:left], lines[last - 1][right:] + b"".join(lines[last:])
        return head + text.encode() + tail


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change, and where it is made before and after."""

    package: str
    places: tuple[Place, Place]
    was: str
    text: str

    def __str__(self) -> str:
        place = self.places[1]
        return f"{place.path}:{place.start[0]}: {self.was} -> {self.text}"


def mutants(trees: tuple[Path, Path], packages: Sequence[str], seed: int) -> list[Mutant]:
    """All there are, in a drawn order: as long as there are lines without one, each is on a line of its own."""
    before, after = functions(trees[0]), functions(trees[1], packages)
    by_line: dict[tuple[str, int], list[Mutant]] = defaultdict(list)
    for key, now in after.items():
        then = before.get(key)
        if then is None or then.path == now.path:
            continue
        for old, new in zip(sites(then.node), sites(now.node), strict=True):
            mutant = Mutant(
                package=Path(now.path).parts[2],
                places=(Place.of(old, then), Place.of(new, now)),
                was=ast.unparse(new.node).split("\n")[0],
                text=new.text,
            )
            by_line[now.path, new.node.lineno].append(mutant)
    chance = random.Random(seed)
    left = [chance.sample(found, len(found)) for _, found in sorted(by_line.items())]
    drawn: list[Mutant] = []
    while left:
        drawn += [found.pop() for found in chance.sample(left, len(left))]
        left = [found for found in left if found]
    return drawn
