"""What a function does with the arguments that tests call it with, and with others like them.

What is reported comes from where the code is. It is held against what other code says of the same arguments.
"""

import builtins
import collections
import contextlib
import copy
import gc
import hashlib
import io
import itertools
import json
import random
import re
import signal
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from . import suite

_MOST_RECORDED = 200
_MOST_TOLD = 400
_MOST_CALLS = 20
_LONGEST = 300
"""Of an iterator that is asked for its values."""
_SECONDS = 0.5
"""Of computing, for one call."""
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{4,}")

_Arguments = dict[str, Any]


class _TooLong(BaseException):
    """It takes too long to wait for."""


class _Recorder:
    """Keeps copies of what a function is called with, but not of what it calls itself with."""

    def __init__(self, file: str, function: str) -> None:
        self._file, self._function = file, function
        self.code: types.CodeType | None = None
        self.calls: list[_Arguments] = []
        self._active = 0
        self._seen: set[types.FrameType] = set()

    def __call__(self, frame: types.FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if code is not self.code and (self.code is not None or not self._is_it(code)):
            return
        if event == "call":
            self.code = code
            if not self._active and frame not in self._seen and len(self.calls) < _MOST_RECORDED:
                self._seen.add(frame)
                with contextlib.suppress(Exception):
                    self.calls.append(copy.deepcopy({name: frame.f_locals[name] for name in _parameters(code)}))
            self._active += 1
        elif event == "return":
            self._active -= 1

    def _is_it(self, code: types.CodeType) -> bool:
        named = getattr(code, "co_qualname", code.co_name)
        return code.co_filename == self._file and named == self._function


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    many = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + many]


def run(  # noqa: PLR0913 - as text from outside
    report: Callable[[str], object],
    tests: Sequence[str],
    *,
    roots: Sequence[str],
    plugins: Sequence[str],
    place: tuple[str, str],
    seed: int,
    wanted: int,
) -> None:
    """Run tests, and then the function at a place (file, name) with what they called it with, and with changes of that."""
    recorder = _Recorder(str(Path.cwd() / place[0]), place[1])
    sys.setprofile(recorder)
    try:
        suite.run(lambda _: None, tests, roots=roots, plugins=plugins, cover="")
    finally:
        sys.setprofile(None)
    inputs = list(_inputs(recorder.calls, random.Random(seed), wanted))
    called = _function(recorder.code)
    results = [_tried(called, each) for each in inputs] if called is not None else []
    calls = [told for each in recorder.calls if called is not None and (told := _told(called, each)) is not None]
    report(json.dumps({"recorded": len(recorder.calls), "results": results, "calls": calls[:_MOST_CALLS]}))


def _told(function: types.FunctionType, call: _Arguments) -> list[Any] | None:
    """A call by position alone, as JSON; `None` where it holds what cannot be told so, or needs names of arguments."""
    code, names = function.__code__, list(_parameters(function.__code__))
    values = [call[name] for name in names[: code.co_argcount]]
    named, rest = names[code.co_argcount :][: code.co_kwonlyargcount], names[code.co_argcount + code.co_kwonlyargcount :]
    if any(call[name] is not (function.__kwdefaults__ or {}).get(name, call) for name in named):
        return None
    if code.co_flags & 0x04:
        values += call[rest.pop(0)]
    if rest and call[rest[0]]:
        return None
    try:
        return [_as_json(each) for each in values]
    except TypeError:
        return None


def _as_json(value: Any) -> list[Any]:
    if value is None or type(value) in (bool, int, float, str):
        return ["value", value]
    for kind in (list, tuple, set):
        if type(value) is kind:
            return [kind.__name__, [_as_json(each) for each in value]]
    if type(value) is range:
        return ["range", [value.start, value.stop, value.step]]
    if type(value) is dict:
        return ["dict", [[_as_json(key), _as_json(each)] for key, each in value.items()]]
    if isinstance(value, Iterator):
        items = list(itertools.islice(copy.copy(value), _LONGEST))
        if len(items) < _LONGEST:
            return ["iterator", [_as_json(each) for each in items]]
    if callable(value):
        name = getattr(value, "__name__", "")
        return ["builtin", name] if getattr(builtins, name, None) is value else ["stock", None]
    raise TypeError


def _function(code: types.CodeType | None) -> types.FunctionType | None:
    found = (each for each in gc.get_referrers(code) if isinstance(each, types.FunctionType) and each.__code__ is code)
    return next(found, None) if code is not None else None


def _inputs(calls: list[_Arguments], chance: random.Random, wanted: int) -> Iterator[_Arguments]:
    """Each once: as they were recorded, then changed."""
    seen = set[str]()
    changed = (_changed(calls, chance) for _ in range(20 * wanted)) if calls else ()
    for each in itertools.chain(calls, changed):
        if (told := described(each)) not in seen:
            seen.add(told)
            yield each
        if len(seen) >= wanted:
            return


