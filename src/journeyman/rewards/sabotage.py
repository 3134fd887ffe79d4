"""Makes tests that must fail of tests that must pass: what passes both has not been tested.

An assertion that compares with a literal gets another literal, so that not even who reads the tests knows which of several
versions is the real one. Where something else is expected, it is mostly asked to equal that and more: an object that equals
everything still does. Others are turned round.
"""

import ast
import copy
import random
import re
import string
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_RARE = ("EOFError", "BufferError", "StopAsyncIteration")
"""Errors that hardly any code raises and hardly any test expects."""
_RARE_WARNINGS = ("BytesWarning", "UnicodeWarning", "ImportWarning")
_WARNS = ("warns", "assertWarns", "assertWarnsRegex")
_RAISES = ("raises", "assertRaises", "assertRaisesRegex")
_EQUALITIES = ("assertEqual", "assertEquals", "assertListEqual", "assertDictEqual", "assertTupleEqual", "assertSequenceEqual")
_OPPOSITES = {
    "assertEqual": "assertNotEqual",
    "assertTrue": "assertFalse",
    "assertIn": "assertNotIn",
    "assertIs": "assertIsNot",
    "assertIsNone": "assertIsNotNone",
    "assertIsInstance": "assertNotIsInstance",
    "assertAlmostEqual": "assertNotAlmostEqual",
    "assertRegex": "assertNotRegex",
    "assertLess": "assertGreaterEqual",
    "assertGreater": "assertLessEqual",
}
_TURNED_CALLS = (
    _OPPOSITES | {other: one for one, other in _OPPOSITES.items()} | dict.fromkeys(_EQUALITIES[1:], "assertNotEqual")
)
_PASSED_BY = (ast.If, ast.IfExp, ast.ExceptHandler, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.While, ast.Match)
"""Statements whose inside a run may never come to."""
VERSIONS = 4
"""Of a file of tests that runs in one process with the code. What is expected stands as it is in one of them."""
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


_Function = ast.FunctionDef | ast.AsyncFunctionDef
_ASSERTING = re.compile(r"assert[A-Z]|raises$|warns$|fail$")
_AROUND = re.compile(r"setUp|tearDown|setup_|teardown_|pytest_|__")
"""Functions that a framework calls by itself, so that no test can be said to rest on them."""
_NOBODYS = frozenset({*sys.stdlib_module_names, "pytest", "hypothesis", "numpy"})
"""Modules whose functions are not the code under test."""
_MAKERS: Mapping[str, Callable[..., Any]] = {
    each.__name__: each for each in (list, tuple, set, frozenset, dict, sorted, str, bytes, bytearray, complex, float, int)
}
"""Built-in functions that make values of values."""
_SETS_ASIDE = re.compile(r"skip|xfail|expectedFailure", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TestFile:
    """What a file of tests says of itself, read and never run."""

    trees: Mapping[str, ast.Module]
    """Of the file itself under the empty name, and of what it imports that lies beside it, by path."""
    functions: Mapping[str, tuple[_Function, ...]]
    """Tests, and what they call that asserts, by `name` or `Class.name`; each as often as it is defined."""
    tests: Mapping[str, str]
    """The name of every test with the name under which its function stands: an inherited one has its base's."""
    optional: frozenset[str]
    """Tests that pytest may not collect, since nothing says that their class is one of tests."""
    at_import: frozenset[str]
    """Functions that are called when the file is read: what fails in them fails everything."""
    may_skip: frozenset[str]
    """Tests that their author may have set aside: skipped, or expected to fail."""

    @classmethod
    def read(cls, text: str, beside: Mapping[str, bytes] | None = None) -> "TestFile":
        """Raises `SyntaxError` where it is no Python."""
        tree = ast.parse(text)
        trees = {"": tree, **_imported(tree, beside or {})}
        classes: dict[str, ast.ClassDef] = {}
        found: dict[str, list[_Function]] = {}
        for each in trees.values():
            here = {node.name: node for node in each.body if isinstance(node, ast.ClassDef) and node.name not in classes}
            classes |= here
            defined = [(f.name, f) for f in _own(each)]
            defined += [(f"{name}.{f.name}", f) for name, node in here.items() for f in _own(node)]
            known = set(found)
            for name, function in defined:
                if name not in known and (_is_test(function.name) or _may_assert(function)):
                    found.setdefault(name, []).append(function)
        own = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
        top = {function.name for function in _own(tree)}
        tests = {name: name for name in found if name in top and _is_test(name)}
        for kind in own.values():
            tests |= {f"{kind.name}.{name}": where for name, where in _methods(kind, classes).items()}
        always = {getattr(node, "name", "") for node in tree.body}
        unsure = {name for name in tests if "." not in name and name not in always}
        # Once for a class: it reads all of it, and a class of tests is long.
        unlisted = {kind for kind, node in own.items() if not _collected(node)}
        unsure |= {name for name in tests if "." in name and name.partition(".")[0] in unlisted}
        shared = [node for node in tree.body if not isinstance(node, ast.ClassDef) and not _is_a_test(node)]
        aside = any(_sets_aside(node) for node in shared if not isinstance(node, ast.Import | ast.ImportFrom))
        skips = {name for name, where in tests.items() if aside or _may_be_set_aside(name, found[where], classes)}
        functions = {name: tuple(each) for name, each in found.items()}
        called = {_last_name(node.func) for each in trees.values() for node in _calls_at_import(each)}
        return cls(trees, functions, tests, frozenset(unsure), frozenset(called & functions.keys()), frozenset(skips))

    def refers(self, name: str) -> set[str]:
        """The functions that this one names."""
        own, places = name.rpartition(".")[0], set(self.functions)
        found: set[str] = set()
        for node in (node for function in self.functions[name] for node in ast.walk(function)):
            match node:
                case ast.Name(id=called):
                    found.add(called)
                case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=called):
                    found |= {f"{own}.{called}"} | {each for each in places if each.endswith(f".{called}")}
                case ast.Attribute(value=ast.Name(id=kind), attr=called):
                    found.add(f"{kind}.{called}")
        return (found & places) - {name}

    def groups(self) -> list[frozenset[str]]:
        """Functions that rest on each other. What is expected of one decides what becomes of the others."""
        group = {name: {name} for name in self.functions}
        for name in self.functions:
            for other in self.refers(name):
                if group[other] is not group[name]:
                    group[name] |= group[other]
                    group |= dict.fromkeys(group[other], group[name])
        return [frozenset(each) for each in {id(each): each for each in group.values()}.values()]


