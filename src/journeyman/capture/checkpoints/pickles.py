"""Pickles, read without unpickling."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from journeyman.capture.checkpoints.machine import Broken, Machine, Name, Record, text_allowed
from journeyman.errors import InputError

MOST_BYTES = 512 << 20
MOST_NODES = 2_000_000
"""References cost a pickle two bytes each: a small file can stand for a structure that no memory holds."""
MOST_DEPTH = 200
_MOST_FOLDERS = 100
_MOST_BITS = 1024


def read(content: bytes, name: str) -> Any:
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
        return _plain(Machine().run(content), text_allowed(content))
    except Broken as broken:
        raise InputError(f"{name} {broken}") from None
    except (ValueError, IndexError, OverflowError, TypeError) as error:
        # What `genops` says of bytes that are no opcodes, or of too few of them.
        raise InputError(f"{name} is no pickle, or is cut off: {error}") from None


def _plain(value: Any, most_text: int) -> Any:
    """The value with its records opened, without recursion: what is nested deeply is somebody's trap."""
    result: list[Any] = []
    # Where each part goes is told by a container and its key, deepest last.
    waiting: list[tuple[Any, Any, Any, int]] = [(result, None, value, 0)]
    nodes, text = 1, 0
    while waiting:
        into, key, found, depth = waiting.pop()
        nodes += len(found) if isinstance(found, list | dict) else 0
        if nodes > MOST_NODES:
            raise Broken(f"stands for more than {MOST_NODES:,} values, or holds itself")
        if depth > MOST_DEPTH:
            raise Broken(f"is nested more than {MOST_DEPTH} levels deep, or holds itself")
        made, parts = _opened(found)
        if isinstance(found, Record):
            nodes += len(parts)
        elif isinstance(made, str) and (text := text + len(made)) > most_text:
            raise Broken("stands for more text than memory should hold")
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
    if isinstance(value, Record):
        return _of_record(value)
    if isinstance(value, bytes | bytearray):
        return f"[{len(value)} bytes]", []
    if isinstance(value, Name):
        return str(value), []
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"[a number of {value.bit_length()} bits]", []
    return value, []


def _of_record(record: Record) -> tuple[Any, list[tuple[str | None, Any]]]:
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