def _changed(calls: list[_Arguments], chance: random.Random) -> _Arguments:
    found = copy.deepcopy(chance.choice(calls))
    for name in [name for name in found if name not in ("self", "cls")]:
        drawn = chance.random()
        if drawn < 0.3:
            found[name] = copy.deepcopy(chance.choice(calls)[name])
        elif drawn < 0.7:
            found[name] = _mutated(found[name], chance)
    return found


def _mutated(value: Any, chance: random.Random, depth: int = 0) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return chance.choice([0, 1, -1, value + 1, value - 1, -value, min(value, 1000) * 2, chance.randrange(20)])
    if isinstance(value, float):
        return chance.choice([0.0, -value, value + 1.0, value / 2, value * 3])
    if isinstance(value, (str, bytes)):
        text: Any = value
        at = chance.randrange(len(text) + 1)
        return chance.choice([text[:0], text[::-1], text[:at], text[at:], text[:200] * 2, text[:at] + text[at + 1 :]])
    if type(value) in (list, tuple):
        return type(value)(_other_items(list(value), chance, depth))
    if type(value) in (set, frozenset):
        return type(value)(_other_items(sorted(value, key=repr), chance, 9))
    if type(value) in (dict, collections.OrderedDict, collections.defaultdict):
        return _other_mapping(copy.copy(value), chance, depth)
    if isinstance(value, Iterator):
        with contextlib.suppress(Exception):
            return iter(_other_items(list(itertools.islice(value, _LONGEST)), chance, depth))
    return value


def _other_mapping(found: Any, chance: random.Random, depth: int) -> Any:
    for key in list(found):
        drawn = chance.random()
        if drawn < 0.2:
            del found[key]
        elif drawn < 0.5 and depth < 3:
            found[key] = _mutated(found[key], chance, depth + 1)
    return found


def _other_items(items: list[Any], chance: random.Random, depth: int) -> list[Any]:
    drawn = chance.randrange(6)
    if drawn == 0 or not items:
        return [] if items else [chance.randrange(5) for _ in range(chance.randrange(4))]
    at = chance.randrange(len(items))
    if drawn == 1:
        return items[:at] + items[at + 1 :]
    if drawn == 2:
        return [*items[: at + 1], items[at], *items[at + 1 :]]
    if drawn == 3:
        return items[::-1]
    if drawn == 4:
        chance.shuffle(items)
        return items
    if depth < 3:
        items[at] = _mutated(items[at], chance, depth + 1)
    return items


def _tried(function: types.FunctionType, given: _Arguments) -> list[str]:
    """What it is called with, what it gives, and what became of what it was given; "too long" where that took too long."""
    told = described(given)[:_MOST_TOLD]
    code, many = function.__code__, bool(function.__code__.co_flags & 0x04)
    arguments = copy.deepcopy(given)
    names = _parameters(code)
    positional = [arguments[name] for name in names[: code.co_argcount]]
    named = {name: arguments[name] for name in names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]}
    rest = list(names[code.co_argcount + code.co_kwonlyargcount :])
    if many:
        positional += arguments[rest.pop(0)]
    if rest:
        named |= arguments[rest[0]]
    printed = io.StringIO()

    def stop(*_: object) -> None:
        raise _TooLong

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    try:
        with contextlib.redirect_stdout(printed):
            gave = described(function(*positional, **named))
    except (_TooLong, RecursionError, MemoryError):
        return [told, "too long", ""]
    except BaseException as error:  # noqa: BLE001 - which one is what is asked
        gave = f"raises {type(error).__name__}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    try:
        after = described(arguments) + printed.getvalue()
    except Exception:  # noqa: BLE001 - of an object whose own code fails nothing more can be told
        after = ""
    return [told, _short(gave), _short(after)]


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}… {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def described(value: Any, depth: int = 0) -> str:
    """A value in words that are the same for equal values of one kind, wherever they lie in memory."""
    inner = (lambda each: described(each, depth + 1)) if depth < 8 else repr
    kind, plain = type(value).__name__, getattr(type(value), "__repr__", None)
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)):
        return f"{kind} {getattr(value, '__qualname__', '')}"
    if type(value) in (list, tuple):
        return f"{kind}({', '.join(map(inner, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{kind}({', '.join(sorted(map(inner, value)))})"
    if isinstance(value, dict):
        return f"{kind}({', '.join(f'{inner(key)}: {inner(each)}' for key, each in value.items())})"
    if hasattr(type(value), "__next__"):
        return f"iterator({', '.join(map(inner, itertools.islice(value, _LONGEST)))})"
    if plain is object.__repr__:
        held = getattr(value, "__dict__", {})
        return f"{kind}({', '.join(f'{name}={inner(each)}' for name, each in sorted(held.items()))})"
    return _ADDRESS.sub("0x", repr(value))
