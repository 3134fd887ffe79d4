"""Regular expressions of a user: checked when they are read, bounded while they work.

Python's regular expressions can take time without end on a text that fits badly, and cannot be interrupted. So a repetition
within a repetition is refused where both could take the same characters, texts are looked at in pieces, and what takes too long
for its size is taken out whole: what could not be looked through is not kept.
"""

import importlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from journeyman.errors import InputError

PIECE = 1024
"""Characters that are looked at together."""
OVERLAP = 256
"""Of them, those that the next piece has too: what is longer than this may be found in part."""
PATIENCE = 0.05
"""Seconds for a text, and as much again for every million characters of it."""
_TRIAL = 0.02
"""Seconds that a pattern may need for a piece that fits as badly as can be."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One that has been checked."""

    expression: re.Pattern[str]

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it matches, and from where on nobody knows because it took too long."""
        if len(text) <= PIECE:
            yield from (found.span() for found in self.expression.finditer(text) if found.end() > found.start())
            return
        began = time.perf_counter()
        patience = PATIENCE * (1 + len(text) / 1_000_000)
        start = 0
        while start < len(text):
            for found in self.expression.finditer(text, start, min(len(text), start + PIECE)):
                if found.end() > found.start():
                    yield found.span()
            if time.perf_counter() - began > patience:
                yield min(len(text), start + PIECE), len(text)
                return
            start += PIECE - OVERLAP


def check(patterns: Sequence[str]) -> tuple[Pattern, ...]:
    """Patterns that can be used.

    Raises:
        InputError: One of them is no regular expression, matches nothing at all, or could take without end.
    """
    return tuple(_checked(pattern) for pattern in patterns)


def _checked(pattern: str) -> Pattern:
    try:
        compiled = re.compile(pattern)
        tree = _parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"the pattern {pattern!r} is no regular expression: {error}") from None
    if compiled.match("") is not None:
        raise InputError(f"the pattern {pattern!r} matches where nothing stands; write one that needs at least a character")
    if _nested(tree):
        raise InputError(
            f"the pattern {pattern!r} repeats what can itself be read in several ways, which can take without end; repeat one"
            " class of characters, or let every repetition begin or end with a character that cannot stand elsewhere in it"
        )
    if sum(1 for _, most, _ in _repeats(tree) if most > _FEW) > _LOOSE:
        raise InputError(
            f"the pattern {pattern!r} has more than {_LOOSE} repetitions without a bound, which can take very long; say how"
            " often at most, as in {1,50}"
        )
    for char in (*sorted(set(_letters(tree)))[:_SAMPLES], " ", "a", "0"):
        if _slow(compiled, char):
            raise InputError(f"the pattern {pattern!r} takes too long on many {char!r}; say how often at most, as in {{1,50}}")
    return Pattern(compiled)


def _slow(compiled: re.Pattern[str], char: str) -> bool:
    for length in (PIECE // 16, PIECE // 8, PIECE // 4, PIECE // 2, PIECE):
        began = time.thread_time()
        compiled.search(char * (length - 1) + "\0")
        if time.thread_time() - began > _TRIAL:
            return True
    return False


# What Python parses a pattern into: pairs of an operation's name and what it works on.
_Tree = list[tuple[str, Any]]
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT")
_FEW = 64
_LOOSE = 3
_SAMPLES = 8


def _parse(pattern: str) -> _Tree:
    parser = importlib.import_module("re._parser")
    tree: _Tree = _plain(parser.parse(pattern), parser.SubPattern)
    return tree


def _plain(value: Any, subpattern: Any) -> Any:
    """Names and numbers instead of the parser's own classes; categories as the letters that stand for them."""
    if isinstance(value, subpattern):
        return [(str(operation), _plain(argument, subpattern)) for operation, argument in value]
    if isinstance(value, list):
        return [_plain(each, subpattern) for each in value]
    if isinstance(value, tuple):
        return tuple(_plain(each, subpattern) for each in value)
    return value if value is None or type(value) is int else int(value) if str(value) == "MAXREPEAT" else str(value)


def _below(argument: Any) -> Iterator[_Tree]:
    """The patterns within what an operation works on."""
    if isinstance(argument, list):
        if argument and isinstance(argument[0], tuple):
            yield argument
        else:
            for each in argument:
                yield from _below(each)
    elif isinstance(argument, tuple):
        for each in argument:
            yield from _below(each)


def _repeats(tree: _Tree) -> Iterator[tuple[int, int, _Tree]]:
    """Every repetition that can be read in several ways: how often at least, at most, and what."""
    for operation, argument in tree:
        if operation in _REPEATS and argument[0] != argument[1]:
            yield argument
        if operation != "IN":
            for each in _below(argument):
                yield from _repeats(each)


def _branches(tree: _Tree) -> bool:
    return any(
        operation in ("BRANCH", "GROUPREF", "GROUPREF_EXISTS") or (operation != "IN" and any(map(_branches, _below(argument))))
        for operation, argument in tree
    )


def _nested(tree: _Tree) -> bool:
    for operation, argument in tree:
        if operation == "IN":
            continue
        if operation in _REPEATS and argument[1] > 4 and not _plain_enough(argument[2]):
            return True
        if any(map(_nested, _below(argument))):
            return True
    return False


def _plain_enough(body: _Tree) -> bool:
    """Whether many of it in a row can be read in one way only."""
    inner = list(_repeats(body))
    if _branches(body):
        return False
    if not inner:
        return True
    flat = list(_flat(body))
    return len(inner) == 1 and any(
        operation == "LITERAL" and not _takes(inner[0][2], argument) for operation, argument in (flat[0], flat[-1])
    )


def _flat(tree: _Tree) -> Iterator[tuple[str, Any]]:
    for operation, argument in tree:
        if operation == "SUBPATTERN":
            yield from _flat(argument[-1])
        else:
            yield operation, argument


def _takes(tree: _Tree, char: int) -> bool:
    """Whether some single character of the pattern can be this one; in doubt it can."""
    return any(_takes_one(operation, argument, char) for operation, argument in _flat(tree))


def _takes_one(operation: str, argument: Any, char: int) -> bool:
    match operation:
        case "LITERAL":
            return chr(argument).lower() == chr(char).lower()
        case "IN":
            negated = bool(argument) and argument[0][0] == "NEGATE"
            return any(_takes_one(name, each, char) for name, each in argument[negated:]) != negated
        case "RANGE":
            return any(
                argument[0] <= ord(each) <= argument[1] for each in {chr(char), chr(char).lower(), chr(char).upper()[:1]}
            )
        case "CATEGORY":
            letter = argument.removeprefix("CATEGORY_").removeprefix("NOT_")[0].lower()
            return (re.match("\\" + letter, chr(char)) is not None) != ("_NOT_" in argument)
    return True


def _letters(tree: _Tree) -> Iterator[str]:
    for operation, argument in tree:
        if operation == "LITERAL":
            yield chr(argument)
        elif operation == "IN":
            yield from (
                chr(each[1] if each[0] == "LITERAL" else each[1][0]) for each in argument if each[0] in ("LITERAL", "RANGE")
            )
        else:
            for each in _below(argument):
                yield from _letters(each)
