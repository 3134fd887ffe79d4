"""Values as text, between two processes that do not trust each other. Nothing but data is made on the way in.

Plain data goes by value: what arrives has only built-in types, whatever it was before, so that an object with an `==` of its
own has nothing to say. Lists, dicts and sets keep who is who within one exchange, so that what a function did to its
arguments can be done to the caller's. Everything else stays where it is and goes by name, as a handle.
"""

import builtins
import collections
import datetime
import decimal
import fractions
import types
from collections.abc import Callable, Iterable
from typing import Any

Encoded = Any
"""JSON: an atom, or a list whose first item says what it is."""

_SAFE_INT = 1 << 64
_NAMED = {
    name: made
    for name, made in vars(builtins).items()
    if isinstance(made, type)
    or name in ("abs", "len", "max", "min", "sum", "sorted", "ord", "chr", "all", "any", "repr", "round")
}
"""Goes by its own name, because both sides have it."""

_REBUILT: dict[str, tuple[type, Callable[[Any], list[Any]]]] = {
    "complex": (complex, lambda x: [x.real, x.imag]),
    "range": (range, lambda x: [x.start, x.stop, x.step]),
    "slice": (slice, lambda x: [x.start, x.stop, x.step]),
    "decimal": (decimal.Decimal, lambda x: [str(x)]),
    "fraction": (fractions.Fraction, lambda x: [x.numerator, x.denominator]),
    "datetime": (
        datetime.datetime,
        lambda x: [x.year, x.month, x.day, x.hour, x.minute, x.second, x.microsecond, x.tzinfo, x.fold],
    ),
    "date": (datetime.date, lambda x: [x.year, x.month, x.day]),
    "time": (datetime.time, lambda x: [x.hour, x.minute, x.second, x.microsecond, x.tzinfo, x.fold]),
    "timezone": (datetime.timezone, lambda x: list(x.__getinitargs__())),
    "timedelta": (datetime.timedelta, lambda x: [x.days, x.seconds, x.microseconds]),
}
"""Types of values that are made anew from the arguments of their constructor."""
_MADE: dict[str, Callable[..., Any]] = {
    "datetime": lambda *parts: datetime.datetime(*parts[:-1], fold=parts[-1]),
    "time": lambda *parts: datetime.time(*parts[:-1], fold=parts[-1]),
}
"""Of those whose constructor wants the last by name."""
_REBUILT_BY_TYPE = {made: name for name, (made, _) in _REBUILT.items()}

_MUTABLE: dict[type, str] = {
    list: "list",
    dict: "dict",
    set: "set",
    collections.deque: "deque",
    bytearray: "bytearray",
    collections.Counter: "dict",
    collections.defaultdict: "dict",
    collections.OrderedDict: "dict",
}
_FIXED: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "frozenset": frozenset}
_BASES: tuple[Any, ...] = (bool, int, float, str, bytes, tuple, frozenset, list, dict, set)