def names_of_tests(text: str) -> tuple[str, ...]:
    """The names of the tests in a file, `Class.name` for methods, in order.

    Raises:
        SyntaxError: It is no Python.
    """
    return tuple(TestFile.read(text).tests)


def sabotaged(text: str, names: Collection[str], chance: random.Random) -> tuple[str, frozenset[str]]:
    """The file with other expectations in the functions of these names, and those of them that have any to change.

    Comments and spacing go, so that a version with no change looks like the others.
    """
    version = spoiled(text, {}, dict.fromkeys(names, 0), {name: chance.getrandbits(64) for name in names})
    return version.text, version.changed


@dataclass(frozen=True, slots=True)
class TestVersion:
    text: str
    beside: Mapping[str, bytes]
    """What the file imports from beside it, changed as well."""
    changed: frozenset[str]
    """Functions that expect something else."""
    surely: frozenset[str]
    """Those of them that come past a changed expectation whenever they run to their end."""


def spoiled(text: str, beside: Mapping[str, bytes], ranks: Mapping[str, int], seeds: Mapping[str, int]) -> TestVersion:
    """The file with other expectations in some functions: the same seed with another rank gives yet others."""
    read = TestFile.read(text, beside)
    changed, surely = set(), set()
    codes = frozenset(name for tree in read.trees.values() for name in _codes(tree))
    for name in (ranks.keys() & read.functions.keys()) - read.at_import:
        spoiler = _Spoiler(random.Random(seeds[name]), ranks[name], codes)
        for spoiler.inner in (False, True):
            for function in read.functions[name] if not spoiler.changes else ():
                spoiler.choose(function)
                function.body = [spoiler.visit(statement) for statement in function.body]
        changed |= {name} if spoiler.changes else set()
        surely |= {name} if spoiler.sure else set()
    texts = {path: ast.unparse(ast.fix_missing_locations(tree)) for path, tree in read.trees.items()}
    own = texts.pop("")
    others = {path: each.encode() for path, each in texts.items()}
    return TestVersion(own, others, frozenset(changed), frozenset(surely))


