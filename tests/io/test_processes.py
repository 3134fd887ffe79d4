"""Whether a process is there: not by its number alone."""

import os
import subprocess
import sys

from journeyman.io.processes import is_gone, start_time, this_process


def test_a_process_is_known_by_more_than_its_number() -> None:
    here = this_process()
    assert here["pid"] == os.getpid()
    assert not is_gone(here)
    assert is_gone({**here, "began": "1"}), "its number is used again"
    assert is_gone({**here, "boot": "another"}), "the system was started anew"
    assert not is_gone({**here, "host": "elsewhere"}), "nobody here can know"
    assert not is_gone({**here, "namespace": "pid:[1]", "began": "1"}), "numbers of another namespace say nothing here"
    assert not is_gone({}), "a run of before"


def test_a_child_that_has_ended_is_gone_also_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert start_time(child.pid) is None
