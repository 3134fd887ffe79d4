"""A text as it is compared: what looks alike is alike, and what cannot be seen is not there.

Whoever wants to get something past a comparison writes it with a Cyrillic "о", with a zero-width space in its middle, or as an
escape of JSON, HTML or a URL. Folded, it is plain letters again, and of each of them it is known where it stood.
"""

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from html import unescape
from urllib.parse import unquote

Span = tuple[int, int]
"""From, to."""


@dataclass(frozen=True)
class Folded:
    """A folded text, and where each part of it came from."""

    text: str
    starts: tuple[int, ...]
    """Where in `text` each part begins."""
    origins: tuple[Span, ...]
    """The place of each part in the text as it was."""
    straight: tuple[bool, ...]
    """Whether a part was left as it is, letter for letter."""

    def span(self, start: int, end: int) -> Span:
        """The place in the text as it was."""
        if end <= start:
            return (self._at(start), self._at(start))
        return self._at(start), self._at(end - 1, last=True)

    def _at(self, place: int, *, last: bool = False) -> int:
        part = bisect_right(self.starts, place) - 1
        begin, end = self.origins[part]
        if self.straight[part]:
            return begin + place - self.starts[part] + last
        return end if last else begin

    @cached_property
    def words(self) -> tuple[tuple[str, int, int], ...]:
        """Its words in small letters, each with its place in `text`."""
        return tuple((found[0].casefold(), found.start(), found.end()) for found in _WORD.finditer(self.text))


def word_set(text: str) -> frozenset[str]:
    """The words of a list that is written as a text."""
    return frozenset(text.split())


_WORD = re.compile(r"\w+")
_ODD = re.compile(
    r"\\+u(?P<code>[0-9a-fA-F]{4})|\\+(?P<escape>[nrtbf\"'/])|&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[a-zA-Z]{2,8});"
    r"|(?:%[0-9a-fA-F]{2})+|[^\x00-\x7f\u0300-\u036f]?[\u0300-\u036f]+|[^\x00-\x7f]"
)
_BREAKS = {"n": "\n", "r": "\n", "t": "\t", "b": " ", "f": " ", '"': '"', "'": "'", "/": "/"}
_LIKE = str.maketrans(
    "аеорсухіјѕԁһкмтвнгѐёїΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІЈЅοαινρτυκχεıɑɡℓꓲǀ‐‑‒–—―−’‘ʼ´“”„«»＂",
    'aeopcyxijsdhkmtbhrëëïABEZHIKMNOPTYXABEKMHOPCTYXIJSoaivptukxeiagllI-------\'\'\'\'""""""',
)
"""Letters of other scripts that look like Latin ones, dashes and quotation marks."""
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800") | {chr(code) for code in range(0xFE00, 0xFE10)}
_TAGS = range(0xE0000, 0xE0200)


def fold(text: str) -> Folded:
    """A text with escapes undone, in compatibility form, without what cannot be seen, with letters that look Latin as Latin."""
    if text.isascii() and not any(mark in text for mark in "\\%&"):
        return Folded(text, (0,), ((0, len(text)),), (True,))
    parts: list[tuple[str, Span, bool]] = []
    end = 0
    for found in _ODD.finditer(text):
        if found.start() > end:
            parts.append((text[end : found.start()], (end, found.start()), True))
        parts.append((_folded(found), found.span(), False))
        end = found.end()
    parts.append((text[end:], (end, len(text)), True))
    starts, at = [], 0
    for part, _, _ in parts:
        starts.append(at)
        at += len(part)
    # Of parts that begin at one place only the last has letters, and that is the one which `bisect_right` finds.
    return Folded("".join(p for p, _, _ in parts), tuple(starts), tuple(o for _, o, _ in parts), tuple(s for _, _, s in parts))


def _folded(found: re.Match[str]) -> str:
    if found["escape"]:
        return _BREAKS[found["escape"]]
    letters = chr(int(found["code"], 16)) if found["code"] else found[0]
    if letters.startswith("&"):
        letters = unescape(letters)
    elif letters.startswith("%"):
        letters = unquote(letters)
    plain = unicodedata.normalize("NFKC", letters).translate(_LIKE)
    return "".join(each for each in plain if not unseen(each))


def unseen(letter: str) -> bool:
    """Whether a character shows nothing: zero width, a mark of direction, a tag, a filler."""
    return (
        letter in _UNSEEN or ord(letter) in _TAGS or (letter not in "\n\r\t" and unicodedata.category(letter) in ("Cf", "Cc"))
    )


def disguised(text: str) -> bool:
    """Whether a text holds what nobody can see, or one word in the letters of two scripts. No honest rule does."""
    if text.isascii():
        return any(unseen(each) for each in text)
    plain = unicodedata.normalize("NFKC", text)
    return any(map(unseen, text)) or any(len(set(map(_script, filter(str.isalpha, word)))) > 1 for word in plain.split())


def _script(letter: str) -> str:
    if letter.isascii():
        return "LATIN"
    return unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
