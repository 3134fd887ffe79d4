"""How large and how tangled Python code is, by its syntax tree alone."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from journeyman.rewards.development.profile import Profile
from journeyman.rewards.development.work import Function, functions, lines_of

_ENUMS = {"Enum", "IntEnum", "StrEnum", "Flag", "IntFlag", "ReprEnum"}
_BLOCKS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.TryStar | ast.Match
_BRANCHES = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.IfExp | ast.Assert | ast.match_case
_NEW_SCOPE = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class Measure(NamedTuple):
    """One number that a profile may limit."""

    limit: str
    """The limit's name in `Profile`."""
    where: str
    """`path`, or `path:line name`."""
    value: int
    unit: str
    """The function or class, dotted; empty for the file."""


def sources(text: str, tree: ast.Module) -> dict[str, str]:
    """What each unit is made of, without comments and positions: two that are equal were not changed."""
    classes = {node.name: ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    return {"": text, **classes, **{name: ast.unparse(node) for name, node in functions(tree)}}


def of_file(path: str, text: str, tree: ast.Module) -> Iterator[Measure]:
    """Every measure of one file: its own, and those of its functions and classes."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    free = [node for node in ast.walk(tree) if isinstance(node, ast.If | ast.Try | ast.Module)]
    yield Measure("file_lines", path, len(text.splitlines()), "")
    yield Measure("classes", path, len(classes), "")
    yield Measure("enums", path, sum(bool(_ENUMS & set(_bases(node))) for node in classes), "")
    yield Measure("functions", path, sum(isinstance(each, Function) for node in free for each in _children(node)), "")
    for name, function in functions(tree):
        yield from _of_function(f"{path}:{function.lineno} {name}", name, function)
    bases = {each.name: _bases(each) for each in classes}
    for node in classes:
        where = f"{path}:{node.lineno} {node.name}"
        yield Measure("class_lines", where, lines_of(node), node.name)
        yield Measure("inheritance", where, _depth(node.name, bases), node.name)


def forbidden(path: str, tree: ast.Module, profile: Profile) -> Iterator[tuple[str, str]]:
    """Where a forbidden module is imported, and which."""
    for node in ast.walk(tree):
        for name in _imported(node):
            for module in profile.forbidden_imports:
                if name == module or name.startswith(f"{module}."):
                    yield f"{path}:{getattr(node, 'lineno', 1)}", name


def _of_function(where: str, name: str, node: Function) -> Iterator[Measure]:
    yield Measure("function_lines", where, lines_of(node), name)
    yield Measure("parameters", where, _parameters(node, method="." in name), name)
    yield Measure("complexity", where, complexity(node), name)
    yield Measure("nesting", where, nesting(node.body), name)


def complexity(node: Function) -> int:
    """McCabe's: one, and one more for each branch; nested functions count for themselves."""
    return 1 + sum(_weight(each) for each in _own(node))


def nesting(body: list[ast.stmt]) -> int:
    """The deepest block within a block."""
    return max((_nested(node) for node in body), default=0)


def _nested(node: ast.stmt) -> int:
    if not isinstance(node, _BLOCKS):
        return 0
    bodies = [getattr(part, "body", []) for part in (node, *getattr(node, "handlers", ()), *getattr(node, "cases", ()))]
    bodies.append(getattr(node, "finalbody", []))
    rest = getattr(node, "orelse", [])
    # `elif` is an If alone in the else of an If, and reads as one level.
    chained = _nested(rest[0]) if isinstance(node, ast.If) and len(rest) == 1 and isinstance(rest[0], ast.If) else 0
    deepest = max(nesting(body) for body in bodies)
    return max(1 + deepest, chained or 1 + nesting(rest))


def _weight(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, _BRANCHES))


def _own(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _NEW_SCOPE):
            yield child
            yield from _own(child)


def _children(node: ast.If | ast.Try | ast.Module) -> Iterator[ast.stmt]:
    """The statements at the top of a file, those under `if` and `try` included, not those within classes and functions."""
    yield from node.body
    yield from getattr(node, "orelse", ())
    for handler in getattr(node, "handlers", ()):
        yield from handler.body


def _parameters(node: Function, *, method: bool) -> int:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    taken = bool(method and positional and positional[0].arg in ("self", "cls"))
    stars = (arguments.vararg is not None) + (arguments.kwarg is not None)
    return len(positional) + len(arguments.kwonlyargs) + stars - taken


def _bases(node: ast.ClassDef) -> list[str]:
    named = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [ast.unparse(base).rpartition(".")[2] for base in named]


def _depth(name: str, bases: dict[str, list[str]], below: frozenset[str] = frozenset()) -> int:
    """Ancestors that are not in the file count as one: what they inherit is not shown."""
    parents = [base for base in bases.get(name, ()) if base not in ("object", "Protocol", "Generic")]
    met = below | {name}
    return max((1 if base in met else 1 + _depth(base, bases, met) for base in parents), default=0)


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []
