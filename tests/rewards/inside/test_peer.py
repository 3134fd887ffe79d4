"""The two ends, as two threads with a wire between them."""

import queue
import threading
import types
from collections.abc import Iterator
from datetime import UTC, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.inside.candidate import load
from journeyman.rewards.inside.checker import Checker, start
from journeyman.rewards.inside.peer import CannotCross, Peer

CODE = """
import collections, enum
class AlwaysEqual:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    def __contains__(self, other): return True
    def __iter__(self): return iter(())
    def __sub__(self, other): return self
    def __abs__(self): return self
def equal(*_): return AlwaysEqual()
def echo(x): return x
def sort(x): x.sort(); return None
def append_shared(a, b): a[0].append(9); return a is b, a[0]
def fail(): raise KeyError("k")
class Wrong(ValueError):
    pass
def wrong(): raise Wrong("no", 3)
class Vector:
    def __init__(self, x, y): self.x, self.y = x, y
    def __add__(self, o): return Vector(self.x + o.x, self.y + o.y)
    def __eq__(self, o): return (self.x, self.y) == (o.x, o.y)
    def __hash__(self): return 1
    def __contains__(self, v): return v in (self.x, self.y)
def numbers(): yield 1; yield 2
Point = collections.namedtuple("Point", "x y")
class Color(enum.IntEnum): RED = 1
def back(f, x): return f(f(x))
def peek(node): return node._secret
def globals_of(f): return f.__globals__
def walk(node):
    out = []
    while node is not None:
        out.append(node.value); node = node.next
    return out
def reverse(node):
    last = None
    while node: node.next, last, node = last, node, node.next
    return last
def counted(s): return collections.Counter(s)
async def later(x): return x + 1
"""


class Node:
    def __init__(self, value: int, next: "Node | None" = None) -> None:
        self.value, self.next, self._secret = value, next, 1


@pytest.fixture(scope="module")
def met() -> Iterator[Checker]:
    module = types.ModuleType("candidate_code")
    exec(CODE, vars(module))
    import sys

    asked: queue.Queue[str] = queue.Queue()
    answered: queue.Queue[str] = queue.Queue()

    def answer(message: str) -> str:
        if message:
            answered.put(message)
        return asked.get(timeout=20)

    def ask(message: str) -> str:
        asked.put(message)
        return answered.get(timeout=20)

    candidate = Peer(answer)
    candidate.lend(load)
    thread = threading.Thread(target=candidate.serve_until_the_end, args=("",))
    thread.start()
    made = start(ask, modules=["candidate_code"], own=[__name__])
    sys.meta_path.pop(0)
    sys.modules["candidate_code"] = module
    yield made
    asked.put("{}")
    thread.join(timeout=20)
    del sys.modules["candidate_code"]


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.integers(-1439, 1439).map(lambda m: timezone(timedelta(minutes=m))))
    | st.times()
    | st.timedeltas()
    | st.fractions()
    | st.decimals(allow_nan=False),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers() | st.text())
        | st.frozensets(st.binary())
    ),
    max_leaves=20,
)


@given(value=PLAIN)
def test_plain_data_comes_back_as_it_went(met: Checker, value: Any) -> None:
    back = met.name("candidate_code", "echo")(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, set | frozenset | list | tuple | dict)


def test_an_object_that_is_equal_to_everything_is_equal_to_nothing(met: Checker) -> None:
    made = met.name("candidate_code", "equal")(1)
    assert made != 5
    assert not made == [1, 2]  # noqa: SIM201
    assert 3 not in made
    with pytest.raises(TypeError):
        abs(made - 3.0) < 1e-6  # noqa: B015


def test_what_a_function_does_to_its_arguments_is_done(met: Checker) -> None:
    mine = [3, 1, 2]
    assert met.name("candidate_code", "sort")(mine) is None
    assert mine == [1, 2, 3]
    outer = [[1]]
    same, inner = met.name("candidate_code", "append_shared")(outer, outer)
    assert same
    assert outer == [[1, 9]]
    assert inner is outer[0]


def test_a_cycle_crosses(met: Checker) -> None:
    loop: list[Any] = [1]
    loop.append(loop)
    assert met.name("candidate_code", "echo")(loop) is loop


def test_errors_are_raised_by_name_and_the_codes_own_by_a_class_that_stands_for_it(met: Checker) -> None:
    with pytest.raises(KeyError, match="k"):
        met.name("candidate_code", "fail")()
    wrong = met.name("candidate_code", "Wrong")
    assert issubclass(wrong, ValueError)
    with pytest.raises(wrong) as caught:
        met.name("candidate_code", "wrong")()
    assert caught.value.args == ("no", 3)


def test_a_class_that_the_tests_name_works_from_afar(met: Checker) -> None:
    vector = met.name("candidate_code", "Vector")
    one = vector(1, 2)
    assert (one.x, one.y) == (1, 2)
    assert one + vector(1, 1) == vector(2, 3)
    assert one != vector(0, 0)
    assert 2 in one
    assert isinstance(one, vector)
    one.x = 7
    assert one.x == 7


def test_named_tuples_enums_counters_generators_and_coroutines_are_what_they_are(met: Checker) -> None:
    point = met.name("candidate_code", "Point")(1, 2)
    assert point == (1, 2)
    assert point.x == 1
    assert met.name("candidate_code", "Color").RED == 1
    assert list(met.name("candidate_code", "numbers")()) == [1, 2]
    assert met.name("candidate_code", "counted")("aab") == {"a": 2, "b": 1}

    async def wait() -> Any:
        return await met.name("candidate_code", "later")(1)

    with pytest.raises(StopIteration) as done:
        wait().send(None)
    assert done.value.value == 2


def test_functions_and_objects_of_the_tests_own_classes_can_be_used_by_the_code(met: Checker) -> None:
    assert met.name("candidate_code", "back")(lambda x: x + 1, 1) == 3
    third = Node(3)
    first = Node(1, Node(2, third))
    assert met.name("candidate_code", "walk")(first) == [1, 2, 3]
    assert met.name("candidate_code", "reverse")(first) is third
    assert met.name("candidate_code", "walk")(third) == [3, 2, 1]


def test_the_code_cannot_look_behind_what_it_was_handed(met: Checker) -> None:
    with pytest.raises(Exception, match="not allowed"):
        met.name("candidate_code", "peek")(Node(1))
    with pytest.raises(AttributeError):
        met.name("candidate_code", "globals_of")(lambda: 0)


def test_what_cannot_be_handed_over_is_said(met: Checker) -> None:
    with pytest.raises(CannotCross):
        met.name("candidate_code", "echo")(types.ModuleType("m"))
    assert met.could_not_cross is not None


def test_a_class_of_the_codes_own_cannot_be_derived_from_afar(met: Checker) -> None:
    with pytest.raises(CannotCross):

        class Longer(met.name("candidate_code", "Vector")):  # type: ignore[misc]
            pass

    assert met.could_not_cross is not None


def test_a_name_that_is_not_there_is_a_name_error(met: Checker) -> None:
    with pytest.raises(NameError):
        met.name("candidate_code", "absent")
