"""Pickles read as plain data, by a stack machine none of whose opcodes can import, look up or call anything.

A class or function that a pickle names becomes its name, and what would have been built from it a `PickledObject` with the
arguments and the state that were meant for it. `pickletools.genops` (standard library) decodes the opcodes, and no more.
"""

import io
import pickletools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from journeyman.core.errors import InputError

# Nothing of these would be called either; who asks for them is up to no good, and that is worth a sentence.
# fmt: off
_HOSTILE_MODULES = frozenset({
    "_posixsubprocess", "bdb", "code", "codeop", "commands", "ctypes", "ftplib", "idlelib", "importlib", "marshal",
    "multiprocessing", "nt", "os", "pdb", "pickle", "popen2", "posix", "profile", "pty", "pydoc", "requests", "runpy", "shutil",
    "signal", "smtplib", "socket", "subprocess", "sys", "telnetlib", "timeit", "torch.hub", "venv", "webbrowser", "zipimport",
})
_HOSTILE_BUILTINS = frozenset({
    "__import__", "apply", "breakpoint", "compile", "delattr", "eval", "exec", "execfile", "exit", "file", "getattr", "globals",
    "input", "locals", "open", "print", "quit", "raw_input", "setattr", "vars",
})
# fmt: on


@dataclass(frozen=True, slots=True)
class Name:
    """A class or function that was named, and neither found nor called."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    @property
    def hostile(self) -> bool:
        """Whether only a trap would want it called."""
        if self.module in ("builtins", "__builtin__"):
            return self.name.split(".")[0] in _HOSTILE_BUILTINS
        parts = self.module.split(".", 3)[:3]
        return any(".".join(parts[:end]) in _HOSTILE_MODULES for end in range(1, len(parts) + 1))


@dataclass(slots=True, eq=False)
class PickledObject:
    """What an object would have been built from."""

    kind: str
    """The class, with its module."""
    arguments: Sequence[Any] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    state: Any = None
    """A state that is no mapping of attributes."""
    items: list[Any] = field(default_factory=list)
    """Of a kind of list or set."""
    pairs: dict[str, Any] = field(default_factory=dict)
    """Of a kind of dictionary."""


class _Mark:
    """Where a group on the stack begins."""


class BrokenPickle(Exception):
    """The opcodes make no sense."""


def text_allowed(content: bytes) -> int:
    """Characters that a pickle may stand for. One of two bytes can mean a text of megabytes once more."""
    return (64 << 20) + 2 * len(content)


class Machine:
    """The stack machine of a pickle, over plain data."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._unnamed = 0
        self._room = 0

    def run(self, content: bytes) -> Any:
        self._room = text_allowed(content)
        for opcode, argument, _ in pickletools.genops(io.BytesIO(content)):
            if opcode.name == "STOP":
                return self._pop()
            if opcode.name in _CONSTANTS:
                self._stack.append(_CONSTANTS[opcode.name]())
            elif opcode.name in _VALUES:
                self._stack.append(argument)
            elif (step := _STEPS.get(opcode.name)) is not None:
                step(self, argument)
            elif opcode.name not in ("PROTO", "FRAME", "READONLY_BUFFER"):
                raise BrokenPickle(f"has the opcode {opcode.name}, which stands for something outside the file")
        raise BrokenPickle("ends before its end")

    def _copy(self, count: int, text: int = 0) -> None:
        """Somebody else decides how often a thing is copied: parts count as the memory that they take, texts as they are."""
        self._room -= _PART * count + text
        if self._room < 0:
            raise BrokenPickle("stands for more than memory should hold")

    def _pop(self) -> Any:
        if not self._stack:
            raise BrokenPickle("takes more than it has")
        found = self._stack.pop()
        if isinstance(found, _Mark):
            raise BrokenPickle("takes more than it has")
        return found

    def _top(self) -> Any:
        if not self._stack or isinstance(self._stack[-1], _Mark):
            raise BrokenPickle("takes more than it has")
        return self._stack[-1]

    def _group(self) -> list[Any]:
        """What was pushed since the last mark."""
        for at in range(len(self._stack) - 1, -1, -1):
            if isinstance(self._stack[at], _Mark):
                group = self._stack[at + 1 :]
                del self._stack[at:]
                return group
        raise BrokenPickle("has no mark where one is needed")

    def mark(self, _: Any) -> None:
        self._stack.append(_Mark())

    def pop(self, _: Any) -> None:
        if not self._stack:
            raise BrokenPickle("takes more than it has")
        self._stack.pop()

    def pop_mark(self, _: Any) -> None:
        self._group()

    def dup(self, _: Any) -> None:
        self._stack.append(self._top())

    def get(self, index: Any) -> None:
        if int(index) not in self._memo:
            raise BrokenPickle(f"refers to its part {index}, which is not there")
        self._stack.append(self._memo[int(index)])

    def put(self, index: Any) -> None:
        self._memo[int(index)] = self._top()

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def group(self, _: Any) -> None:
        self._stack.append(self._group())

    def tuple_of(self, count: int) -> None:
        self._stack.append([self._pop() for _ in range(count)][::-1])

    def dictionary(self, _: Any) -> None:
        group = self._group()
        made: dict[str, Any] = {}
        self._set(made, group)
        self._stack.append(made)

    def append(self, _: Any) -> None:
        value = self._pop()
        self._extend(self._top(), [value])

    def appends(self, _: Any) -> None:
        group = self._group()
        self._extend(self._top(), group)

    def setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set(self._top(), [key, value])

    def setitems(self, _: Any) -> None:
        group = self._group()
        self._set(self._top(), group)

    def global_(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(Name(module, name))

    def stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise BrokenPickle("names a class with what is no text")
        self._stack.append(Name(module, name))

    def inst(self, argument: str) -> None:
        group = self._group()
        self.global_(argument)
        self._stack.append(self._record(self._pop(), group))

    def obj(self, _: Any) -> None:
        group = self._group()
        if not group:
            raise BrokenPickle("builds an object of no class")
        self._stack.append(self._record(group[0], group[1:]))

    def reduce(self, _: Any) -> None:
        arguments, callee = self._pop(), self._pop()
        made = self._record(callee, arguments)
        # How bytes are written by the protocols before 3.
        if made.kind == "_codecs.encode" and made.arguments and isinstance(made.arguments[0], str):
            self._copy(1, len(made.arguments[0]))
            self._stack.append(made.arguments[0].encode("latin-1", "replace"))
        else:
            self._stack.append(made)

    def newobj_ex(self, _: Any) -> None:
        named, arguments, callee = self._pop(), self._pop(), self._pop()
        made = self._record(callee, arguments)
        if isinstance(named, dict):
            self._copy(len(named))
            made.attributes.update(named)
        self._stack.append(made)

    def build(self, _: Any) -> None:
        state = self._pop()
        into = self._top()
        if not isinstance(into, PickledObject):
            raise BrokenPickle("gives a state to what has none")
        # An object with slots has a pair: the dictionary's state, and that of the slots.
        parts = state if isinstance(state, list) and len(state) == 2 else [state]
        if all(part is None or isinstance(part, dict) for part in parts):
            for part in parts:
                self._copy(len(part or ()))
                into.attributes.update(part or {})
        else:
            into.state = state

    def persistent(self, argument: Any) -> None:
        reference = argument if argument is not None else self._pop()
        self._stack.append(PickledObject("persistent", [reference]))

    def _extend(self, into: Any, values: list[Any]) -> None:
        if not isinstance(into, list | PickledObject):
            raise BrokenPickle("appends to what is no list")
        (into.items if isinstance(into, PickledObject) else into).extend(values)

    def _set(self, into: Any, group: list[Any]) -> None:
        if not isinstance(into, dict | PickledObject) or len(group) % 2:
            raise BrokenPickle("sets items of what is no dictionary")
        pairs = into.pairs if isinstance(into, PickledObject) else into
        for key, value in zip(group[::2], group[1::2], strict=True):
            pairs[self._key(key)] = value

    def _key(self, key: Any) -> str:
        """Keys become text, as in JSON. That also spares us hashing what somebody else has made up."""
        if isinstance(key, str):
            return key
        if isinstance(key, list):
            self._copy(len(key))
            if all(isinstance(part, str | int | float | None) for part in key):
                self._copy(0, sum(len(part) for part in key if isinstance(part, str)))
                return ", ".join(map(str, key))
        if key is None or isinstance(key, int | float):
            return str(key)
        self._unnamed += 1
        return f"key {self._unnamed}"

    def _record(self, callee: Any, arguments: Any) -> PickledObject:
        if isinstance(callee, Name) and callee.hostile:
            raise BrokenPickle(f"asks to call {callee} when it is loaded, as only a trap does; nothing was called")
        if not isinstance(callee, Name | PickledObject) or not isinstance(arguments, list):
            raise BrokenPickle("calls what is no class")
        named = str(callee) if isinstance(callee, Name) else callee.kind
        self._copy(1, len(named) if isinstance(callee, Name) else 0)
        # How classes without a way of their own are pickled: the class stands in the arguments.
        if named in ("copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__") and arguments:
            kind = arguments[0]
            made = PickledObject(str(kind) if isinstance(kind, Name) else "unknown")
            # What a subclass of a built-in kind holds stands behind the class and that kind.
            held = arguments[2] if len(arguments) > 2 else None
            if isinstance(held, dict | list):
                self._copy(len(held))
            made.pairs.update(held if isinstance(held, dict) else {})
            made.items.extend(held if isinstance(held, list) else [])
            made.arguments = [held] if isinstance(held, str | int | float) else []
            return made
        return PickledObject(named, arguments)


_PART = 100
"""Bytes that a copied part takes: its place in a dictionary."""
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    # Tuples and sets become lists: nothing here needs to be hashed.
    "EMPTY_TUPLE": list,
    "EMPTY_SET": list,
    "EMPTY_DICT": dict,
}
# fmt: off
_VALUES = frozenset({
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "STRING", "BINSTRING",
    "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8", "BYTEARRAY8",
})
# fmt: on
_STEPS: Mapping[str, Callable[[Machine, Any], None]] = {
    "MARK": Machine.mark,
    "POP": Machine.pop,
    "POP_MARK": Machine.pop_mark,
    "DUP": Machine.dup,
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), Machine.get),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), Machine.put),
    "MEMOIZE": Machine.memoize,
    **dict.fromkeys(("LIST", "TUPLE", "FROZENSET"), Machine.group),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "DICT": Machine.dictionary,
    "APPEND": Machine.append,
    **dict.fromkeys(("APPENDS", "ADDITEMS"), Machine.appends),
    "SETITEM": Machine.setitem,
    "SETITEMS": Machine.setitems,
    "GLOBAL": Machine.global_,
    "STACK_GLOBAL": Machine.stack_global,
    "INST": Machine.inst,
    "OBJ": Machine.obj,
    **dict.fromkeys(("REDUCE", "NEWOBJ"), Machine.reduce),
    "NEWOBJ_EX": Machine.newobj_ex,
    "BUILD": Machine.build,
    **dict.fromkeys(("PERSID", "BINPERSID"), Machine.persistent),
}

