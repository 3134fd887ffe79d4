"""The parts of the far side that need no walls to be tested."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.sandbox import inside
from journeyman.sandbox.inside import files, seccomp, wire
from journeyman.sandbox.inside.supervisor import OutputBuffer


@given(st.lists(st.binary(max_size=50)), st.integers(0, 60))
def test_an_output_buffer_keeps_all_that_fits_and_both_ends_of_what_does_not(chunks: list[bytes], limit: int) -> None:
    buffer, whole = OutputBuffer(limit), b"".join(chunks)
    for chunk in chunks:
        buffer.write(chunk)
    assert buffer.shortened is (len(whole) > limit)
    kept = buffer.take()
    if len(whole) <= limit:
        assert kept == whole
    else:
        head, _, tail = kept.partition(b"\n[... ")
        assert whole.startswith(head)
        assert whole.endswith(tail.partition(b" left out ...]\n")[2])
        assert len(kept) <= limit + 60
    assert buffer.take() == b""


@given(st.text(alphabet="aé漢🐎", min_size=40), st.integers(1, 30))
def test_an_output_buffer_cuts_between_letters(text: str, limit: int) -> None:
    buffer = OutputBuffer(limit)
    buffer.write(text.encode())
    assert "\ufffd" not in buffer.take().decode(errors="replace")


messages = st.dictionaries(
    st.text(max_size=5).filter(lambda key: key != "blobs"), st.integers() | st.text(max_size=5), max_size=3
)


@given(st.lists(st.tuples(messages, st.lists(st.binary(max_size=20), max_size=3)), max_size=4), st.integers(1, 40))
def test_messages_arrive_whole_however_they_are_cut(sent: list[tuple[wire.Message, wire.Blobs]], size: int) -> None:
    data = b"".join(wire.pack(message, blobs) for message, blobs in sent)
    inbox = wire.Inbox()
    heard = [found for start in range(0, len(data), size) for found in inbox.feed(data[start : start + size])]
    assert heard == sent


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"[]",
        b"{}",
        b'{"blobs": 3}',
        b'{"blobs": [-1]}',
        b'{"blobs": [true]}',
        b'{"blobs": [1e99]}',
        b"\xff",
        b"[" * 100000,
    ],
)
def test_what_is_no_message_is_garbled_and_nothing_else(head: bytes) -> None:
    with pytest.raises(wire.Garbled):
        wire.parse_head(head)


def test_a_head_or_blobs_that_are_too_big_are_refused_before_anything_is_reserved() -> None:
    with pytest.raises(wire.Garbled):
        wire.head_size(b"\xff\xff\xff\xff")
    with pytest.raises(wire.Garbled):
        wire.parse_head(json.dumps({"blobs": [1 << 40]}).encode())


@pytest.mark.parametrize(
    ("path", "pattern", "covered"),
    [
        ("a.txt", "*.txt", True),
        ("d/a.txt", "*.txt", False),
        ("d/a.txt", "**/*.txt", True),
        ("a.txt", "**/*.txt", True),
        ("d/e/a.txt", "d/**", True),
        ("d/e/a.txt", "d/*/a.*", True),
        ("d", "d/**", True),
    ],
)
def test_patterns_stay_within_a_folder_unless_they_say_otherwise(path: str, pattern: str, covered: bool) -> None:
    assert files.matches(path, [pattern]) is covered


def test_a_pattern_of_many_stars_is_soon_matched() -> None:
    deep = "d/" * 60
    assert not files.matches(deep + "file", ["**/d/" * 20 + "**/nothing"])
    assert files.matches(deep + "file", ["**/d/" * 20 + "**/file"])
    assert files.matches("file", ["**/" * 100_000 + "file"])


def test_collecting_follows_no_link_and_stops_at_its_limit(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    box = tmp_path / "box"
    box.mkdir()
    (box / "link").symlink_to(tmp_path / "secret")
    (box / "up").symlink_to(tmp_path)
    os.mkfifo(box / "fifo")
    (box / "big").write_bytes(bytes(100))
    (box / "small").write_bytes(b"s")
    assert files.collect(str(box), ["**"], 1000) == {"big": bytes(100), "small": b"s"}
    assert files.collect(str(box), ["**"], 50) == {"small": b"s"}


def test_folders_nested_deeper_than_any_path_is_long_are_looked_through_and_removed(tmp_path: Path) -> None:
    box, here = tmp_path / "box", os.open(".", os.O_RDONLY)
    box.mkdir()
    os.chdir(box)
    try:
        for _ in range(600):
            Path("d" * 200).mkdir()
            os.chdir("d" * 200)
        Path("last").write_bytes(b"x")
    finally:
        os.fchdir(here)
        os.close(here)
    assert [entry.name for _, entry in files.everything_in(str(box))] == ["d" * 200] * 600 + ["last"]
    before = len(list(Path("/proc/self/fd").iterdir()))
    files.remove(str(box))
    assert not box.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_what_is_removed_is_never_what_a_link_leads_to(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    box = tmp_path / "box"
    (box / "a" / "b").mkdir(parents=True)
    for place in (box, box / "a", box / "a" / "b"):
        (place / "link").symlink_to(tmp_path / "kept")
        (place / "file").symlink_to(tmp_path / "kept" / "file")
    assert sum(1 for _ in files.everything_in(str(box))) == 8
    files.remove(str(box))
    assert not box.exists()
    assert (tmp_path / "kept" / "file").read_text() == "kept"


def interpret(program: list[seccomp.Instruction], number: int, arguments: tuple[int, ...] = (), audit: int = 0xC000003E) -> int:
    """What the kernel would answer: a machine for the instructions that the filter uses."""
    words = {seccomp.NUMBER: number, seccomp.ARCHITECTURE: audit}
    words |= {seccomp.FIRST_ARGUMENT + 8 * i: argument & 0xFFFFFFFF for i, argument in enumerate(arguments)}
    at = loaded = 0
    while True:
        code, yes, no, value = program[at]
        at += 1
        if code == seccomp.RETURN:
            return value
        if code == seccomp.LOAD:
            loaded = words.get(value, 0)
        else:
            met = {
                seccomp.JUMP_EQUAL: loaded == value,
                seccomp.JUMP_AT_LEAST: loaded >= value,
                seccomp.JUMP_ANY_BIT: bool(loaded & value),
            }[code]
            at += yes if met else no


@pytest.mark.parametrize(
    ("number", "arguments", "answer"),
    [
        (0, (), seccomp.ALLOW),
        (272, (), seccomp.ERRNO | errno.EPERM),
        (101, (), seccomp.ERRNO | errno.EPERM),
        (435, (), seccomp.ERRNO | errno.ENOSYS),
        (56, (0x11,), seccomp.ALLOW),
        (56, (0x10000011,), seccomp.ERRNO | errno.EPERM),
        (41, (2,), seccomp.ALLOW),
        (41, (40,), seccomp.ERRNO | errno.EAFNOSUPPORT),
        (41, (16,), seccomp.ERRNO | errno.EAFNOSUPPORT),
        (16, (0, 0x5412), seccomp.ERRNO | errno.EPERM),
        (16, (0, 0x5401), seccomp.ALLOW),
        (135, (0xFFFFFFFF,), seccomp.ALLOW),
        (135, (0x0040000,), seccomp.ERRNO | errno.EPERM),
        (0x40000000 | 1, (), seccomp.ERRNO | errno.ENOSYS),
        (73, (3, 2), seccomp.ERRNO | errno.ENOSYS),
        (72, (3, 6), seccomp.ERRNO),
        (72, (3, 7), seccomp.ERRNO),
        (72, (3, 5), seccomp.ALLOW),
        (72, (3, 37), seccomp.ERRNO | errno.EINVAL),
        (72, (3, 1024), seccomp.ERRNO | errno.EINVAL),
        (72, (3, 1026), seccomp.ERRNO | errno.EINVAL),
        (72, (3, 1030), seccomp.ALLOW),
        (327, (3, 0, 1, 0, 0, 0), seccomp.ALLOW),
        (327, (3, 0, 1, 0, 0, 8), seccomp.ERRNO | errno.EOPNOTSUPP),
        (28, (0, 4096, 4), seccomp.ALLOW),
        (28, (0, 4096, 3), seccomp.ERRNO | errno.EINVAL),
        (28, (0, 4096, 21), seccomp.ERRNO | errno.EINVAL),
        (28, (0, 4096, 12), seccomp.ERRNO | errno.EINVAL),
        (157, (67, 1), seccomp.ERRNO | errno.EINVAL),
        (157, (15,), seccomp.ALLOW),
        (16, (3, 0x40086602), seccomp.ERRNO | errno.EPERM),
        *((number, (), seccomp.ERRNO | errno.ENOSYS) for number in (27, 187, 206, 221, 254, 294, 437, 451, 457, 458)),
        (99, (), seccomp.ERRNO | errno.EPERM),
    ],
)
def test_the_filter_answers_each_call(number: int, arguments: tuple[int, ...], answer: int) -> None:
    assert interpret(seccomp.program("x86_64"), number, arguments) == answer


def test_another_architecture_is_killed_and_an_unknown_machine_has_no_filter() -> None:
    assert interpret(seccomp.program("aarch64"), 97) == seccomp.KILL_PROCESS
    assert interpret(seccomp.program("aarch64"), 97, audit=0xC00000B7) == seccomp.ERRNO | errno.EPERM
    with pytest.raises(NotImplementedError):
        seccomp.program("riscv64")


def test_tests_are_no_success_where_pytest_is_not_installed() -> None:
    folder = str(Path(inside.__file__).parents[1])
    code = f"import sys; sys.path.append({folder!r}); from inside import runner; runner.check({{'kind': 'pytest'}})"
    # Without its site-packages, Python has no pytest.
    ended = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "pytest is missing: pip install" in ended.stderr
