"""Checks on what an agent wrote. What runs here is code of this file, so it needs no walls."""

from collections.abc import AsyncIterator, Mapping

import pytest

from journeyman.core.errors import SandboxError
from journeyman.rewards.checks import Check, CheckResult, run_checks
from journeyman.sandbox.base import Level, Program, RunOutcome, Tool
from journeyman.sandbox.supervised import Unsafe

pytestmark = pytest.mark.service


@pytest.fixture
async def box() -> AsyncIterator[Unsafe]:
    found = Unsafe()
    yield found
    await found.close()


async def run(box: Unsafe, text: str, *, kind: str = "pytest", setup: str = "", **files: str) -> CheckResult:
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
