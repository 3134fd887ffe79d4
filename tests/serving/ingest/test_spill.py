"""Traces that wait on the disk."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.trace import Message, ModelCall, ToolCall, Trace
from journeyman.serving.ingest import spill as spilling
from journeyman.serving.ingest.queues import _json, spill_of_traces
from journeyman.serving.ingest.spill import ENDING, records

MB = 2**20


def pack(trace: Trace) -> bytes:
    return spilling.pack(_json(trace))


def made(id: str, reply: str = "Hello", result: str = "3") -> Trace:
    call = ModelCall(
        id="c", model="m", prompt="user: Hi", reply=reply, messages=(Message(role="user", text="Hi"),), raw={"n": [1]}
    )
    tool = ToolCall(id="t", tool="add", arguments="{}", result=result, parent="c")
    return Trace(id=id, task_id="t", candidate_id="base", started_at=datetime(2026, 1, 2, tzinfo=UTC), steps=(call, tool))


def test_what_came_first_is_given_first_and_waits_until_it_is_forgotten(tmp_path: Path) -> None:
    spill = spill_of_traces(tmp_path, MB)
    assert all(spill.append(made(str(number))) for number in range(5))
    assert [trace.id for trace in spill.first(2).found] == ["0", "1"]
    part = spill.first(2)
    assert [trace.id for trace in part.found] == ["0", "1"]
    spill.forget(part)
    rest = spill.first(10)
    assert [trace.id for trace in rest.found] == ["2", "3", "4"]
    spill.forget(rest)
    assert spill.records == 0
    assert next(tmp_path.iterdir()).stat().st_size == 0
    spill.close()
    assert list(tmp_path.iterdir()) == []


@given(text=st.text(st.characters(codec=None), max_size=200))
def test_a_trace_comes_back_as_it_was_whatever_its_texts_hold(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    spill = spill_of_traces(tmp_path_factory.mktemp("spill"), MB)
    trace = made("1", reply=text, result=text)
    assert spill.append(trace)
    assert spill.first(1).found == (trace,)
    spill.close()


def test_there_is_room_for_so_many_bytes_and_again_when_they_are_gone(tmp_path: Path) -> None:
    # Packed, one that is as long may take a byte more.
    spill = spill_of_traces(tmp_path, 3 * len(pack(made("1"))) + 8)
    assert [spill.append(made("1")) for _ in range(5)] == [True, True, True, False, False]
    spill.forget(spill.first(1))
    assert spill.append(made("2"))
    assert not spill.append(made("3"))


@pytest.mark.parametrize("cut", range(1, 400, 23))
def test_a_torn_last_record_costs_itself_alone(tmp_path: Path, cut: int) -> None:
    whole = pack(made("1")) + pack(made("2"))
    torn = pack(made("3"))
    (tmp_path / f"left{ENDING}").write_bytes(whole + torn[: min(cut, len(torn) - 1)])
    spill = spill_of_traces(tmp_path, MB)
    assert spill.recover() == 2
    assert [trace.id for trace in spill.first(9).found] == ["1", "2"]
    assert not (tmp_path / f"left{ENDING}").exists()


def test_a_record_of_which_a_bit_has_turned_ends_the_file(tmp_path: Path) -> None:
    second = bytearray(pack(made("2")))
    second[20] ^= 1
    (tmp_path / f"left{ENDING}").write_bytes(pack(made("1")) + bytes(second) + pack(made("3")))
    spill = spill_of_traces(tmp_path, MB)
    assert spill.recover() == 1


def test_a_file_of_a_process_that_lives_is_left_alone(tmp_path: Path) -> None:
    first, second = spill_of_traces(tmp_path, MB), spill_of_traces(tmp_path, MB)
    first.append(made("1"))
    assert second.recover() == 0
    first.close()
    assert second.recover() == 1


@pytest.mark.service
def test_what_a_killed_process_spilled_comes_back(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from tests.serving.ingest.test_spill import *\n"
        "spill = spill_of_traces(Path(sys.argv[1]), MB)\n"
        "for number in range(50): spill.append(made(str(number)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, cwd=Path(__file__).parents[3])
    assert run.returncode < 0
    spill = spill_of_traces(tmp_path, MB)
    assert spill.recover() == 50
    assert [trace.id for trace in spill.first(99).found] == [str(number) for number in range(50)]


def test_a_folder_that_cannot_be_written_to_has_no_room(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not spill_of_traces(tmp_path / "file" / "below", MB).append(made("1"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_has_no_room_and_loses_nothing_that_was_taken(tmp_path: Path) -> None:
    spill = spill_of_traces(tmp_path, MB)
    assert spill.append(made("1"))
    file = spill._file
    assert file is not None
    kept = os.dup(file)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file)
    assert not spill.append(made("2"))
    os.dup2(kept, file)
    assert spill.append(made("3"))
    assert [trace.id for trace in spill.first(9).found] == ["1", "3"]
    os.close(full)
    os.close(kept)


def test_the_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    spill = spill_of_traces(tmp_path / "spill", MB)
    spill.append(made("1"))
    assert (tmp_path / "spill").stat().st_mode & 0o077 == 0
    assert next((tmp_path / "spill").iterdir()).stat().st_mode & 0o077 == 0


def test_reading_ends_at_nonsense(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"\xff" * 100)
    file = os.open(tmp_path / "file", os.O_RDONLY)
    assert list(records(file, 0)) == []
    os.close(file)
