"""Small changes of Python code that may be faults: one at a time, in the text, with all else as it stands byte for byte."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

_SWAPPED: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (r"is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Div: ("/", "*"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}
_COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
KINDS = (
    "comparison",
    "arithmetic",
    "boolean",
    "condition",
    "constant",
    "return",
    "arguments",
    "statement",
    "loop",
    "keyword",
    "index",
    "augmented",
)
"""What is changed, each by an operator of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One change."""

    kind: str
    function: str
    """The function that it is in, as `name` or `Class.name`."""
    line: int
    """Where it begins, from 1."""
    old: str
    new: str
    start: int
    """The place of `old` in the text, in characters."""

    def applied(self, text: str) -> str:
        return f"{text[: self.start]}{self.new}{text[self.start + len(self.old) :]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFunction:
    """A function, or a method, of a module."""

    name: str
    """`name` or `Class.name`."""
    node: ast.FunctionDef | ast.AsyncFunctionDef
    first: int
    """Its first line with decorators, and the last."""
    last: int

    @property
    def body(self) -> list[ast.stmt]:
        """Without the docstring."""
        return self.node.body[1:] if ast.get_docstring(self.node, clean=False) is not None else self.node.body

    @property
    def lines(self) -> range:
        """Those of the body."""
        return range(self.body[0].lineno, self.last + 1) if self.body else range(0)

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split("."))


def functions(text: str) -> tuple[SourceFunction, ...]:
    """All functions and methods of a module, but not those within functions.

    Raises:
        SyntaxError: It is no Python.
    """
    tree, found = ast.parse(text), list[SourceFunction]()
    for body, owner in [
        (tree.body, ""),
        *((node.body, f"{node.name}.") for node in tree.body if isinstance(node, ast.ClassDef)),
    ]:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
                found.append(
                    SourceFunction(name=f"{owner}{node.name}", node=node, first=first, last=node.end_lineno or node.lineno)
                )
    return tuple(found)


class _Text:
    """A text in which nodes are found by their places."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._lines = text.splitlines(keepends=True)
        self._begins = [0]
        for line in self._lines:
            self._begins.append(self._begins[-1] + len(line))

    def place(self, line: int, column: int) -> int:
        """In characters, of a line from 1 and a column in UTF-8 bytes."""
        own = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._begins[line - 1] + (column if own.isascii() else len(own.encode()[:column].decode(errors="replace")))

    def span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        return self.place(node.lineno, node.col_offset), self.place(node.end_lineno or 0, node.end_col_offset or 0)

    def parses(self, function: SourceFunction, start: int, end: int, new: str) -> bool:
        """Whether a function is still Python with this between two places of the text. The rest of a long file is not read."""
        first, last = self.place(function.first, 0), self.place(function.last + 1, 0)
        below = "if True:\n" if self.text[first].isspace() else ""
        try:
            ast.parse(f"{below}{self.text[first:start]}{new}{self.text[end:last]}")
        except (SyntaxError, ValueError, RecursionError):
            return False
        return True


def mutations(text: str, *, only: str = "") -> tuple[Mutation, ...]:
    """All changes of one operator at one place, in the functions of a module, in the order of their places.

    Args:
        only: The name of the one function that is wanted.

    Raises:
        SyntaxError: It is no Python.
    """
    within, found = _Text(text), list[Mutation]()
    for function in (each for each in functions(text) if only in ("", each.name)):
        for node in (node for statement in function.body for node in ast.walk(statement)):
            for kind, start, end, new in _changes(node, within):
                if text[start:end] != new and within.parses(function, start, end, new):
                    line = text.count("\n", 0, start) + 1
                    found.append(
                        Mutation(kind=kind, function=function.name, line=line, old=text[start:end], new=new, start=start)
                    )
    return tuple(sorted(dict.fromkeys(found), key=lambda each: (each.start, each.kind, each.new)))


_Change = tuple[str, int, int, str]