MOST_BYTES = 512 << 20
MOST_NODES = 2_000_000
"""References cost a pickle two bytes each: a small file can stand for a structure that no memory holds."""
_NODES_OF_ANY, _NODES_OF_A_BYTE = 10_000, 8
"""A value takes a byte at least; what is held in several places, as an agent's tools are, is opened in each of them."""
MOST_DEPTH = 200
_MOST_FOLDERS = 100
_MOST_BITS = 1024


def read_pickle(content: bytes, name: str) -> Any:
    """The data of a pickle, as JSON would have it: keys are text, tuples and sets are lists, times are ISO 8601, and an object
    is a mapping of its attributes with its class under `__class__`.

    Args:
        name: What to call the file in a message.

    Raises:
        InputError: It is no pickle, is cut off, asks for something to be called, or stands for more than memory should hold.
    """
    if len(content) > MOST_BYTES:
        raise InputError(f"{name} has {len(content) >> 20} MiB, and checkpoints are read up to {MOST_BYTES >> 20} MiB")
    try:
        return _plain(Machine().run(content), nodes_allowed(content), text_allowed(content))
    except BrokenPickle as broken:
        raise InputError(f"{name} {broken}") from None
    except (ValueError, IndexError, OverflowError, TypeError) as error:
        # What `genops` says of bytes that are no opcodes, or of too few of them.
        raise InputError(f"{name} is no pickle, or is cut off: {error}") from None


