"""Checks on what an agent wrote. What runs here is code of this file, so it needs no walls."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from journeyman.core.errors import SandboxError
from journeyman.rewards.checks import Check, CheckResult, run_checks
from journeyman.sandbox.base import Level, Program, RunOutcome, Sandbox, Tool
from journeyman.sandbox.supervised import Unsafe
from tests.support.walled import walled

pytestmark = pytest.mark.service


@pytest.fixture
async def box() -> AsyncIterator[Unsafe]:
    found = Unsafe()
    yield found
    await found.close()


async def run(box: Sandbox, text: str, *, kind: str = "pytest", setup: str = "", **files: str) -> CheckResult:
    check = Check(name="it", kind=kind, text=text)  # type: ignore[arg-type]
    laid = {name.replace("__", "/") + ".py": code.encode() for name, code in files.items()}
    (result,) = await run_checks(box, [check], files=laid, setup=setup)
    return result


ADD = "def add(a, b):\n    return a + b\n"
TESTS = "from app import add\n\ndef test_add():\n    assert add(1, 2) == 3\n\ndef test_more():\n    assert add(0, 0) == 0\n"


async def test_tests_pass_where_they_cannot_be_reached(box: Unsafe) -> None:
    result = await run(box, TESTS, app=ADD)
    assert (result.passed, result.tests, result.tests_passed) == (True, 2, 2)


async def test_a_failing_test_is_told_with_its_assertion(box: Unsafe) -> None:
    result = await run(box, TESTS, app="def add(a, b):\n    return a - b\n")
    assert (result.passed, result.tests, result.tests_passed) == (False, 2, 1)
    assert "test_add" in result.evidence
    assert "assert -1 == 3" in result.evidence


async def test_packages_classes_and_their_errors_can_be_tested_from_afar(box: Unsafe) -> None:
    bank = """
class Overdrawn(Exception):
    pass

class Account:
    def __init__(self):
        self.balance = 0

    def move(self, amount):
        if self.balance + amount < 0:
            raise Overdrawn("no")
        self.balance += amount
        return self
"""
    tests = """
import pytest
from app.bank import Account, Overdrawn

@pytest.fixture
def account():
    return Account()

@pytest.mark.parametrize("amount", [1, 2])
def test_balance(account, amount):
    assert account.move(amount).balance == amount

def test_overdrawn(account):
    with pytest.raises(Overdrawn, match="no"):
        account.move(-1)

def test_printed(capsys):
    import app.greet
    app.greet.hello("you")
    assert capsys.readouterr().out == "hello you\\n"
"""
    greet = "def hello(name):\n    print('hello', name)\n"
    result = await run(box, tests, app____init__="", app__bank=bank, app__greet=greet)
    assert result.passed, result.evidence
    assert result.tests == 4


async def test_tests_that_need_files_run_in_one_process_and_must_be_able_to_fail(box: Unsafe) -> None:
    tests = "from app import size\n\ndef test_it(tmp_path):\n    (tmp_path / 'a').write_text('abc')\n"
    code = "def size(path):\n    return len(open(path).read())\n"
    result = await run(box, tests + "    assert size(tmp_path / 'a') == 3\n", app=code)
    assert result.passed
    assert "one process" in result.evidence
    nothing = await run(box, tests + "    size(tmp_path / 'a')\n", app=code)
    assert nothing.passed is None
    assert "nothing that could be turned round" in nothing.evidence


async def test_what_cannot_leave_the_tests_brings_both_into_one_process(box: Unsafe) -> None:
    tests = "import math\nfrom app import name\n\ndef test_it():\n    assert name(math) == 'math'\n"
    result = await run(box, tests, app="def name(module):\n    return module.__name__\n")
    assert result.passed
    assert "one process" in result.evidence


async def test_a_function_that_is_handed_over_is_called_back(box: Unsafe) -> None:
    tests = (
        "from app import twice\n\ndef test_it():\n    seen = []\n    twice(lambda: seen.append(1))\n    assert seen == [1, 1]\n"
    )
    result = await run(box, tests, app="def twice(f):\n    f()\n    f()\n")
    assert result.passed
    assert "one process" not in result.evidence


async def test_the_checks_own_tests_are_laid_over_the_agents(box: Unsafe) -> None:
    result = await run(box, TESTS, app="", test_check="def test_add():\n    pass\n")
    assert result.passed is False


async def test_a_shell_check_is_its_exit_code(box: Unsafe) -> None:
    assert (await run(box, "python app.py | grep -q 3", kind="shell", app="print(1 + 2)")).passed
    failed = await run(box, "echo oh; exit 3", kind="shell")
    assert failed.passed is False
    assert failed.tests is None
    assert "exit code 3" in failed.evidence
    assert "oh" in failed.evidence


async def test_code_cannot_write_the_rest_of_the_script_that_runs_it(box: Unsafe) -> None:
    code = """
