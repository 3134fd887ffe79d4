"""The program is a real process here; what it does stands in a few lines of each test."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, TrainingError
from journeyman.optimizers.weights.job import Ended, TrainingJob, TrainingReport, launch
from journeyman.optimizers.weights.metrics import UpdateMetrics

pytestmark = pytest.mark.training

REPORT = TrainingReport(
    ended=Ended.FINISHED,
    reason="all 3 updates were made",
    steps=3,
    kept_step=3,
    seconds=1.0,
    cpu_seconds=1.0,
    peak_memory=None,
    peak_gpu_memory=None,
    parameters=10,
    trained=2,
    tokens=30,
    validation_before=None,
    validation_after=None,
)
Program = Callable[[str], list[str]]


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    folder = tmp_path / "run"
    folder.mkdir()
    return TrainingJob(folder)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """A command that runs these lines with `folder` set to the job's."""

    def make(lines: str) -> list[str]:
        path = tmp_path / "program.py"
        head = "import os, signal, sys, time\nfrom pathlib import Path\nfolder = Path(sys.argv[1])\n"
        path.write_text(head + textwrap.dedent(lines))
        return [sys.executable, str(path)]

    return make


def line(step: int) -> str:
    return UpdateMetrics(step=step, of=3, loss=0.5).line()


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.05)
    return False


def alive(pid: int) -> bool:
    try:
        # A process that has ended and whose parent has not asked yet is a zombie.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_update_is_handed_on_while_the_program_runs_and_its_report_comes_back(job: TrainingJob, program: Program) -> None:
    command = program(f"""
        with (folder / "metrics.jsonl").open("a") as file:
            for line in {[line(step) for step in (1, 2, 3)]!r}:
                file.write(line[:20]); file.flush(); time.sleep(0.3)
                file.write(line[20:]); file.flush()
        (folder / "report.json").write_text({json.dumps(REPORT.json())!r})
    """)
    seen: list[int] = []
    assert launch(job, command=command, on_metrics=lambda update: seen.append(update["step"])) == REPORT
    assert seen == [1, 2, 3]


def test_who_is_told_of_updates_and_fails_is_not_silenced(job: TrainingJob, program: Program) -> None:
    def fail(_: object) -> None:
        raise ValueError("no such screen")

    command = program(f"(folder / 'metrics.jsonl').write_text({line(1)!r}); time.sleep(60)")
    with pytest.raises(ValueError, match="no such screen"):
        launch(job, command=command, on_metrics=fail)


def test_going_on_with_a_run_hands_on_what_it_keeps_and_not_what_it_drops(job: TrainingJob, program: Program) -> None:
    job.metrics.write_text("".join(line(step) for step in (1, 2, 3)))
    command = program(f"""
        time.sleep(0.5)
        (folder / "new").write_text({line(1)!r})
        (folder / "new").replace(folder / "metrics.jsonl")
        time.sleep(0.5)
        with (folder / "metrics.jsonl").open("a") as file:
            file.write({line(2)!r})
        (folder / "report.json").write_text({json.dumps(REPORT.json())!r})
    """)
    seen: list[int] = []
    launch(job, command=command, on_metrics=lambda update: seen.append(update["step"]))
    assert seen == [1, 2]


def test_input_that_cannot_be_used_is_told_in_the_programs_own_sentence(job: TrainingJob, program: Program) -> None:
    command = program("""
        print("loading")
        sys.stderr.write("journeyman: rows.jsonl:3: no completion\\n")
        sys.exit(2)
    """)
    with pytest.raises(InputError, match=r"^rows\.jsonl:3: no completion$"):
        launch(job, command=command)


def test_a_failure_shows_the_last_line_of_its_traceback_and_where_the_log_is(job: TrainingJob, program: Program) -> None:
    job.metrics.write_text(line(1) + line(2))
    command = program("raise ValueError('the shapes differ')")
    with pytest.raises(TrainingError) as raised:
        launch(job, command=command)
    assert str(raised.value) == (
        f"the training failed after update 2 of 3 with exit code 1: ValueError: the shapes differ (see {job.log})"
    )
    assert "Traceback (most recent call last)" in job.log.read_text()


