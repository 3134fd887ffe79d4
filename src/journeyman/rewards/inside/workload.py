"""Calls a function with arguments of a size, for whoever counts what that takes: what is imported here is counted, too."""

import builtins
import itertools
import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any


def _stock(*given: Any) -> Any:
    """Stands for a function of the tests, which cannot be had here."""
    return given[0] if given else None


def _other(value: Any, turn: int) -> Any:
    """A value like it, another one in each turn."""
    kind, held = value
    if turn == 0 or kind in ("builtin", "stock") or held is None or isinstance(held, bool):
        return value
    if kind == "value":
        return [kind, f"{held}{turn}" if isinstance(held, str) else held + turn * 1009]
    if kind == "range":
        return [kind, [held[0] + turn, held[1] + turn, held[2]]]
    if kind == "dict":
        return [kind, [[_other(key, turn), each] for key, each in held]]
    return [kind, [_other(each, turn) for each in held]]


def _letter(letter: str, turn: int) -> str:
    """A letter, another one in each turn: what grows with how many different ones there are is seen to."""
    return letter if turn == 0 else chr(0x4E00 + (ord(letter) + 131 * turn) % 0x5000)


def _scaled(value: Any, size: int) -> Any:
    """What holds others, holding so many; what is a number stays."""
    kind, held = value
    if kind == "value" and isinstance(held, str) and held:
        return [kind, "".join(_letter(held[at % len(held)], at // len(held)) for at in range(size))]
    if kind == "range":
        return [kind, [held[0], held[0] + held[2] * size, held[2]]]
    if kind not in ("list", "tuple", "set", "dict", "iterator") or not held:
        return value
    if kind == "dict":
        return [kind, [[_other(key, at // len(held)), each] for at in range(size) for key, each in [held[at % len(held)]]]]
    return [kind, [_other(held[at % len(held)], at // len(held)) for at in range(size)]]


def _made(value: Any) -> Any:
    kind, held = value
    if kind == "value":
        return held
    if kind == "builtin":
        return getattr(builtins, held)
    if kind == "stock":
        return _stock
    if kind == "dict":
        return {_made(key): _made(each) for key, each in held}
    if kind == "range":
        return range(*held)
    items = [_made(each) for each in held]
    return iter(items) if kind == "iterator" else {"list": list, "tuple": tuple, "set": set}[kind](items)


def _consumed(found: Any, most: int) -> Any:
    """What came of a call, with as much as is wanted of what would come only when it is asked for."""
    if hasattr(found, "__next__"):
        found = list(itertools.islice(found, most))
    if type(found) in (list, tuple):
        return [list(itertools.islice(each, most)) if hasattr(each, "__next__") else each for each in found]
    # In which order these are told is not what anybody is asked for.
    return sorted(map(repr, found)) if type(found) in (set, frozenset) else found


def _ran(function: Any, calls: Sequence[Any], size: int, place: str) -> None:
    found = [_consumed(function(*(_made(_scaled(each, size)) for each in call)), 2 * size) for call in calls]
    # What it gave is told by another process, whose work is not counted, and of the very calls that were.
    if (teller := os.fork()) == 0:
        with open(place, "w", encoding="utf-8", errors="surrogatepass") as file:  # noqa: PTH123
            file.writelines(f"{each!r}\n" for each in found)
    elif os.waitpid(teller, 0)[1]:
        sys.exit(1)


def main() -> None:
    """`workload.py FILE FOLDER SIZE…`: make the calls of each size, none with 0; what they gave lies in the folder by the size.

    Each size has a process of its own, forked from one that has imported all: to start under valgrind takes longer than many a
    call. It begins when a byte comes on stdin, and its number is printed when it has ended, so that what was counted can be
    taken away before the next one begins.
    """
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123 - as little as can be is imported
        told = json.load(file)
    sys.path[:0] = told["roots"]
    answers = os.dup(1)
    os.dup2(2, 1)  # What the code prints is no answer.
    function = getattr(import_module(told["module"]), told["function"])
    for size in map(int, sys.argv[3:]):
        os.read(0, 1)
        if (child := os.fork()) == 0:
            return _ran(function, told["calls"] if size else (), size, f"{sys.argv[2]}/{size}")
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
        os.write(answers, f"{child}\n".encode())
    return None


if __name__ == "__main__":
    main()