import glob
for path in glob.glob("*"):
    if not path.endswith(".py"):
        open(path, "a").write("\\nexit 0\\n")
"""
    assert (await run(box, "python app.py\nfalse", kind="shell", app=code)).passed is False


async def test_the_set_up_is_run_in_every_copy(box: Unsafe) -> None:
    tests = "from app import told\n\ndef test_it():\n    assert told() == 'x\\n'\n"
    code = "def told():\n    return open('data.txt').read()\n"
    assert (await run(box, tests, setup="echo x > data.txt", app=code)).passed
    assert (await run(box, "cat data.txt", kind="shell", setup="echo x > data.txt")).passed


@pytest.mark.parametrize("text", ["def test_(:", "x = 1\n"])
async def test_tests_that_are_none_say_so_and_decide_nothing(box: Unsafe, text: str) -> None:
    assert (await run(box, text, app=ADD)).passed is None


class Broken:
    """A sandbox that cannot run anything."""

    level = Level("none")

    async def start(self) -> None: ...
    async def close(self) -> None: ...
    async def session(self, **_: object) -> "Broken":
        raise SandboxError("down")

    async def run(self, program: Program, *, tools: Mapping[str, Tool] | None = None) -> RunOutcome:
        raise SandboxError("the service is down")


@pytest.mark.parametrize(("kind", "text"), [("pytest", TESTS), ("shell", "true"), ("pytest", TESTS + "import os\n")])
async def test_a_sandbox_that_fails_decides_nothing(kind: str, text: str) -> None:
    check = Check(name="it", kind=kind, text=text)  # type: ignore[arg-type]
    (result,) = await run_checks(Broken(), [check], files={"app.py": ADD.encode()})  # type: ignore[arg-type]
    assert result.passed is None
    assert "the service is down" in result.evidence


@pytest.mark.parametrize("kind", ["pytest", "shell"])
async def test_a_file_that_would_lie_outside_is_the_agents_failure(box: Unsafe, kind: str) -> None:
    check = Check(name="it", kind=kind, text=TESTS if kind == "pytest" else "true")  # type: ignore[arg-type]
    (result,) = await run_checks(box, [check], files={"app.py": ADD.encode(), "../x.py": b""})
    assert result.passed is False
    assert "../x.py" in result.evidence


@pytest.fixture
async def walls() -> AsyncIterator[Sandbox]:
    """With a Python that is warm: these tests run many times."""
    async with walled() as found:
        yield found


PLUS_ONE = "def f(x):\n    return x + 1\n"


@pytest.mark.parametrize("name", ["bubblewrap", "landlock"])
async def test_tests_are_found_and_believed_behind_every_kind_of_walls(name: str) -> None:
    """Also where the walls hide the folders above: pytest found no test there, so all that was right was a failure."""
    apart = Check(name="apart", kind="pytest", text="from app import f\n\ndef test_a():\n    assert f(1) == 2\n")
    conftest = {"tests/conftest.py": b"import pytest\n\n@pytest.fixture\ndef two():\n    return 2\n"}
    text = "import os\nfrom app import f\n\ndef test_a(tmp_path, two):\n    assert f(1) == two\n"
    together = Check(name="in one process", kind="pytest", text=text, file="tests/test_it.py", beside=conftest)
    async with walled(name) as box:
        for code, passes in ((PLUS_ONE, True), ("def f(x):\n    return x + 2\n", False)):
            results = await run_checks(box, [apart, together], files={"app.py": code.encode()})
            assert [each.passed for each in results] == [passes, passes], [each.evidence for each in results]
            assert [each.evidence for each in results if "not run" in each.evidence] == []


HONEST = {
    "a test calls another": "def test_a(x=1):\n    assert f(x) == x + 1\n\ndef test_b():\n    test_a(2)\n\n"
    "def test_c():\n    assert f(5) == 6\n",
    "a helper asserts": "def check(x, y):\n    assert f(x) == y\n\ndef test_a():\n    check(1, 2)\n\n"
    "def test_b():\n    check(3, 4)\n",
    "a class inherits tests": "class TestA:\n    x = 1\n    def test_a(self):\n        assert f(self.x) == self.x + 1\n\n"
    "class TestB(TestA):\n    x = 2\n    def test_b(self):\n        assert f(0) == 1\n",
    "a test is skipped": "def test_a():\n    assert f(1) == 2\n\n@pytest.mark.skipif(True, reason='another platform')\n"
    "def test_b():\n    assert f(2) == 9\n",
    "a test skips itself": "def test_a():\n    assert f(1) == 2\n\ndef test_b():\n    pytest.skip('needs numpy')\n",
    "a test is expected to fail": "def test_a():\n    assert f(1) == 2\n\n"
    "@pytest.mark.xfail\ndef test_b():\n    assert f(2) == 9\n",
    "an assertion is passed by": "def test_a():\n    assert f(1) == 2\n\n"
    "def test_b():\n    if f(1) == 3:\n        assert f(2) == 9\n"
    "    assert f(4) > f(3)\n",
    "cases of unittest": "import unittest\n\nclass CaseOfF(unittest.TestCase):\n    def test_a(self):\n"
    "        self.assertIn(f(1), [2])\n        self.assertRaises(TypeError, f, 'x')\n",
    "a warning is expected": "import warnings\n\ndef test_a():\n    with pytest.warns(UserWarning):\n"
    "        warnings.warn(str(f(1)))\n"
    "    assert f(1) == 2\n",
    "a function within a test asserts": "def test_a():\n    seen = []\n    def inner():\n        assert f(1) == 2\n"
    "        seen.append(0)\n    try:\n        inner()\n    except AssertionError:\n        seen.append(1)\n"
    "    assert not seen[0]\n",
    "a test is called when the file is read": "def test_a():\n    assert f(1) == 2\n\ntest_a()\n\n"
    "def test_b():\n    assert f(4) == 5\n",
    "tests for some machines": "if os.sep:\n    def test_a():\n        assert f(1) == 2\n"
    "else:\n    def test_b():\n        assert f(1) == 3\n",
    "cases that nobody collects": "class Mixin:\n    def test_a(self):\n        assert f(self.x) == self.x + 1\n\n"
    "class TestB(Mixin):\n    x = 1\n",
}


@pytest.mark.parametrize("reference", [None, {"app.py": f"{PLUS_ONE}# right\n".encode()}], ids=["alone", "beside a reference"])
async def test_honest_code_is_no_cheat_for_how_its_tests_are_written(
    walls: Sandbox, reference: dict[str, bytes] | None
) -> None:
    start = "import os\nimport pytest\nfrom app import f\n\n"
    checks = [Check(name=name, kind="pytest", text=start + tests) for name, tests in HONEST.items()]
    for code, passes in ((PLUS_ONE, True), ("def f(x):\n    return x + 2\n", False)):
        results = await run_checks(walls, checks, files={"app.py": code.encode()}, reference=reference)
        assert [each.evidence for each in results if each.passed is not passes] == []
        assert [each.evidence for each in results if "not believed" in each.evidence] == []


ALWAYS = """
class Any:
    def _yes(self, *_): return True
    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _yes
    def __ne__(self, other): return False
    __hash__ = None