def _changes(node: ast.AST, within: _Text) -> Iterator[_Change]:
    match node:
        case ast.Compare() | ast.BinOp() | ast.BoolOp() | ast.AugAssign():
            yield from _operators(node, within)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            start, end = within.span(test)
            yield "condition", start, end, f"not ({within.text[start:end]})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "condition", *within.span(node), f"({within.text[slice(*within.span(operand))]})"
        case ast.Constant():
            yield from _constant(node, within)
        case ast.Call():
            yield from _call(node, within)
        case ast.Slice(lower=lower, upper=upper):
            for each in (lower, upper):
                if each is not None and not isinstance(each, ast.Constant):
                    start, end = within.span(each)
                    yield "index", start, end, f"{within.text[start:end]} + 1"
        case ast.stmt():
            yield from _statement(node, within)


def _statement(node: ast.stmt, within: _Text) -> Iterator[_Change]:
    match node:
        case ast.Return(value=ast.Constant(value=None) | None):
            return
        case ast.Return(value=ast.expr() as value):
            yield "return", *within.span(value), "None"
        case ast.Break() | ast.Continue():
            yield "loop", *within.span(node), "continue" if isinstance(node, ast.Break) else "break"
        case ast.Expr(value=ast.Call()) | ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Delete():
            yield "statement", *within.span(node), "pass"


def _operators(node: ast.Compare | ast.BinOp | ast.BoolOp | ast.AugAssign, within: _Text) -> Iterator[_Change]:
    match node:
        case ast.Compare(left=left, ops=ops, comparators=others):
            for one, op, other in zip([left, *others], ops, others, strict=False):
                yield from _between(within, one, other, op)
        case ast.BinOp(left=left, op=op, right=right):
            # The one of a text puts values into it.
            if not (isinstance(op, ast.Mod) and isinstance(left, ast.Constant | ast.JoinedStr)):
                yield from _between(within, left, right, op)
        case ast.BoolOp(op=op, values=values):
            for one, other in pairwise(values):
                yield from _between(within, one, other, op)
        case ast.AugAssign(op=ast.Add() | ast.Sub() as op, target=target, value=value):
            start, end = within.span(target)[1], within.span(value)[0]
            sign, other_sign = ("+=", "-=") if isinstance(op, ast.Add) else ("-=", "+=")
            yield "augmented", start, end, within.text[start:end].replace(sign, other_sign)


def _between(within: _Text, one: ast.AST, other: ast.AST, op: ast.AST) -> Iterator[_Change]:
    """The operator between two operands, wherever brackets and blanks are."""
    pattern, new = _SWAPPED.get(type(op), ("", ""))
    start, end = within.span(one)[1], within.span(other)[0]
    word = rf"(?<![\w]){pattern}(?![\w])" if pattern[:1].isalpha() else pattern
    if pattern and (match := re.search(word, within.text[start:end])):
        kind = "comparison" if isinstance(op, _COMPARISONS) else "boolean" if isinstance(op, ast.boolop) else "arithmetic"
        yield kind, start + match.start(), start + match.end(), new


def _constant(node: ast.Constant, within: _Text) -> Iterator[_Change]:
    start, end = within.span(node)
    match node.value:
        case bool(value):
            yield "constant", start, end, str(not value)
        case int(value):
            yield "constant", start, end, str(value + 1)
            if value > 0:
                yield "constant", start, end, str(value - 1)


def _call(node: ast.Call, within: _Text) -> Iterator[_Change]:
    plain = [each for each in node.args if not isinstance(each, ast.Starred)]
    if len(plain) == len(node.args) and len(plain) >= 2:
        (first, middle), (last, end) = within.span(plain[0]), within.span(plain[1])
        text = within.text
        yield "arguments", first, end, f"{text[last:end]}{text[middle:last]}{text[first:middle]}"
    for number, keyword in enumerate(node.keywords):
        if keyword.arg is not None and (number or node.args):
            before = [*node.args, *(each.value for each in node.keywords[:number])][-1]
            yield "keyword", within.span(before)[1], within.span(keyword)[1], ""
