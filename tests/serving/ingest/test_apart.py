"""What is handed to a process of its own is kept as if it were a thread, and a process that ends is started again."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from journeyman.experiments.settings import RecordSettings
from journeyman.serving.ingest.factory import ENDED, SubprocessIntake
from journeyman.stores.traces import open_traces
from tests.serving.ingest.test_spill import made
from tests.serving.ingest.test_writer import SOON, until

pytestmark = pytest.mark.service


class Apart:
    """An intake whose process is started by a program that a test can take away."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'traces.db'}"
        self.program = folder / "record"
        self.put_back()
        self.intake = SubprocessIntake((str(self.program),), (self.url, folder / "spill", RecordSettings()))

    def put_back(self) -> None:
        self.program.write_text(f'#!/bin/sh\nexec {sys.executable} -m journeyman.serving.ingest.factory "$@"\n')
        self.program.chmod(0o700)

    def kill(self) -> None:
        os.kill(self.intake._process.pid, signal.SIGKILL)

    def stored(self) -> set[str]:
        with open_traces(self.url) as store:
            return {trace.id for trace in store.traces()}


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Apart]:
    started = Apart(tmp_path)
    with closing(started.intake):
        yield started


def test_what_is_handed_over_is_stored_and_counted(apart: Apart) -> None:
    for number in range(5):
        apart.intake.add(made(f"{number}"))
    assert apart.intake.flush(SOON)
    assert apart.stored() == set("01234")
    until(lambda: apart.intake.health().stored == 5)
    assert (apart.intake.health().dropped, apart.intake.health().error) == (0, None)


def test_a_process_that_cannot_be_started_again_is_tried_until_it_can(apart: Apart) -> None:
    apart.intake.add(made("before"))
    assert apart.intake.flush(SOON)
    apart.program.unlink()
    apart.kill()
    until(lambda: not apart.intake.flush(0.2) and apart.intake.health().error == ENDED)
    apart.put_back()
    until(lambda: apart.intake.flush(SOON))
    apart.intake.add(made("after"))
    assert apart.intake.flush(SOON)
    assert apart.stored() == {"before", "after"}
    until(lambda: apart.intake.health().error is None)
