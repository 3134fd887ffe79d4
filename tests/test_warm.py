"""What stands for a Python in other tests is one to whoever started it."""

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.gateway.test_process import until
from tests.support import warm
from tests.support.processes import is_alive

pytestmark = pytest.mark.service

TELLS_ITS_PID = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["-c", "import sys; print(input(), sys.argv[1:]); sys.exit(7)", "a b"], "in ['a b']\n", 7),
        (["-c", "1 / 0"], "", 1),
        (["-I", "-c", "print('cold')"], "cold\n", 0),
    ],
)
def test_it_is_given_words_and_a_standard_input_and_ends_as_what_it_runs(words: list[str], said: str, code: int) -> None:
    done = subprocess.run([warm.program(), *words], input="in\n", capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == (said, code)
    assert ("ZeroDivisionError" in done.stderr) == (code == 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_ends_it_ends_what_it_runs(number: signal.Signals) -> None:
    with subprocess.Popen([warm.program(), "-c", TELLS_ITS_PID], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        fork = int(process.stdout.readline())
        assert fork != process.pid
        process.send_signal(number)
        assert process.wait(20) == -number
    assert until(lambda: not is_alive(fork))


@pytest.mark.parametrize("said", [b"", b"!", b'!{"arguments": ["-c"'])
def test_who_is_killed_before_it_has_said_what_it_wants_is_nobody_elses_matter(said: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(Path(warm.program()).with_name("socket")))
        if said:
            socket.send_fds(client, [said], [0, 1, 2])
    assert warm.run("-c", "print('here')").stdout == "here\n"


def test_what_it_starts_is_a_fork_as_well_where_that_is_asked_for() -> None:
    asked = "import sys; print(sys.executable)"
    assert warm.run("-c", asked, children=True).stdout.strip() == warm.program()
    assert warm.run("-c", asked).stdout.strip() == sys.executable