def test_a_program_that_ends_well_without_a_report_has_failed(job: TrainingJob, program: Program) -> None:
    with pytest.raises(TrainingError, match="failed before its first update with exit code 0: it said nothing"):
        launch(job, command=program("pass"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "was killed, as the system does when memory runs out, before"),
        ("sys.exit(137)", "was killed, as the system does when memory runs out, before"),
        (
            "class OutOfMemoryError(RuntimeError): pass\nraise OutOfMemoryError('CUDA out of memory. Tried')",
            "ran out of memory",
        ),
        ("raise RuntimeError('DefaultCPUAllocator: can\\'t allocate memory: you tried')", "ran out of memory"),
        ("bytearray(2**62)", "ran out of memory"),
    ],
)
def test_a_program_without_memory_is_a_failed_job_with_advice(
    job: TrainingJob, program: Program, lines: str, told: str
) -> None:
    with pytest.raises(TrainingError, match=told) as raised:
        launch(job, command=program(lines))
    assert "smaller --per-device-batch-size" in str(raised.value)


def test_no_secret_of_the_environment_is_in_the_log(
    job: TrainingJob, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a1b2c3d4e5f6a7b8")
    command = program(
        "print('logged in with', os.environ['WANDB_API_KEY'], os.environ['HF_TOKEN']); raise KeyError('a1b2c3d4e5f6a7b8')"
    )
    with pytest.raises(TrainingError) as raised:
        launch(job, command=command, env={"HF_TOKEN": "hf_abcdefghij"})
    assert "logged in with [redacted] [redacted]" in job.log.read_text()
    assert "a1b2c3d4" not in job.log.read_text() + str(raised.value)


def test_a_log_that_cannot_be_written_hides_neither_the_programs_words_nor_its_end(job: TrainingJob, program: Program) -> None:
    job.log.mkdir()
    with pytest.raises(TrainingError, match="ValueError: no space left"):
        launch(job, command=program("print('x' * 200_000, flush=True); raise ValueError('no space left')"))


def test_whatever_the_program_started_ends_with_it(job: TrainingJob, program: Program) -> None:
    command = program("""
        import subprocess
        left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        (folder / "pid").write_text(str(left.pid))
    """)
    with pytest.raises(TrainingError):
        launch(job, command=command)
    assert within(10, lambda: not alive(int((job.folder / "pid").read_text())))


WAITS = """
    from journeyman.optimizers.weights.job import end_with_parent
    end_with_parent()
    def stop(number, frame):
        time.sleep(0.3)
        (folder / "checkpoint").touch()
        sys.exit(130)
    signal.signal(signal.SIGTERM, stop)
    (folder / "pid").write_text(str(os.getpid()))
    for _ in range(600):
        time.sleep(0.1)
"""


def parent(job: TrainingJob, command: list[str]) -> "subprocess.Popen[bytes]":
    code = f"""if True:
        from pathlib import Path
        from journeyman.optimizers.weights import job
        job.launch(job.TrainingJob(Path({str(job.folder)!r})), command={command!r})
    """
    started = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, start_new_session=True)
    assert within(20, lambda: (job.folder / "pid").is_file() and (job.folder / "pid").read_text() != "")
    return started


def test_an_interrupted_parent_waits_for_the_checkpoint(job: TrainingJob, program: Program) -> None:
    started = parent(job, program(WAITS))
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=20)
    assert (job.folder / "checkpoint").is_file()
    assert said.rstrip().endswith(b"KeyboardInterrupt")


def test_a_second_interrupt_waits_for_nothing(job: TrainingJob, program: Program) -> None:
    started = parent(job, program(WAITS.replace("time.sleep(0.3)", "time.sleep(30)")))
    started.send_signal(signal.SIGINT)
    time.sleep(0.5)
    started.send_signal(signal.SIGINT)
    started.communicate(timeout=10)
    assert not alive(int((job.folder / "pid").read_text()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_program_does_not_outlive_its_parent(job: TrainingJob, program: Program, number: int) -> None:
    started = parent(job, program(WAITS))
    os.kill(started.pid, number)
    started.communicate(timeout=20)
    assert within(20, lambda: not alive(int((job.folder / "pid").read_text())))
    assert (job.folder / "checkpoint").is_file()


def test_a_program_that_was_told_to_stop_by_others_says_how_it_goes_on(job: TrainingJob, program: Program) -> None:
    with pytest.raises(TrainingError, match=r"interrupted before its first update, and goes on .* --resume"):
        launch(job, command=program("os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)"))
