"""Pickles are read, and nothing in them is run."""

import collections
import enum
import io
import json
import os
import pathlib
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.tracing.pickles import MOST_DEPTH, nodes_allowed, read_pickle

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


@dataclass
class Point:
    x: int = 1
    tags: set[str] = field(default_factory=lambda: {"a"})


class Slotted:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 1

    def __getstate__(self) -> tuple[None, dict[str, int]]:
        return None, {"x": self.x}


class Own(dict[str, int]):
    pass


class Status(enum.Enum):
    DONE = "done"


class Call:
    """Pickled as the call of a function."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._call = (function, arguments)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._call


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_gives_the_same_plain_data(protocol: int) -> None:
    whole = {
        "list": [1, (2.5, None, True), {4}, frozenset([5])],
        "time": datetime(2025, 1, 2, 3, 4, 5, 6),
        "ordered": collections.OrderedDict(a=1),
        "default": collections.defaultdict(list, {"k": [1]}),
        "deque": collections.deque([1, 2]),
        "own": Own(z=1),
        "status": Status.DONE,
        "path": pathlib.PurePosixPath("/a/b"),
        "bytes": b"xyz",
        "big": 1 << 80,
        "text": "grüße\n",
        7: "number",
        (1, "a"): "pair",
    }
    found = read_pickle(pickle.dumps(whole, protocol), "f.pkl")
    own = found.pop("own")
    assert own["z"] == 1
    assert own["__class__"].endswith(".Own")
    assert found == {
        "list": [1, [2.5, None, True], [4], [5]],
        "time": "2025-01-02T03:04:05.000006",
        "ordered": {"a": 1},
        "default": {"k": [1]},
        "deque": [1, 2],
        "status": "done",
        "path": "/a/b",
        "bytes": "[3 bytes]",
        "big": 1 << 80,
        "text": "grüße\n",
        "7": "number",
        "1, a": "pair",
    }


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_object_is_a_mapping_of_its_attributes_with_the_name_of_its_class(protocol: int) -> None:
    point = read_pickle(pickle.dumps(Point(x=7), protocol), "f.pkl")
    assert (point["x"], point["tags"]) == (7, ["a"])
    assert point["__class__"].endswith("test_pickles.Point")
    if protocol > 1:
        assert read_pickle(pickle.dumps(Slotted(), protocol), "f.pkl")["x"] == 1


def test_a_time_with_a_zone_keeps_its_digits() -> None:
    assert read_pickle(pickle.dumps(datetime(2025, 1, 2, tzinfo=UTC)), "f.pkl") == "2025-01-02T00:00:00"


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(plain, st.sampled_from(PROTOCOLS))
def test_plain_data_comes_back_as_it_was(data: Any, protocol: int) -> None:
    assert read_pickle(pickle.dumps(data, protocol), "f.pkl") == data


def complaint(content: bytes) -> str:
    """What is said of a pickle that may be none; anything but an `InputError` fails the test."""
    try:
        read_pickle(content, "f.pkl")
    except InputError as error:
        return str(error)
    return "f.pkl is fine"


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_fail_with_one_sentence(content: bytes) -> None:
    assert complaint(content).startswith("f.pkl ")


@given(plain, st.integers(0, 400), st.integers(0, 255))
def test_no_spoilt_byte_does_more_than_fail_with_one_sentence(data: Any, at: int, byte: int) -> None:
    content = bytearray(pickle.dumps({"a": data, "b": [data, datetime(2025, 1, 1)]}))
    content[at % len(content)] = byte
    assert complaint(bytes(content)).startswith("f.pkl ")


def global_(module: str, name: str) -> bytes:
    return f"c{module}\n{name}\n".encode()


def copying() -> dict[str, bytes]:
    """Small files, each of which has a thing copied so often that memory, or a day, would not do."""
    many = 100_000
    text = b"\x80\x02X" + struct.pack("<I", many) + b"a" * many + b"q\x000"
    mapping = b"\x80\x02}q\x00(" + b"".join(b"X\x05\x00\x00\x00%05dN" % at for at in range(many)) + b"u0"
    thing = global_("a", "B") + b")R"
    return {
        "a key of many texts": text + b"}(" + b"h\x00" * many + b"tNs.",
        "a long key many times": b"\x80\x02}(" + b"K\x01" * many + b"lq\x00Ns" + b"h\x00Ns" * many + b".",
        "a path of many texts": text + global_("pathlib", "Path") + b"(" + b"h\x00" * many + b"tR.",
        "many bytes of one text": text + global_("_codecs", "encode") + b"q\x010(" + b"h\x01h\x00\x85R" * many + b"l.",
        "one state of many things": mapping + b"(" + (thing + b"h\x00b") * many + b"l.",
        "one state many times": mapping + thing + b"h\x00b" * many + b".",
        "the names of one keyword": mapping + global_("a", "B") + b"q\x010(" + b"h\x01)h\x00\x92" * many + b"l.",
        "many lists of one": b"\x80\x02(" + b"K\x01" * many + b"lq\x000" + global_("copyreg", "_reconstructor") + b"q\x010"
        + global_("a", "B") + b"q\x020(" + b"h\x01h\x02Nh\x00\x87R" * many + b"l.",
        "many names of one class": global_("a" * many, "B") + b"q\x000(" + b"h\x00)R" * many + b"l.",
        "a list that holds itself many times": b"\x80\x02]q\x00(" + b"h\x00" * 11 * many + b"e.",
        "a class with all that it holds": b"\x80\x02]q\x000"
        + b"".join(b"](h%ch%ceq%c0" % (at, at, at + 1) for at in range(60)) + global_("a", "B") + b"h<\x85R)R.",
        "a module of many dots": global_("a." * many, "B") + b")R.",
        "a number that is written for hours": b"\x80\x02}X\x0a\x00\x00\x00task_state\x8b" + struct.pack("<i", many)
        + b"\x7f" * many + b"s.",
    }  # fmt: skip


def hostile() -> dict[str, bytes]:
    def call(module: str, name: str, *arguments: str) -> bytes:
        told = b"".join(b"X" + struct.pack("<I", len(each)) + each.encode() for each in arguments)
        return b"\x80\x02" + global_(module, name) + b"(" + told + b"tR."

    touch = "touch pwned"
    nested = pickle.dumps({"session_data": {"s": {"history": [Call(os.system, touch)]}}})
    return {
        "os.system": pickle.dumps(Call(os.system, touch)),
        "builtins.eval": pickle.dumps(Call(eval, "open('pwned', 'w')")),
        "builtins.exec": pickle.dumps(Call(exec, "open('pwned', 'w')")),
        "__builtin__.eval": call("__builtin__", "eval", "open('pwned', 'w')"),
        "subprocess": pickle.dumps(Call(subprocess.check_call, ["touch", "pwned"])),
        "Popen by NEWOBJ": b"\x80\x02" + global_("subprocess", "Popen") + b"X\x05\x00\x00\x00touch\x85\x81.",
        "INST": b"(S'touch pwned'\nios\nsystem\n.",
        "OBJ": b"(" + global_("os", "system") + b"S'touch pwned'\no.",
        "importlib": call("importlib", "import_module", "antigravity"),
        "getattr chain": b"\x80\x02" + global_("builtins", "getattr") + global_("os", "path") + b"X\x02\x00\x00\x00os\x86R.",
        "dotted name": b"\x80\x04\x8c\x08builtins\x8c\x0beval.__call__\x93\x8c\x011\x85R.",
        "runpy": call("runpy", "run_path", "x.py"),
        "nested in a checkpoint": nested,
        "nested reduce": pickle.dumps(Call(list, [Call(os.system, touch)])),
        "pickle in a pickle": pickle.dumps(Call(pickle.loads, pickle.dumps(Call(os.system, touch)))),
        "an extension of copyreg": b"\x80\x02\x82\x01.",
        "a buffer from outside": b"\x80\x05\x97.",
        "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
        "a dict that holds itself": b"\x80\x02}q\x00K\x01h\x00s.",
        "deep": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        "deep tuples": b"\x80\x02)" + b"\x85" * 200_000 + b".",
        "deep records": b"\x80\x02" + global_("a", "B") + b"".join([b")R" + b"\x85"[:0] for _ in range(100_000)]) + b"].",
        "a billion laughs": b"\x80\x02]q\x00"
        + b"".join(b"](" + (b"h" + bytes([at])) * 10 + b"eq" + bytes([at + 1]) for at in range(12))
        + b".",
        **copying(),
        "a text longer than the file": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"abc.",
        "a bytearray longer than the file": b"\x80\x05\x96" + struct.pack("<Q", 1 << 60) + b"abc.",
        "a number longer than the file": b"\x80\x02\x8b" + struct.pack("<i", (1 << 31) - 1) + b"abc.",
        "a number of many digits": b"L" + b"9" * 1_000_000 + b"L\n.",
        "a place far out in the memo": b"\x80\x02Nr\xff\xff\xff\xff0.",
        "a frame longer than the file": b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"N",
        "a stack that runs out": b"\x80\x02" + b"0" * 5 + b".",
        "no end": b"\x80\x02" + b"N" * 1000,
        "nothing": b"",
    }


SLOW = "a billion laughs"
"""It is unfolded up to the limit of two million values."""

READ_ALL = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
from pathlib import Path
from journeyman.tracing.importers.checkpoints import read
from journeyman.core.errors import InputError
for path in map(Path, sys.argv[1:]):
    try:
        said = str(read(path))
    except InputError as error:
        said = f"refused: {error}"
    print(json.dumps([path.name, said]), flush=True)
"""


