"""How a training in several processes ended, as torch's launcher tells it: it ends with 1 itself, whatever they ended with."""

import json
import sys
import textwrap
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra: pip install 'journeyman[weights]'")

from journeyman.core.errors import InputError, TrainingError
from journeyman.optimizers.weights.job import Ended, TrainingJob, TrainingReport, launch
from tests.optimizers.weights.test_program import REPORT

pytestmark = pytest.mark.training
GUARDED = TrainingReport(**{**REPORT.json(), "ended": Ended.GUARDED})


def several(folder: Path, lines: str) -> TrainingReport:
    """Two processes that run these lines, with `folder` and `rank` set."""
    path = folder.parent / "program.py"
    head = "import os, signal, sys, time\nfrom pathlib import Path\nfolder, rank = Path(sys.argv[1]), int(os.environ['RANK'])\n"
    path.write_text(head + textwrap.dedent(lines))
    folder.mkdir()
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    return launch(TrainingJob(folder), command=[sys.executable, *launcher, str(path)])


def test_a_guard_that_stopped_them_is_told_by_the_report(tmp_path: Path) -> None:
    report = several(
        tmp_path / "run",
        f"""
        if rank == 0:
            (folder / "report.json").write_text({json.dumps(GUARDED.json())!r})
        sys.exit(3)
        """,
    )
    assert report == GUARDED


def test_input_that_cannot_be_used_is_told_in_their_own_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^there are no tasks$"):
        several(tmp_path / "run", "sys.stderr.write('journeyman: there are no tasks\\n'); sys.exit(2)")


def test_one_that_is_killed_is_told_as_the_training_that_was_killed(tmp_path: Path) -> None:
    lines = "os.kill(os.getpid(), signal.SIGKILL) if rank == 1 else time.sleep(60)"
    with pytest.raises(TrainingError, match="the training was killed, as the system does when memory runs out,"):
        several(tmp_path / "run", lines)


def test_a_failure_of_one_shows_the_last_line_of_its_traceback(tmp_path: Path) -> None:
    lines = "time.sleep(60) if rank else None; raise ValueError('the shapes differ')"
    with pytest.raises(TrainingError, match="with exit code 1: ValueError: the shapes differ"):
        several(tmp_path / "run", lines)
