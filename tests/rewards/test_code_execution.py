import pickle
from collections.abc import Iterator

import pytest

from journeyman import sandbox
from journeyman.core.errors import SandboxError
from journeyman.core.trace import Trace
from journeyman.rewards.code_execution import CodeExecutionReward
from journeyman.sandbox.base import Limits, Sandbox
from tests.support.traces import done, said

pytestmark = pytest.mark.service


def here() -> Sandbox:
    return sandbox.load("unsafe-local")


def gone() -> Sandbox:
    raise SandboxError("bwrap is not installed: apt-get install bubblewrap")


@pytest.fixture(scope="module")
def reward() -> Iterator[CodeExecutionReward]:
    made = CodeExecutionReward(here, limits=Limits(wall_seconds=10, cpu_seconds=5))
    yield made
    made.close()


def python(code: str) -> Trace:
    return said(f"Here it is:\n```python\n{code}\n```")


@pytest.mark.parametrize(
    "code",
    [
        "print(6 * 7)",
        "from __future__ import annotations\nx: int = 1",
        "if __name__ == '__main__':\n    import sys\n    sys.exit(0)",
        "def main():\n    return 0\nraise SystemExit(main())",
        "assert 1 + 1 == 2",
        "tools = __file__\nif __name__ == '__main__':\n    print(tools)",
        "import threading\nthreading.Thread(target=print).start()\nrun = 1",
    ],
)
def test_code_that_runs_to_its_end_is_one(reward: CodeExecutionReward, code: str) -> None:
    found = reward.compute(python(code))
    assert (found.score, found.is_binary) == (1.0, True)
    assert found.details["level"].startswith("none")


@pytest.mark.parametrize(
    ("code", "evidence"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("def f(:", "SyntaxError"),
        ("import sys\nsys.exit(3)\nprint('never')", "exit code 3"),
        ("import sys\nsys.exit(0)\n1 / 0", "left before its last line"),
        ("import os\nos._exit(0)\n1 / 0", "left before its last line"),
        ("import os, sys\nsys.stdout.write(open('main.py').read())\nsys.stdout.flush()\nos._exit(0)\n1 / 0", "left before"),
        ("exec(open('main.py').read().splitlines()[-1])\nraise SystemExit\nprint(1)", "left before its last line"),
        ("import os, sys\nsys.excepthook = lambda *_: os._exit(0)\n1 / 0\nprint(1)", "ZeroDivisionError"),
        (
            "import builtins\nbuiltins.isinstance = lambda *_: True\nbuiltins.SystemExit = KeyError\n"
            "raise type('E', (Exception,), {'code': 0})\nprint(1)",
            "failed with exit code 1",
        ),
        (
            "import os\nfor fd in range(1, 64):\n    try: os.write(fd, b'{\"done\": 0}\\n')\n"
            "    except OSError: pass\nos._exit(0)\nprint(1)",
            "left before its last line",
        ),
        ("import os\nos.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_code_that_does_not_is_zero_and_the_evidence_says_why(reward: CodeExecutionReward, code: str, evidence: str) -> None:
    found = reward.compute(python(code))
    assert found.score == 0.0
    assert evidence in found.details["evidence"]


def test_an_endless_loop_is_stopped_at_its_limit() -> None:
    reward = CodeExecutionReward(here, limits=Limits(wall_seconds=1, cpu_seconds=1))
    found = reward.compute(python("while True: pass"))
    assert found.score == 0.0
    assert "limit" in found.details["evidence"]


@pytest.mark.parametrize(
    "trace",
    [
        said("I have run it, and it works."),
        said("```json\n{}\n```"),
        python("# nothing\npass"),
        python("# nothing at all"),
        python("'''only words'''"),
        python("exit(0)"),
        done(),
    ],
)
def test_nothing_to_run_is_unknown(reward: CodeExecutionReward, trace: Trace) -> None:
    assert reward.compute(trace).score is None


def test_blocks_of_one_language_are_one_program_and_other_languages_run_too(reward: CodeExecutionReward) -> None:
    trace = said("```python\nx = 1\n```\nthen\n```bash\ntrue\n```\nand\n```python\nassert x == 1\n```")
    assert reward.compute(trace).details["programs"] == 2
    assert reward.compute(said("```python\nx = 1\n```\n```bash\nfalse\n```")).score == 0.0


def test_only_the_last_version_of_the_code_counts(reward: CodeExecutionReward) -> None:
    assert reward.compute(said("```python\n1 / 0\n```", "```python\nprint(1)\n```", "All done.")).score == 1.0


def test_a_sandbox_that_is_not_there_is_unknown_and_never_a_zero() -> None:
    found = CodeExecutionReward(gone).compute(python("print(1)"))
    assert found.score is None
    assert "apt-get install bubblewrap" in found.details["evidence"]


def test_a_reward_that_was_sent_to_another_process_makes_its_own_sandbox_once() -> None:
    sent = [pickle.loads(pickle.dumps(CodeExecutionReward(here))) for _ in range(2)]
    assert [one.compute(python("print(1)")).score for one in sent] == [1.0, 1.0]
    assert sent[0]._sandbox is sent[1]._sandbox


async def test_it_can_be_asked_while_an_event_loop_is_running(reward: CodeExecutionReward) -> None:
    assert reward.compute(python("print(1)")).score == 1.0


def test_the_version_changes_with_the_limits() -> None:
    assert CodeExecutionReward(here).version != CodeExecutionReward(here, limits=Limits(cpu_seconds=1)).version
    assert CodeExecutionReward(here).version == CodeExecutionReward(gone).version