def said_of(folder: pathlib.Path, traps: dict[str, bytes]) -> dict[str, str]:
    """What is said of each, by a process of its own with little memory: what gets through would be seen there."""
    for name, content in traps.items():
        (folder / name).write_bytes(content)
    run = [sys.executable, "-c", READ_ALL, *(str(folder / name) for name in traps)]
    done = subprocess.run(run, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return dict(map(json.loads, done.stdout.splitlines()))


def check(folder: pathlib.Path, what: str, said: str) -> None:
    assert said.startswith(f"refused: {folder / what} ")
    assert len(said.splitlines()) == 1
    assert not (folder / "pwned").exists()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("traps")


@pytest.fixture(scope="module")
def said(folder: pathlib.Path) -> dict[str, str]:
    return said_of(folder, {name: content for name, content in hostile().items() if name != SLOW})


@pytest.mark.service
@pytest.mark.parametrize("what", sorted(hostile().keys() - {SLOW}))
def test_a_hostile_pickle_runs_nothing_and_ends_in_one_sentence(what: str, folder: pathlib.Path, said: dict[str, str]) -> None:
    check(folder, what, said[what])


@pytest.mark.service
def test_a_pickle_that_stands_for_more_than_memory_holds_ends_in_one_sentence(tmp_path: pathlib.Path) -> None:
    check(tmp_path, SLOW, said_of(tmp_path, {SLOW: hostile()[SLOW]})[SLOW])


def test_the_traps_are_real(tmp_path: pathlib.Path) -> None:
    content = hostile()["os.system"]
    subprocess.run(
        [sys.executable, "-c", "import pickle, sys; pickle.loads(sys.stdin.buffer.read())"],
        cwd=tmp_path, input=content, check=True, timeout=60,
    )  # fmt: skip
    assert (tmp_path / "pwned").exists()


def test_what_a_small_file_may_stand_for_hangs_on_its_size() -> None:
    data: Any = {"a": 1}
    for _ in range(40):
        data = {"a": data, "b": data}
    content = pickle.dumps(data)
    assert len(content) < 450
    with pytest.raises(InputError, match="too many for a file of its size"):
        read_pickle(content, "f.pkl")
    # Two million, whatever the size, took five seconds to be refused.
    assert nodes_allowed(content) < 15_000
    tools = {f"tool {number}": {"args": ["q", "limit"]} for number in range(20)}
    shared = {f"turn {number}": tools for number in range(100)}
    assert read_pickle(pickle.dumps(shared), "f.pkl") == shared


def test_what_is_just_deep_enough_is_read() -> None:
    data: Any = "bottom"
    for _ in range(MOST_DEPTH - 1):
        data = [data]
    assert read_pickle(pickle.dumps(data), "f.pkl") == data
    buffer = io.BytesIO()
    pickle.Pickler(buffer).dump([data, data])
    with pytest.raises(InputError, match="nested more than"):
        read_pickle(pickle.dumps([[data]]), "f.pkl")