def nodes_allowed(content: bytes) -> int:
    """Values that a pickle may stand for: what reading costs hangs on the size of the file."""
    return min(MOST_NODES, _NODES_OF_ANY + _NODES_OF_A_BYTE * len(content))


def _plain(value: Any, most_nodes: int, most_text: int) -> Any:
    """The value with its records opened, without recursion: what is nested deeply is somebody's trap."""
    result: list[Any] = []
    # Where each part goes is told by a container and its key, deepest last.
    waiting: list[tuple[Any, Any, Any, int]] = [(result, None, value, 0)]
    nodes, text = 1, 0
    while waiting:
        into, key, found, depth = waiting.pop()
        nodes += len(found) if isinstance(found, list | dict) else 0
        if nodes > most_nodes:
            raise BrokenPickle(f"stands for more than {most_nodes:,} values, too many for a file of its size, or holds itself")
        if depth > MOST_DEPTH:
            raise BrokenPickle(f"is nested more than {MOST_DEPTH} levels deep, or holds itself")
        made, parts = _opened(found)
        if isinstance(found, PickledObject):
            nodes += len(parts)
        elif isinstance(made, str) and (text := text + len(made)) > most_text:
            raise BrokenPickle("stands for more text than memory should hold")
        if key is None:
            into.append(made)
        else:
            into[key] = made
        # Lists are filled from the front, so their parts must come off the stack in order.
        waiting.extend((made, part_key, part, depth + 1) for part_key, part in reversed(parts))
    return result[0]