def f(x): return Any()
"""


ORDERED = ("f(2) > f(1)", "f(1) < f(2)", "f(1) == f(1)", "sorted([f(2), f(1)])[0] < f(3)", "f(1) >= f(0)")


async def test_an_object_that_no_test_names_does_not_say_itself_how_it_compares(walls: Sandbox) -> None:
    tests = [
        f"{needs}from app import f\n\ndef test_a():\n    assert {each}\n" for each in ORDERED for needs in ("", "import os\n")
    ]
    checks = [Check(name=text, kind="pytest", text=text) for text in tests]
    own = "import dataclasses\n@dataclasses.dataclass(order=True)\nclass N:\n    n: int\ndef f(x): return N(x)\n"
    for code, passes in ((ALWAYS, False), (PLUS_ONE, True), (own, True)):
        results = await run_checks(walls, checks, files={"app.py": code.encode()})
        assert [each.evidence for each in results if each.passed is not passes] == []


TELLS = """
import json, os, re, time
place = {place!r}
def asked():
    text = open("test_check.py").read()
    return {{n: v for n, v in re.findall(r"assert f\\((\\d+)\\) == (\\d+)", text)}}
with open(os.path.join(place, str(os.getpid())), "w") as file:
    file.write(json.dumps(asked()))
until = time.time() + {seconds}
while len(os.listdir(place)) < 4 and time.time() < until:
    time.sleep(0.02)
time.sleep(0.1)
told = [json.load(open(os.path.join(place, each))) for each in sorted(os.listdir(place), key=int)]
def f(x):
    values = [each[str(x)] for each in told]
    return int({choose})