def _codes(tree: ast.Module) -> Iterator[str]:
    """Names that are imported from what may be the code under test."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules = [(each.name, each.asname or each.name.partition(".")[0]) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [(node.module or "", each.asname or each.name) for each in node.names]
        else:
            continue
        yield from (name for module, name in modules if module.partition(".")[0] not in _NOBODYS)


def _surely_asserted(node: ast.AST) -> Iterator[ast.Assert]:
    """Assertions that a run comes past whenever it comes to its end."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Assert):
            yield child
        elif not isinstance(child, _PASSED_BY):
            yield from _surely_asserted(child)


def _own(node: ast.Module | ast.ClassDef | ast.If | ast.Try) -> list[_Function]:
    """The functions of a file or class, those that are there only on some machines included."""
    found: list[_Function] = []
    for each in (*node.body, *(node.orelse if isinstance(node, ast.If | ast.Try) else ())):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(each)
        elif isinstance(each, ast.If | ast.Try):
            found += _own(each)
    return found


def _calls_at_import(tree: ast.Module) -> Iterator[ast.Call]:
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If):
            yield from (node for node in ast.walk(statement) if isinstance(node, ast.Call))


def _is_test(name: str) -> bool:
    return name.startswith("test")


def _is_a_test(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and _is_test(node.name)


def _may_assert(function: _Function) -> bool:
    """Whether it can say of a test which calls it that it fails."""
    if _AROUND.match(function.name) or any(_named(each, "fixture") for each in function.decorator_list):
        return False
    return any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Call) and _ASSERTING.match(_last_name(node.func)))
        for node in ast.walk(function)
    )


def _imported(tree: ast.Module, beside: Mapping[str, bytes]) -> dict[str, ast.Module]:
    """What lies beside a file of tests, is none itself, and has a name that the file imports from."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {(node.module or "__init__").rpartition(".")[2], *(alias.name for alias in node.names)}
    found: dict[str, ast.Module] = {}
    for path, text in beside.items():
        stem = path.rpartition("/")[2].removesuffix(".py")
        if path.endswith(".py") and stem in names and not stem.startswith("test"):
            try:
                found[path] = ast.parse(text)
            except (SyntaxError, ValueError):
                continue
    return found


def _methods(node: ast.ClassDef, classes: Mapping[str, ast.ClassDef], seen: frozenset[str] = frozenset()) -> dict[str, str]:
    """The tests of a class, its bases' included, and where the function of each stands."""
    methods: dict[str, str] = {}
    for base in reversed([_last_name(base) for base in node.bases]):
        if base in classes and base not in seen | {node.name}:
            methods |= _methods(classes[base], classes, seen | {node.name})
    return methods | {each.name: f"{node.name}.{each.name}" for each in _own(node) if _is_test(each.name)}


def _collected(node: ast.ClassDef) -> bool:
    """Whether pytest takes it for a class of tests."""
    plain = not any(each.name == "__init__" for each in _own(node)) and not any(_named(each, "__test__") for each in node.body)
    cases = any(_last_name(base).endswith("TestCase") for base in node.bases)
    return plain and (node.name.startswith("Test") or cases)


def _named(node: ast.AST, name: str) -> bool:
    return any(name in (getattr(each, "id", None), getattr(each, "attr", None)) for each in ast.walk(node))


def _sets_aside(node: ast.AST) -> bool:
    words = (getattr(each, "id", None) or getattr(each, "attr", None) for each in ast.walk(node))
    return any(isinstance(word, str) and _SETS_ASIDE.search(word) for word in words)


def _may_be_set_aside(name: str, functions: Sequence[_Function], classes: Mapping[str, ast.ClassDef]) -> bool:
    owner = classes.get(name.partition(".")[0]) if "." in name else None
    around = [] if owner is None else [*owner.decorator_list, *(each for each in owner.body if not _is_a_test(each))]
    return any(_sets_aside(each) for each in (*functions, *around))


