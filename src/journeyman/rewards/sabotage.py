"""Makes tests that must fail of tests that must pass: what passes both has not been tested.

An assertion that compares with a literal gets another literal, so that not even who reads the tests knows which of two versions
is the real one. Where something else is expected, it is mostly asked to equal that and more: an object that equals everything
still does. Others are turned round.
"""

import ast
import copy
import random
from collections.abc import Collection
from typing import Any

_RARE = ("EOFError", "BufferError", "StopAsyncIteration")
"""Errors that hardly any code raises and hardly any test expects."""
_MOSTLY = 0.75
_TURNED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


def names_of_tests(text: str) -> tuple[str, ...]:
    """The names of the tests in a file, `Class.name` for methods, in order.

    Raises:
        SyntaxError: It is no Python.
    """
    return tuple(name for name, _ in _tests(ast.parse(text)))


def sabotaged(text: str, names: Collection[str], chance: random.Random) -> tuple[str, frozenset[str]]:
    """The file with other expectations in the tests of these names, and those of them that have any to change.

    Comments and spacing go, so that a version with no change looks like the others.
    """
    tree = ast.parse(text)
    changed = set()
    for name, function in _tests(tree):
        if name in names:
            spoiler = _Spoiler(chance)
            function.body = [spoiler.visit(statement) for statement in function.body]
            if spoiler.changes:
                changed.add(name)
    return ast.unparse(ast.fix_missing_locations(tree)), frozenset(changed)


def _tests(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    found: list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += [
                (f"{node.name}.{inner.name}", inner)
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and inner.name.startswith("test")
            ]
    return found


class _Spoiler(ast.NodeTransformer):
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.changes = 0
        # Alike in all of a test: one assertion that fails hides what the others would have shown.
        self._asks_for_more = chance.random() < _MOSTLY

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        self.changes += 1
        return ast.copy_location(ast.Assert(test=self._turned(node.test), msg=None), node)

    def visit_With(self, node: ast.With) -> ast.AST:
        for item in node.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and _last_name(call.func) == "raises" and call.args:
                others = [name for name in _RARE if name != _last_name(call.args[0])]
                call.args[0] = ast.Name(self.chance.choice(others), ast.Load())
                self.changes += 1
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The assertions of `unittest`."""
        turned = {"assertEqual": "assertNotEqual", "assertTrue": "assertFalse", "assertFalse": "assertTrue"}
        name = _last_name(node.func)
        if name == "assertEqual" and len(node.args) == 2:
            for place in (1, 0):
                if (other := self._other(node.args[place])) is not None:
                    node.args[place] = other
                    self.changes += 1
                    return self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and name in turned:
            node.func.attr = turned[name]
            self.changes += 1
        return self.generic_visit(node)

    def _turned(self, test: ast.expr) -> ast.expr:
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return ast.UnaryOp(ast.Not(), test)
        if isinstance(test.ops[0], ast.Eq | ast.Is) and (other := self._with_another(test)):
            return other
        if isinstance(test.ops[0], ast.Lt | ast.LtE) and (far := self._far(test)):
            return far
        if isinstance(test.ops[0], ast.Eq) and self._asks_for_more:
            return self._more(test)
        return ast.Compare(test.left, [_TURNED[type(test.ops[0])]()], test.comparators)

    def _with_another(self, test: ast.Compare) -> ast.Compare | None:
        """`f(x) == 3` or `3 == f(x)` with another literal."""
        if (other := self._other(test.comparators[0])) is not None:
            return ast.Compare(test.left, test.ops, [other])
        if (other := self._other(test.left)) is not None:
            return ast.Compare(other, test.ops, test.comparators)
        return None

    def _far(self, test: ast.Compare) -> ast.Compare | None:
        """`abs(f(x) - 3.14) < 0.01` with a number that is further away than that."""
        match test:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=left, op=ast.Sub(), right=right)]),
                comparators=[ast.Constant(value=int() | float() as margin)],
            ):
                value = next((number for side in (right, left) if (number := _number(side)) is not None), None)
                if value is None:
                    return None
                far = ast.Constant(value + self.chance.choice((-1, 1)) * (2 + self.chance.randrange(8)) * (1 + 2 * margin))
                sides = (left, far) if _number(right) is not None else (far, right)
                call = ast.Call(ast.Name("abs", ast.Load()), [ast.BinOp(sides[0], ast.Sub(), sides[1])], [])
                return ast.Compare(call, test.ops, test.comparators)
        return None

    def _more(self, test: ast.Compare) -> ast.Compare:
        """`f(x) == expected` as `f(x) == (expected, None)`, on the side where no call is: the other is the code's."""
        left, right = test.left, test.comparators[0]
        calls = [any(isinstance(node, ast.Call) for node in ast.walk(side)) for side in (left, right)]
        if (calls[0] and not calls[1]) or (calls[0] == calls[1] and self.chance.random() < 0.5):
            return ast.Compare(left, test.ops, [_and_more(right)])
        return ast.Compare(_and_more(left), test.ops, [right])

    def _other(self, expected: ast.expr) -> ast.expr | None:
        """The same expression with another value, where one can be thought of."""
        places = [node for node in ast.walk(expected) if isinstance(node, ast.Constant) and _variants(node.value)]
        if not places or not _is_literal(expected):
            return None
        made = copy.deepcopy(expected)
        again = [node for node in ast.walk(made) if isinstance(node, ast.Constant) and _variants(node.value)]
        place = self.chance.choice(again)
        place.value = self.chance.choice(_variants(place.value))
        # {1: 1, 2: 1} with another 1 may be the same again.
        return made if ast.literal_eval(made) != ast.literal_eval(expected) else None


def _and_more(node: ast.expr) -> ast.expr:
    return ast.Tuple([node, ast.Constant(None)], ast.Load())


def _number(node: ast.expr) -> float | None:
    if not _is_literal(node):
        return None
    value = ast.literal_eval(node)
    return value if isinstance(value, int | float) else None


def _variants(value: Any) -> list[Any]:
    match value:
        case bool():
            return [not value]
        case int():
            return [value + step for step in (-3, -2, -1, 1, 2, 3)]
        case float():
            return [value + step for step in (-2.5, -1.0, 1.0, 2.5)]
        case str():
            return [value + "s", value[1:], value.swapcase() + "a"] if value else ["a", "x"]
    return []


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