"""


@pytest.mark.parametrize(
    ("seconds", "choose"),
    [(0, "values[0]"), (3, "max(values, key=values.count)"), (3, "sorted(values, key=int)[1]")],
    ids=["what the first was asked", "what most were asked", "the middle of what all were asked"],
)
async def test_runs_that_tell_each_other_what_they_were_asked_learn_nothing(
    box: Unsafe, tmp_path: Path, seconds: int, choose: str
) -> None:
    tests = "import os\nfrom app import f\n" + "".join(f"\ndef test_{n}():\n    assert f({n}) == {n + 1}\n" for n in range(8))
    code = TELLS.format(place=str(tmp_path), seconds=seconds, choose=choose)
    assert (await run(box, tests, app=code)).passed is False
    assert (await run(box, tests, app=PLUS_ONE)).passed is True


async def test_what_the_reference_does_not_obey_is_no_evidence(walls: Sandbox) -> None:
    tests = (
        "import os\nfrom app import f\n\nclass Loose(int):\n"
        "    def __eq__(self, other):\n        return True\n    __hash__ = None\n"
        "\ndef test_wrong():\n    assert f(1) == 1000\n\ndef test_agrees():\n    assert Loose(f(1)) == f(7)\n"
        "\ndef test_right():\n    assert f(1) == 2\n"
    )
    check = Check(name="it", kind="pytest", text=tests)
    files = {"app.py": PLUS_ONE.encode()}
    assert (await run_checks(walls, [check], files=files))[0].passed is False
    for mine in (files, {"app.py": f"{PLUS_ONE}# mine\n".encode()}):
        (result,) = await run_checks(walls, [check], files=mine, reference=files)
        assert result.passed is True, result.evidence
    for code in (ALWAYS, "def f(x): return 5\n", "import os\nos._exit(0)\n"):
        (result,) = await run_checks(walls, [check], files={"app.py": code.encode()}, reference=files)
        assert result.passed is False, result.evidence


@pytest.mark.parametrize("module", ["click", "pluggy"])
async def test_code_is_tested_and_not_what_is_installed_under_its_name(walls: Sandbox, module: str) -> None:
    for needs in ("import os\n", ""):
        tests = f"{needs}from {module} import f\n\ndef test_it():\n    assert f(1) == 2\n"
        assert (await run(walls, tests, **{module: PLUS_ONE})).passed is True
        assert (await run(walls, tests, **{module: "def f(x): return 3\n"})).passed is False
        tests = f"{needs}import {module}\n\ndef test_it():\n    assert {module}.__version__ != '1'\n"
        assert (await run(walls, tests, **{module: ""})).passed is False


async def test_the_authors_files_lie_beside_the_tests(walls: Sandbox) -> None:
    beside = {
        "tests/__init__.py": b"",
        "tests/data.py": b"EXPECTED = 2\n",
        "tests/conftest.py": b"import pytest\n@pytest.fixture\ndef one():\n    return 1\n",
    }
    for needs in ("import os\n", ""):
        text = f"{needs}from app import f\nfrom .data import EXPECTED\n\ndef test_it(one):\n    assert f(one) == EXPECTED\n"
        check = Check(name="it", kind="pytest", text=text, file="tests/test_app.py", beside=beside)
        own = {"tests/conftest.py": b"raise SystemExit", "tests/data.py": b"EXPECTED = 0\n"}
        (result,) = await run_checks(walls, [check], files={"app.py": PLUS_ONE.encode(), **own})
        assert result.passed is True, result.evidence


async def test_tests_that_a_class_inherits_from_beside_the_file_must_be_able_to_fail_too(walls: Sandbox) -> None:
    mixin = b"import os\n\nclass Mixin:\n    def test_it(self):\n        assert self.f(1) == 2\n"
    text = "import os\nfrom app import f\nfrom .mixins import Mixin\n\nclass TestF(Mixin):\n    f = staticmethod(f)\n"
    check = Check(
        name="it",
        kind="pytest",
        text=text,
        file="tests/test_app.py",
        beside={"tests/__init__.py": b"", "tests/mixins.py": mixin},
    )
    for code, passes in ((PLUS_ONE, True), ("def f(x): return 5\n", False), (ALWAYS, False)):
        (result,) = await run_checks(walls, [check], files={"app.py": code.encode()})
        assert result.passed is passes, result.evidence


async def test_a_test_that_the_file_does_not_show_must_pass_as_well(walls: Sandbox) -> None:
    text = "import os\nfrom app import f\n\ndef test_a():\n    assert f(1) == 2\n\ntest_b = lambda: 1 / (f(2) == 3)\n"
    check = Check(name="it", kind="pytest", text=text)
    for code, passes in ((PLUS_ONE, True), ("def f(x): return 2\n", False)):
        (result,) = await run_checks(walls, [check], files={"app.py": code.encode()})
        assert result.passed is passes, result.evidence
