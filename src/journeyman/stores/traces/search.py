"""What people type into a search box, as the databases want it. Whatever is typed is words; nothing of it is a language."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

_PART = re.compile(r'"([^"]*)"|([^"\s]+)|"')
_ACCENTS = re.compile("[\u0300-\u036f]+")
_BETWEEN = re.compile(r"[\W_]+")
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_MOST = 32
"""Words of a search; nobody types more, and each costs a look into the index."""
_BEGINNING = 3
"""Letters or digits of ASCII that a beginning has at least; what is shorter is a whole word."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that stand beside each other."""

    words: tuple[str, ...]
    begins: bool = False
    """The last word may be the beginning of one."""

    @property
    def fts5(self) -> str:
        """For SQLite's `MATCH`: a quoted string, in which nothing has a meaning."""
        return f'"{" ".join(self.words)}"{"*" * self.begins}'

    @property
    def tsquery(self) -> str:
        """For PostgreSQL's `to_tsquery`."""
        return " <-> ".join(f"'{word}'" for word in self.words) + ":*" * self.begins


def words(text: str) -> str:
    """The words of a text with blanks between them, as they are looked for: letters and digits, without case or accents."""
    if text.isascii():
        # Nearly all text, and thirty times as fast.
        return text.lower().translate(_ASCII)
    return _BETWEEN.sub(" ", _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold())))


def phrases(text: str) -> Sequence[Phrase]:
    """What is looked for. A word that punctuation takes apart, such as `get_user`, is a phrase. With nothing behind it, neither
    quotation mark nor blank, the last word may be a beginning. Empty when there is no letter and no digit in the text.
    """
    found: list[Phrase] = []
    count = 0
    for part in _PART.finditer(text):
        quoted, bare = part.groups()
        said = tuple(words(quoted if quoted is not None else bare or "").split())[: _MOST - count]
        count += len(said)
        if said:
            found.append(Phrase(said, begins=bare is not None and part.end() == len(text) and _tells(said[-1])))
    return found


def _tells(word: str) -> bool:
    """Whether a beginning tells anything. With one pair of letters begins much of what there is; in Chinese one is a word."""
    return len(word) >= _BEGINNING or not word.isascii()


def matches(text: str, wanted: Sequence[Phrase]) -> bool:
    """Whether everything stands in a text: what the databases do, said in Python."""
    said = words(text).split()
    return all(any(_stands(phrase, said, at) for at in range(len(said) - len(phrase.words) + 1)) for phrase in wanted)


def _stands(phrase: Phrase, said: Sequence[str], at: int) -> bool:
    here = said[at : at + len(phrase.words)]
    *first, last = phrase.words
    return list(here[:-1]) == first and (here[-1].startswith(last) if phrase.begins else here[-1] == last)
