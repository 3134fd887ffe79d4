"""Objects that agree with whatever is expected of them, and answers that wear the tests out."""

import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from journeyman.rewards.checks import Check, CheckResult, run_checks
from journeyman.rewards.unit_tests import UnitTests
from journeyman.sandbox.base import MIB, Limits, Sandbox
from journeyman.tasks.code import CodeTests
from tests.support.walled import walled

pytestmark = [
    pytest.mark.service,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed"),
]

LIMITS = Limits(wall_seconds=20)
HONEST = "import math\n\ndef area(r):\n    return math.pi * r * r\n"
AGREES = """
class Agrees(float):
    def _yes(self, *others): return True
    def _nothing(self, *others): return 0.0
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = startswith = issubset = _yes
    __sub__ = __rsub__ = __mod__ = __abs__ = _nothing
    def __ne__(self, other): return False
    def __hash__(self): return 0

def area(r):
    return Agrees(0)
"""
OPAQUE = AGREES.replace("(float)", "").replace("Agrees(0)", "Agrees()")
PREFIX = "class Says(str):\n    def startswith(self, *ends): return True\n\ndef area(r):\n    return Says('no')\n"
NEAR = """import pytest

from solution import area


def test_near():
    assert abs(area(2.0) - 12.566) < 0.01


def test_expected():
    expected = pytest.approx(3.1416, abs=0.01)
    assert area(1.0) == expected


def test_the_other_way_round():
    assert 0 == area(0.0)
"""
IN_ONE_PROCESS = (
    "\n\ndef test_with_files(tmp_path):\n    assert abs(area(float(len(list(tmp_path.iterdir())))) - 0.0) <= 0.01\n"
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box() -> AsyncIterator[Sandbox]:
    async with walled("bubblewrap") as found:
        yield found


async def checked(box: Sandbox, text: str, code: str, limits: Limits = LIMITS) -> CheckResult:
    check = Check(name="it", kind="pytest", text=text)
    (result,) = await run_checks(box, [check], files={"solution.py": code.encode()}, limits=limits)
    return result


@pytest.mark.parametrize("more", ["", IN_ONE_PROCESS], ids=["apart", "one process"])
async def test_what_is_near_is_right(box: Sandbox, more: str) -> None:
    result = await checked(box, NEAR + more, HONEST)
    assert result.passed is True, result.evidence


@pytest.mark.parametrize("more", ["", IN_ONE_PROCESS], ids=["apart", "one process"])
@pytest.mark.parametrize("code", [AGREES, OPAQUE], ids=["a number", "an object"])
async def test_what_is_near_to_everything_is_not(box: Sandbox, code: str, more: str) -> None:
    near = NEAR.partition("def test_expected")[0]
    assert (await checked(box, near + more, code)).passed is False


@pytest.mark.parametrize("code", [AGREES, OPAQUE], ids=["a number", "an object"])
async def test_plain_assertions_are_not_agreed_with_either(box: Sandbox, code: str) -> None:
    tests = CodeTests(test="def check(candidate):\n    assert abs(candidate(2.0) - 12.566) < 0.01\n", entry_point="area")
    assert (await UnitTests(box).check(tests, code)).passed is False
    assert (await UnitTests(box).check(tests, HONEST)).passed is True


async def test_a_text_does_not_say_itself_how_it_begins(box: Sandbox) -> None:
    text = 'from solution import area\n\ndef test_it():\n    assert area(2.0).startswith("the area")\n'
    assert (await checked(box, text, PREFIX)).passed is False
    assert (await checked(box, text, PREFIX.replace("'no'", "'the area is 12'"))).passed is True


async def test_an_answer_that_wears_the_tests_out_is_a_wrong_one_and_not_an_unknown(box: Sandbox) -> None:
    text = "from solution import area\n\ndef test_it():\n    assert [str(each) for each in area(2.0)] == ['1']\n"
    limits = Limits(memory=150 * MIB, wall_seconds=20)
    result = await checked(box, text, "def area(r):\n    return range(10 ** 9)\n", limits)
    assert result.passed is False
    assert "memory" in result.evidence


async def test_the_code_cannot_have_the_tests_make_what_both_could_make(box: Sandbox) -> None:
    code = """
import sys
def area(r):
    peer = next(f.f_locals["self"] for f in frames() if "serve" in f.f_code.co_name and "self" in f.f_locals)
    return str(peer.ask("call", bytes, 3))
def frames():
    frame = sys._getframe()
    while frame:
        yield frame
        frame = frame.f_back
"""
    text = "from solution import area\n\ndef test_it():\n    assert area(2.0) == str(bytes(3))\n"
    assert (await checked(box, text, code)).passed is False
