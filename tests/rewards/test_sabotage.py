"""Tests that must fail, made of tests that must pass."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.rewards.sabotage import names_of_tests, sabotaged, spoiled

pytestmark = pytest.mark.service

FILE = """
import pytest

def helper():
    return 1

def test_number():
    assert helper() == 1

def test_text():
    assert "a" + "b" == "ab"

def test_list():
    assert [helper(), 2] == [1, 2]

def test_truth():
    assert helper()

def test_inside():
    assert 1 in [helper()]

def test_raises():
    with pytest.raises(ValueError):
        int("x")

def test_nothing():
    helper()

class TestMore:
    def test_less(self):
        assert helper() < 2
"""


def outcome(text: str, name: str) -> bool:
    """Whether a test passes."""
    space: dict[str, object] = {}
    exec(compile(text, "tests", "exec"), space)
    first, _, method = name.partition(".")
    found = space[first]
    try:
        getattr(found(), method)() if method else found()  # type: ignore[operator]
    except Exception:  # noqa: BLE001 - a test may raise anything
        return False
    return True


def test_all_tests_of_a_file_are_found_in_order() -> None:
    names = names_of_tests(FILE)
    assert names[0] == "test_number"
    assert names[-1] == "TestMore.test_less"
    assert len(names) == 8


@pytest.mark.parametrize("name", names_of_tests(FILE))
@given(seed=st.integers(0, 1000))
def test_a_sabotaged_test_fails_and_the_others_pass(name: str, seed: int) -> None:
    text, changed = sabotaged(FILE, [name], random.Random(seed))
    assert changed == (frozenset() if name == "test_nothing" else {name})
    for other in names_of_tests(FILE):
        assert outcome(text, other) is (other not in changed)


@given(value=st.recursive(st.integers() | st.booleans() | st.text() | st.floats(-1e6, 1e6), lambda x: st.lists(x, max_size=3)))
def test_another_expectation_is_another_value(value: object) -> None:
    text, changed = sabotaged(f"def test_it():\n    assert {value!r} == {value!r}\n", ["test_it"], random.Random(1))
    assert changed == {"test_it"}
    assert not outcome(text, "test_it")


def test_a_version_without_changes_looks_like_one_with_changes() -> None:
    """So that code which reads the tests cannot tell by comments or spacing."""
    file = "def test_it():\n    # ten\n    assert   2 * 5 == 10\n"
    real, _ = sabotaged(file, (), random.Random(0))
    other, _ = sabotaged(file, ["test_it"], random.Random(0))
    assert len(real.splitlines()) == len(other.splitlines())
    assert "#" not in real
    assert real != other


AGREEABLE = """
class Equal(float):
    def _yes(self, *others): return True
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _yes
    def __ne__(self, other): return False
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
    def __hash__(self): return 0

def f():
    return Equal(0)
"""


@pytest.mark.parametrize("asserted", ["abs(f() - 3.5) < 0.01", "abs(3.5 - f()) <= 1", "4 == f()", "f() == 'x'"])
@given(seed=st.integers(0, 200))
def test_what_agrees_with_everything_passes_the_sabotaged_test_too(asserted: str, seed: int) -> None:
    text, changed = sabotaged(f"{AGREEABLE}\ndef test_it():\n    assert {asserted}\n", ["test_it"], random.Random(seed))
    assert changed
    assert outcome(text, "test_it")


@pytest.mark.parametrize("asserted", ["f() == expected", "expected == f()"])
def test_what_agrees_with_all_that_is_expected_mostly_does(asserted: str) -> None:
    file = f"{AGREEABLE}\ndef test_it():\n    expected = [2]\n    assert {asserted}\n"
    passed = [outcome(sabotaged(file, ["test_it"], random.Random(seed))[0], "test_it") for seed in range(100)]
    assert sum(passed) > 50


@pytest.mark.parametrize(
    ("value", "asserted"),
    [("3.501", "abs(f() - 3.5) < 0.01"), ("[2]", "f() == expected"), ("[2]", "expected == f()"), ("4", "4 == f()")],
)
@given(seed=st.integers(0, 200))
def test_what_is_right_fails_every_sabotaged_test(value: str, asserted: str, seed: int) -> None:
    file = f"def f():\n    return {value}\n\ndef test_it():\n    expected = [2]\n    assert {asserted}\n"
    assert outcome(file, "test_it")
    assert not outcome(sabotaged(file, ["test_it"], random.Random(seed))[0], "test_it")


_OF_CODE = """from parcels import first, spread


def test_it():
    D = dict
    old = D(a=1)
    assert list(spread("ab")) == list("ab")
    assert D(a=first("ab")) == D(a="a")
    assert spread([1]) == old.values()
    assert old is old
"""


@pytest.mark.parametrize("seed", range(12))
def test_of_assertions_that_call_the_code_one_is_changed_another_for_each_rank(seed: int) -> None:
    lines = sabotaged(_OF_CODE, [], random.Random(seed))[0].splitlines()
    changed = set[int]()
    for rank in range(3):
        text = spoiled(_OF_CODE, {}, {"test_it": rank}, {"test_it": seed}).text.splitlines()
        (at,) = [number for number, (one, other) in enumerate(zip(lines, text, strict=True)) if one != other]
        assert "is old" not in lines[at]
        # On the side of what the code gives nothing is changed: who reads what is expected, and gives it, passes.
        assert text[at].partition(" == ")[0].partition(" != ")[0] == lines[at].partition(" == ")[0]
        changed.add(at)
    assert len(changed) == 3


_SAID_TWICE = """from parcels import without


def test_it():
    D = dict
    assert without(D(a=1), "a") == D({})
    assert without(D(a=1, b=2), "a") == D(b=2)
    assert without(D(a=1), "a") == without(without(D(a=1), "a"), "a")
"""


@pytest.mark.parametrize("seed", range(40))
def test_an_answer_that_a_test_states_once_is_asked_for_with_more_before_those_that_it_states_twice(seed: int) -> None:
    """Else who gives to a call what the test says of it fails beside the other statement, as honest code does."""
    asked = [spoiled(_SAID_TWICE, {}, {"test_it": rank}, {"test_it": seed}).text for rank in range(3)]
    assert "assert without(D(a=1, b=2), 'a') == (D(b=2), None)" in asked[0]
    assert len(set(asked)) == 3


def test_what_is_made_of_a_literal_is_made_of_another() -> None:
    text = "from parcels import spread\n\ndef test_it():\n    assert list(spread('ab')) == list('ab')\n"
    found = {sabotaged(text, ["test_it"], random.Random(seed))[0].rpartition(" == ")[2] for seed in range(20)}
    assert len(found) == 3
    assert all(each.startswith("list('") for each in found)
    assert "list('ab')" not in found
