"""A process that is killed in the middle loses nothing that it said was kept, and leaves nothing half."""

import random
import resource
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from journeyman.serving.ingest.queues import spill_of_traces
from journeyman.stores.traces import open_traces
from tests.serving.ingest.test_spill import made
from tests.serving.ingest.test_writer import SOON, Start, locked, until

pytestmark = pytest.mark.service

CHILD = """
import sys
from pathlib import Path
from tests.serving.ingest.test_spill import made
from tests.serving.ingest.test_writer import Start, exchange
from tests.support.spans import call, rows
start = Start(Path(sys.argv[1]))
intake = start()
number = 0
while True:
    number += 1
    intake.add(made(f"{number:05}"))
    future = intake.spans(rows(call(number, 1), call(number, 2)))
    if sys.argv[2] == "spans":
        future.result(20)
        print(number, flush=True)
    elif number == 200:
        while intake.health().spilled < 200:
            pass
        print("spilled", flush=True)
"""


def child(folder: Path, what: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(folder), what], stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]
    )


def killed_after(folder: Path, seconds: float) -> int:
    """How many batches of spans were acknowledged before the process was killed, so long after the first."""
    with child(folder, "spans") as process:
        assert process.stdout is not None
        acknowledged = int(process.stdout.readline())
        time.sleep(seconds)
        process.kill()
        lines = process.stdout.read().split("\n")
    return max([acknowledged, *(int(line) for line in lines[:-1])])


@pytest.mark.parametrize("moment", [1, 2, 3, *(pytest.param(moment, marks=pytest.mark.nightly) for moment in range(4, 21))])
def test_spans_that_were_acknowledged_are_there_after_kill_9(tmp_path: Path, moment: int) -> None:
    acknowledged = killed_after(tmp_path, random.Random(moment).uniform(0, 0.5))
    ids = [f"{number:032x}" for number in range(1, acknowledged + 1)]
    start = Start(tmp_path)
    with open_traces(start.file) as store:
        kept = store.spans(ids)
        assert [id for id in ids if len(kept.get(id, ())) != 2] == []
    with closing(start()) as intake:
        assert intake.flush(SOON)
    with open_traces(start.file) as store:
        traces = {trace.id: trace for trace in store.traces()}
    assert all(len(traces[id].calls) == 2 for id in ids)
    own = [trace for id, trace in traces.items() if len(id) == 5]
    assert all(len(trace.steps) == 2 for trace in own), "no half trace"


def test_what_was_spilled_before_kill_9_is_stored_by_the_next_process(tmp_path: Path) -> None:
    start = Start(tmp_path)
    open_traces(start.file).close()
    with locked(start.file), child(tmp_path, "traces") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "spilled\n"
        process.kill()
    assert list(start.spill.iterdir())
    with closing(start()) as intake:
        until(lambda: intake.health().stored >= 200)
        assert intake.flush(SOON)
    assert set(start.ids()) >= {f"{number:05}" for number in range(1, 201)}
    assert list(start.spill.iterdir()) == []


FULL = """
import resource, sys
from pathlib import Path
from tests.serving.ingest.test_spill import made
from tests.serving.ingest.test_writer import Start, until
start = Start(Path(sys.argv[1]))
intake = start()
intake.add(made("first"))
assert intake.flush(20)
free = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, free[1]))
for number in range(30):
    intake.add(made(f"{number:02}", reply="x" * 1000))
until(lambda: intake.health().error is not None)
said = intake.health().error
resource.setrlimit(resource.RLIMIT_FSIZE, free)
assert intake.flush(20), intake.health()
assert intake.health().dropped == 0
intake.close()
print(said)
"""


def test_a_disk_that_takes_no_more_is_told_and_asked_again(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 0
    command = [sys.executable, "-c", FULL, str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=Path(__file__).parents[3])
    assert run.returncode == 0, run.stderr
    assert "disk" in run.stdout
    assert len(Start(tmp_path).ids()) == 31


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    with child(tmp_path, "spans") as one, child(tmp_path, "spans") as two:
        for process in (one, two):
            assert process.stdout is not None
            for _ in range(30):
                process.stdout.readline()
        one.kill()
        two.kill()
    start = Start(tmp_path)
    with closing(start()) as intake:
        assert intake.flush(SOON)
    kept = [trace for trace in start.traces() if len(trace.id) == 32]
    assert len(kept) >= 30
    assert all(len(trace.calls) == 2 for trace in kept)


def test_what_others_have_spilled_is_stored_also_by_an_intake_that_is_closed_at_once(tmp_path: Path) -> None:
    start = Start(tmp_path)
    for number in range(20):
        spill = spill_of_traces(start.spill, 1 << 20)
        assert spill.append(made(str(number)))
        spill.close()
        start().close()
        assert len(start.ids()) == number + 1