class Memo:
    """Who is who within one exchange: the containers that crossed, by number, the same on both sides."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}

    def add(self, value: Any) -> int:
        self.objects.append(value)
        self.numbers[id(value)] = len(self.objects) - 1
        return len(self.objects) - 1


class ValueEncoder:
    """One value to JSON. What is no plain data is handed to `opaque`, which gives its encoding or raises."""

    def __init__(self, memo: Memo, opaque: Callable[[Any], Encoded]) -> None:
        self.memo, self.opaque = memo, opaque

    def encode(self, value: Any) -> Encoded:
        kind = type(value)
        if value is None or kind in (bool, str, float) or (kind is int and -_SAFE_INT < value < _SAFE_INT):
            return value
        if kind in _MUTABLE:
            return self._container(value, _MUTABLE[kind])
        if kind in (tuple, frozenset):
            return [kind.__name__, [self.encode(item) for item in value]]
        if kind is int:
            return ["int", hex(value)]
        if kind is bytes:
            return ["bytes", value.decode("latin-1")]
        if kind in _REBUILT_BY_TYPE:
            name = _REBUILT_BY_TYPE[kind]
            return [name, [self.encode(item) for item in _REBUILT[name][1](value)]]
        if _is_named(value):
            return ["named", value.__name__]
        return self.opaque(value)

    def _container(self, value: Any, tag: str) -> Encoded:
        number = self.memo.numbers.get(id(value))
        if number is not None:
            return ["same", number]
        number = self.memo.add(value)
        return [tag, number, self.contents(value)]

    def contents(self, value: Any) -> Encoded:
        if isinstance(value, bytearray):
            return value.decode("latin-1")
        if isinstance(value, dict):
            return [[self.encode(key), self.encode(item)] for key, item in dict.items(value)]
        return [self.encode(item) for item in value]


class Decoder:
    """JSON to one value. What it does not know raises `ValueError`, whoever sent it."""

    def __init__(self, memo: Memo, handle: Callable[[str, list[Any]], Any]) -> None:
        self.memo, self.handle = memo, handle

    def decode(self, coded: Encoded) -> Any:
        if not isinstance(coded, list):
            return coded
        match coded:
            case ["same", int(number)]:
                return self.memo.objects[number]
            case ["list" | "dict" | "set" | "deque" | "bytearray" as tag, int(), contents]:
                return self._container(tag, contents)
            case ["tuple" | "frozenset" as tag, list(items)]:
                return _FIXED[tag](self.decode(item) for item in items)
            case ["int", str(digits)]:
                return int(digits, 16)
            case ["bytes", str(text)]:
                return text.encode("latin-1")
            case ["named", str(name)] if name in _NAMED:
                return _NAMED[name]
            case [str(name), list(items)] if name in _REBUILT:
                return _MADE.get(name, _REBUILT[name][0])(*(self.decode(item) for item in items))
            case [str(name), *rest]:
                return self.handle(name, rest)
        raise ValueError("a message that is none")

    def _container(self, tag: str, contents: Encoded) -> Any:
        made: Any = {"list": list, "dict": dict, "set": set, "deque": collections.deque, "bytearray": bytearray}[tag]()
        self.memo.add(made)
        self.fill(made, contents)
        return made

    def fill(self, made: Any, contents: Encoded) -> None:
        """Make a container hold this instead of what it holds."""
        if isinstance(made, bytearray):
            made[:] = contents.encode("latin-1")
        elif isinstance(made, dict):
            items = [(self.decode(key), self.decode(item)) for key, item in contents]
            made.clear()
            made.update(items)
        else:
            found = [self.decode(item) for item in contents]
            made.clear()
            if isinstance(made, set):
                _put(made, found)
            else:
                made.extend(found)


def _put(made: set[Any], items: list[Any]) -> None:
    """Fill a set, so that its items stand in the order they had at the other end if that can be had.

    Their order depends on how the set has grown, and code that leans on it is judged as it would be in one process.
    """
    for order in (items, items[::-1]):
        # One by one it grows by and by; of another set it takes the room for all at once.
        for whole in (order, frozenset(order)):
            made.clear()
            made.update(whole)
            if list(made) == items:
                return


def plain(value: Any) -> Any:
    """What an object of a class that somebody derived from a built-in type is as one of that type, or the object itself."""
    for base in _BASES:
        if isinstance(value, base):
            return _base(value, base)
    return value


def _base(value: Any, base: Any) -> Any:
    # Not `base(value)`: that would ask the object, whose class may have its own answers.
    if base is tuple:
        return tuple(tuple.__iter__(value))
    if base in (list, set, frozenset):
        return base(base.__iter__(value))
    if base is dict:
        return dict(dict.items(value))
    if base is str:
        return str.__str__(value)
    if base is bytes:
        return bytes.__getitem__(value, slice(None))
    return base.__pos__(value) if base is not bool else value


def _is_named(value: Any) -> bool:
    return type(value) in (type, types.BuiltinFunctionType) and _NAMED.get(value.__name__) is value
