"""Other texts of a module in which one function differs, or none does anything else: what tasks are given and checked with."""

import ast
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from journeyman.tasks.repository.mutations import Mutation, SourceFunction, functions, mutations

_SEES_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "globals"})
"""Functions that see what local variables are called."""
_READS_CODE = frozenset(
    {
        "inspect",
        "getsource",
        "getsourcelines",
        "linecache",
        "dis",
        "tokenize",
        "__code__",
        "__file__",
        "__loader__",
        "__spec__",
        "__globals__",
        "co_code",
        "pkgutil",
        "runpy",
        "importlib",
        "find_spec",
        "_getframe",
    }
)
"""Names with which code looks at other code instead of running it."""


def function_of(text: str, name: str) -> SourceFunction | None:
    """The function of a module that is called so, as `name` or `Class.name`; the last, where there are several."""
    try:
        found = [each for each in functions(text) if each.name == name]
    except (SyntaxError, ValueError):
        return None
    return found[-1] if found else None


def mutants(text: str, name: str, chance: random.Random) -> list[Mutation]:
    """Small changes of one function, in an order by chance in which those of different kinds come first."""
    by_kind: dict[str, list[Mutation]] = {}
    for each in mutations(text, only=name):
        by_kind.setdefault(each.kind, []).append(each)
    for some in by_kind.values():
        chance.shuffle(some)
    found = [(rank, kind, each) for kind, some in by_kind.items() for rank, each in enumerate(some)]
    chance.shuffle(found)
    return [each for rank, _, each in sorted(found, key=lambda one: one[0])]


def as_rows(changes: Sequence[Mutation]) -> list[dict[str, Any]]:
    """As they are kept among the checks of a task."""
    return [asdict(each) for each in changes]


def of_rows(rows: Sequence[Mapping[str, Any]]) -> list[Mutation]:
    """What `as_rows` made."""
    return [Mutation(**row) for row in rows]


def signature(function: SourceFunction) -> str:
    """As a caller reads it."""
    node = function.node
    result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{function.name}({ast.unparse(node.args)}){result}"


def parameters(function: SourceFunction) -> tuple[str, ...]:
    """Those that a caller gives: without `self` and `cls`."""
    arguments = function.node.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [each for each in (arguments.vararg, arguments.kwarg) if each]
    names = [each.arg for each in every]
    return tuple(names[1:] if "." in function.name and names[:1] in (["self"], ["cls"]) else names)


def without_body(text: str, function: SourceFunction) -> str:
    """The module in which the function has its docstring alone, and raises `NotImplementedError`."""
    return _replaced(text, function, "raise NotImplementedError")


def body_of(text: str, function: SourceFunction) -> list[str]:
    """The lines of a function behind its docstring, comments too."""
    return text.splitlines()[_after_docstring(function) - 1 : function.last]


def _replaced(text: str, function: SourceFunction, new: str) -> str:
    lines, first = text.splitlines(keepends=True), _after_docstring(function)
    indent = " " * function.body[0].col_offset
    return "".join([*lines[: first - 1], f"{indent}{new}\n", *lines[function.last :]])


def _after_docstring(function: SourceFunction) -> int:
    """The first line behind the docstring, or behind the signature."""
    node = function.node
    if function.body is node.body:
        return function.body[0].lineno
    return (node.body[0].end_lineno or node.body[0].lineno) + 1


def docstring(function: SourceFunction) -> str:
    """Without the indentation; empty where there is none."""
    return (ast.get_docstring(function.node) or "").rstrip()


def without_docstring(text: str, function: SourceFunction) -> str:
    """The module in which the function has no docstring; a body that was nothing else is `pass`."""
    return with_docstring(text, function, "")


def with_docstring(text: str, function: SourceFunction, words: str) -> str:
    """The module in which the function has another docstring, in triple quotes."""
    node, lines = function.node, text.splitlines(keepends=True)
    documented = function.body is not node.body
    first = node.body[0].lineno
    last = (node.body[0].end_lineno or first) if documented else first - 1
    indent = " " * node.body[0].col_offset
    told = [f"{indent}{line}".rstrip() for line in words.splitlines()]
    quote = "r" if "\\" in words else ""
    new = [f'{indent}{quote}"""{told[0].strip()}\n', *(f"{line}\n" for line in told[1:]), f'{indent}"""\n'] if told else []
    if not new and not function.body:
        new = [f"{indent}pass\n"]
    return "".join([*lines[: first - 1], *new, *lines[last:]])


def same_but_for_docstring(one: str, other: str, name: str) -> bool:
    """Whether two modules are the same code, and have the same docstrings but for that of one function."""
    try:
        return _undocumented(one, name) == _undocumented(other, name)
    except (SyntaxError, ValueError, RecursionError):
        return False


def _undocumented(text: str, name: str) -> str:
    tree = ast.parse(text)
    bodies = [(tree.body, ""), *((node.body, f"{node.name}.") for node in tree.body if isinstance(node, ast.ClassDef))]
    for body, owner in bodies:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and f"{owner}{node.name}" == name:
                if ast.get_docstring(node, clean=False) is not None:
                    del node.body[0]
                if not node.body or (len(node.body) == 1 and isinstance(node.body[0], ast.Pass)):
                    node.body = [ast.Pass()]
    return ast.dump(tree)


def renamed(text: str) -> str:
    """The same module with other local variables, no comments and other spacing: what only tells the text apart sees it.

    Raises:
        SyntaxError: It is no Python.
    """
    tree = ast.parse(text)
    for node in _outermost(tree):
        names = _locals(node)
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and each.id in names:
                each.id = names[each.id]
    return ast.unparse(tree) + "\n"


def _outermost(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _outermost(node)


def _locals(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Mapping[str, str]:
    """Local variables and what they may be called instead: those that are only ever a plain name."""
    nodes = list(ast.walk(function))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    said = {node.id for node in nodes if isinstance(node, ast.Name)}
    if said & _SEES_NAMES or any(isinstance(node, ast.ClassDef) for node in nodes):
        return {}
    fixed = set[str]()
    for node in nodes:
        match node:
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                fixed.add(name)
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                fixed.update(names)
            case ast.alias(name=name, asname=other):
                fixed.add(other or name.partition(".")[0])
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                fixed.add(name)
            case ast.MatchMapping(rest=str(name)):
                fixed.add(name)
    return {name: f"{name}_of_it" for name in sorted(stored - fixed) if f"{name}_of_it" not in said}


def looks_at_code(text: str) -> str:
    """The name with which Python reads the text or the bytecode of other code; empty where it does not.

    Raises:
        SyntaxError: It is no Python.
    """
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                names = [name]
            case ast.alias(name=name):
                names = name.split(".")
            case ast.ImportFrom(module=str(name)):
                names = name.split(".")
            case ast.Constant(value=str(name)):
                names = re.findall(r"\w+", name) if name.startswith("__") or name.endswith(".py") else []
                names += ["__file__"] if name.endswith(".py") else []
            case _:
                continue
        if found := next((each for each in names if each in _READS_CODE), ""):
            return found
    return ""