def _opened(value: Any) -> tuple[Any, list[tuple[str | None, Any]]]:
    """What stands for a value, and the parts that are to go into it: under a key, or `None` for the next place of a list."""
    if isinstance(value, list):
        return [], [(None, part) for part in value]
    if isinstance(value, dict):
        return {}, list(value.items())
    if isinstance(value, PickledObject):
        return _of_record(value)
    if isinstance(value, bytes | bytearray):
        return f"[{len(value)} bytes]", []
    if isinstance(value, Name):
        return str(value), []
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"[a number of {value.bit_length()} bits]", []
    return value, []


def _of_record(record: PickledObject) -> tuple[Any, list[tuple[str | None, Any]]]:
    short = record.kind.rpartition(".")[2]
    if record.kind == "datetime.datetime" and (moment := _moment(record.arguments)) is not None:
        return moment, []
    only = record.arguments[0] if len(record.arguments) == 1 else None
    bare = not (record.attributes or record.state or record.pairs or record.items)
    if bare and record.kind.startswith("pathlib.") and len(record.arguments) <= _MOST_FOLDERS:
        return "/".join(str(part) for part in record.arguments if isinstance(part, str)).replace("//", "/"), []
    # A member of an enum, a number of decimals, a kind of text: one plain value in a wrapper.
    if bare and isinstance(only, str | int | float) and not isinstance(only, bool):
        return only, []
    if short in ("list", "deque", "set", "frozenset") and not record.attributes:
        inner = only if isinstance(only, list) else []
        return [], [(None, part) for part in (*inner, *record.items)]
    parts: list[tuple[str | None, Any]] = [*record.pairs.items(), *record.attributes.items()]
    if short not in ("dict", "OrderedDict", "defaultdict"):
        parts.append(("__class__", record.kind))
        parts += [("__arguments__", list(record.arguments))] if record.arguments else []
        parts += [("__state__", record.state)] if record.state is not None else []
        parts += [("__items__", record.items)] if record.items else []
    return {}, parts


def _moment(arguments: Sequence[Any]) -> str | None:
    """The packed time of a `datetime` (ten bytes); its zone, a record of its own, is not looked into."""
    packed = arguments[0] if arguments else None
    if isinstance(packed, str):
        packed = packed.encode("latin-1", errors="replace")
    if not isinstance(packed, bytes) or len(packed) != 10:
        return None
    try:
        year, month, day = packed[0] * 256 + packed[1], packed[2] & 0x7F, packed[3]
        moment = datetime(year, month, day, packed[4], packed[5], packed[6], int.from_bytes(packed[7:10], "big"))
    except ValueError:
        return None
    return moment.isoformat()