class _Spoiler(ast.NodeTransformer):
    def __init__(self, chance: random.Random, rank: int, codes: Collection[str]) -> None:
        self.chance, self.rank, self._codes = chance, rank, codes
        self.changes = 0
        self.sure = False
        self.inner = False
        """Whether functions within functions are changed: what fails in them may be what the code is to cope with."""
        self._only: ast.Assert | None = None
        """The one assertion that is changed, where there is one that surely calls the code: several would hide each other, as
        whoever knows no answer to one of them fails as an honest one does."""
        self._maybe = 0
        # Alike in all of a test: one assertion that fails hides what the others would have shown. Always in the first rank,
        # whose assertion tells the most.
        self._asks_for_more = chance.randrange(1, VERSIONS) != rank
        # Of one version too, since what would agree with more on the one side need not on the other; another of the next.
        self._right_is_codes = (chance.randrange(2) + rank) % 2 == 0

    def _changed(self) -> None:
        self.changes += 1
        self.sure = self.sure or not self._maybe

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not self.inner:
            return node
        maybe = isinstance(node, _PASSED_BY)
        self._maybe += maybe
        try:
            return super().visit(node)
        finally:
            self._maybe -= maybe

    def choose(self, function: _Function) -> None:
        """What to change of a function: another assertion of each rank, first those whose calls stand nowhere else in it. Who
        answers a call by what its assertion expects, changed or not, fails at the same call's other one as honest code does."""
        said = Counter(map(ast.dump, self._asked(function)))
        asking = [each for each in _surely_asserted(function) if self.asks_code(each)]
        drawn = self.chance.sample(asking, len(asking))
        drawn.sort(key=lambda each: any(said[ast.dump(call)] > 1 for call in self._asked(each)))
        self._only = drawn[self.rank % len(drawn)] if drawn else None

    def asks_code(self, node: ast.AST) -> bool:
        """Whether a call of the code stands in it."""
        return any(self._asked(node))

    def _asked(self, node: ast.AST) -> Iterator[ast.Call]:
        for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
            if any(isinstance(each, ast.Name) and each.id in self._codes for each in ast.walk(call.func)):
                yield call

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        if self._only not in (None, node):
            return node
        self._changed()
        return ast.copy_location(ast.Assert(test=self._turned(node.test), msg=None), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Errors and warnings that are expected, and the assertions of `unittest`."""
        if self._only is not None:
            return node
        name = _last_name(node.func)
        if name in (*_RAISES, *_WARNS) and node.args:
            rare = _RARE if name in _RAISES else _RARE_WARNINGS
            others = [name for name in rare if name != _last_name(node.args[0])]
            node.args[0] = ast.Name(self._pick(others), ast.Load())
            self._changed()
        elif isinstance(node.func, ast.Attribute) and name.startswith("assert") and self._asserts(node, node.func):
            self._changed()
        return self.generic_visit(node)

    def _asserts(self, node: ast.Call, function: ast.Attribute) -> bool:
        if function.attr in _EQUALITIES and len(node.args) > 1:
            for place in (1, 0):
                if (other := self._other(node.args[place])) is not None:
                    node.args[place] = other
                    return True
            if self._asks_for_more:
                more = self._more(ast.Compare(node.args[0], [ast.Eq()], [node.args[1]]))
                node.args[:2] = [more.left, *more.comparators]
                function.attr = "assertEqual"
                return True
        turned = _TURNED_CALLS.get(function.attr)
        function.attr = turned or function.attr
        return turned is not None

    def _turned(self, test: ast.expr) -> ast.expr:
        match test:
            case ast.Call(
                func=ast.Attribute(attr="startswith" | "endswith" as end) as asked, args=[ast.Constant(value=str(text))]
            ):
                # An object that says of everything that it begins so says it of this too.
                more = "".join(self.chance.choices(string.ascii_lowercase, k=3))
                return ast.Call(asked, [ast.Constant(text + more if end == "startswith" else more + text)], [])
        if not (isinstance(test, ast.Compare) and len(test.ops) == 1):
            return ast.UnaryOp(ast.Not(), test)
        how, right = test.ops[0], test.comparators[0]
        if isinstance(how, ast.Eq | ast.Is) and (other := self._with_another(test)):
            return other
        if isinstance(how, ast.Lt | ast.LtE) and (far := self._far(test)):
            return far
        if isinstance(how, ast.Eq) and self._asks_for_more:
            return self._more(test)
        if isinstance(how, ast.Lt | ast.Gt) and self._asks_for_more and ast.dump(test.left) != ast.dump(right):
            # What says of everything that it is less still does.
            return ast.Compare(right, test.ops, [test.left])
        return ast.Compare(test.left, [_TURNED[type(how)]()], test.comparators)

    def _pick(self, options: Sequence[Any]) -> Any:
        """One of them, and of the same seed another one for each rank as long as there are any."""
        return self.chance.sample(options, len(options))[self.rank % len(options)]

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
                away = self._pick([sign * distance for sign in (-1, 1) for distance in range(2, 10)])
                far = ast.Constant(value + away * (1 + 2 * margin))
                sides = (left, far) if _number(right) is not None else (far, right)
                call = ast.Call(ast.Name("abs", ast.Load()), [ast.BinOp(sides[0], ast.Sub(), sides[1])], [])
                return ast.Compare(call, test.ops, test.comparators)
        return None

    def _more(self, test: ast.Compare) -> ast.Compare:
        """`f(x) == expected` as `f(x) == (expected, None)`, on the side that is not the code's."""
        left, right = test.left, test.comparators[0]
        if self._is_codes(right, left):
            return ast.Compare(_and_more(left, right), test.ops, [right])
        return ast.Compare(left, test.ops, [_and_more(right, left)])

    def _is_codes(self, side: ast.expr, other: ast.expr) -> bool:
        """Whether one side of a comparison is what the code gave, and the other what is expected: by what is called there."""
        for called in (self.asks_code, _calls):
            if called(side) != called(other):
                return called(side)
        return self._right_is_codes

    def _other(self, expected: ast.expr) -> ast.expr | None:
        """The same expression with another value, where one can be thought of."""
        if (was := _value(expected)) is None:
            return None
        made = copy.deepcopy(expected)
        places = [node for node in ast.walk(made) if isinstance(node, ast.Constant) and _variants(node.value, 0)]
        if not places:
            return None
        place = self.chance.choice(places)
        place.value = self._pick(_variants(place.value, self.chance.randrange(VERSIONS)))
        # {1: 1, 2: 1} with another 1 may be the same again.
        became = _value(made)
        return made if became is not None and became[0] != was[0] else None


def _and_more(node: ast.expr, beside: ast.expr) -> ast.expr:
    """What is expected and more: of the kind that the other side is made, so that it could well be expected."""
    nothing, made = (
        ast.Constant(None),
        beside.func.id if isinstance(beside, ast.Call) and isinstance(beside.func, ast.Name) else "",
    )
    more = [ast.Starred(node, ast.Load()), nothing]
    if made in ("list", "sorted"):
        return ast.List(more, ast.Load())
    if made in ("set", "frozenset"):
        return ast.Set(more)
    if made == "tuple":
        return ast.Tuple(more, ast.Load())
    if made == "dict":
        return ast.Dict(keys=[None, nothing], values=[node, nothing])
    return ast.Tuple([node, nothing], ast.Load())


def _calls(side: ast.expr) -> bool:
    """Whether it calls anything but what makes values of values."""
    called = (node.func for node in ast.walk(side) if isinstance(node, ast.Call))
    return any(not (isinstance(each, ast.Name) and each.id in _MAKERS) for each in called)


def _value(node: ast.expr) -> tuple[Any] | None:
    """What a literal is, or what a built-in function makes of some; `None` where that is not to be told from here."""
    if _is_literal(node):
        return (ast.literal_eval(node),)
    match node:
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _MAKERS:
            values = [_value(each) for each in arguments]
            known = [each[0] for each in values if each is not None]
            try:
                return (_MAKERS[name](*known),) if len(known) == len(values) and _is_small(name, known) else None
            except Exception:  # noqa: BLE001 - whatever is wrong with it, the test says it better
                return None
    return None


def _is_small(name: str, values: Sequence[Any]) -> bool:
    """`bytes(10**9)` is no value to make here."""
    return name not in ("bytes", "bytearray") or not any(isinstance(each, int) for each in values)


def _number(node: ast.expr) -> float | None:
    if not _is_literal(node):
        return None
    value = ast.literal_eval(node)
    return value if isinstance(value, int | float) else None


def _variants(value: Any, place: int) -> list[Any]:
    """Other values. Numbers are neighbours, among which the true one stands at this place: none of them is seen to be it."""
    steps = [number - place for number in range(VERSIONS) if number != place]
    match value:
        case bool():
            return [not value]
        case int():
            return [value + step for step in steps]
        case float():
            return [value + 1.5 * step for step in steps]
        case str():
            return [value + "s", value[1:], value.swapcase() + "a"] if value else ["a", "x", "0"]
    return []


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError):
        return False
    return True


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
