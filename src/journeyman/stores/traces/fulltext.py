"""The index of the full-text search: SQLite's FTS5, or PostgreSQL's `tsvector` with a GIN index.

It knows which words stand where, and keeps no text. What it is told to forget it must be told word for word.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

# What people type into a search box, as the databases want it. Whatever is typed is words; nothing of it is a language.

_PART = re.compile(r'"([^"]*)"|([^"\s]+)|"')
_ACCENTS = re.compile("[\u0300-\u036f]+")
_BETWEEN = re.compile(r"[\W_]+")
_ASCII = {code: " " for code in range(128) if not chr(code).isalnum()}
_SEARCH_MOST = 32
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
        said = tuple(words(quoted if quoted is not None else bare or "").split())[: _SEARCH_MOST - count]
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


PART_WORDS = sa.table("part_words", sa.column("rowid", sa.BigInteger), sa.column("words"))
"""The words of the parts of traces, without large contents. Its `rowid` is `place(trace, position)`."""
CONTENT_WORDS = sa.table("content_words", sa.column("rowid", sa.BigInteger), sa.column("words"))
"""The words of large contents. Its `rowid` is the `seq` of the content."""

DOCUMENT_WORDS = sa.table("document_words", sa.column("rowid", sa.BigInteger), sa.column("words"))
"""The words of documents. Its `rowid` is the `seq` of the document."""

POSITIONS = 20
"""Bits of a place that tell the position: `place >> POSITIONS` is the trace."""
MOST_PARTS = 1 << POSITIONS
"""Parts from this position on have no place, and are not found."""
_MOST = 250_000
"""Characters of one part or content that are indexed: PostgreSQL refuses more than 1 MiB of words."""


def place(trace: int, position: int) -> int:
    """Where a part stands, as one number that grows with the trace. The position is below `MOST_PARTS`."""
    return (trace << POSITIONS) | position


def add(connection: sa.Connection, table: sa.TableClause, texts: Sequence[tuple[int, str]]) -> None:
    """Index texts by their `rowid`, none of which is there yet."""
    if not texts:
        return
    if connection.dialect.name == "sqlite":
        rows: Any = [(rowid, searchable(text)) for rowid, text in texts]
        connection.exec_driver_sql(f"insert into {table.name} (rowid, words) values (?, ?)", rows)  # noqa: S608 - our own name
        return
    insert = sa.text(
        f"insert into {table.name} (rowid, words) values (:rowid, to_tsvector('simple', :words)) "  # noqa: S608 - our own name
        "on conflict (rowid) do update set words = excluded.words"
    )
    connection.execute(insert, [{"rowid": rowid, "words": searchable(text)} for rowid, text in texts])


def remove(connection: sa.Connection, table: sa.TableClause, texts: Sequence[tuple[int, str]]) -> None:
    """Forget texts, each given as it was added."""
    if not texts:
        return
    if connection.dialect.name == "sqlite":
        forget = f"insert into {table.name} ({table.name}, rowid, words) values ('delete', ?, ?)"  # noqa: S608 - our own name
        rows: Any = [(rowid, searchable(text)) for rowid, text in texts]
        connection.exec_driver_sql(forget, rows)
        return
    connection.execute(sa.delete(table).where(table.c.rowid.in_([rowid for rowid, _ in texts])))


def matching(dialect: str, table: sa.TableClause, phrase: Phrase) -> sa.Select[tuple[int]]:
    """The `rowid` of every text in which the words of a phrase stand one after the other. One word is a phrase as well."""
    if dialect == "sqlite":
        matches: sa.ColumnElement[bool] = sa.literal_column(table.name).op("match")(phrase.fts5)
    else:
        matches = table.c.words.op("@@")(sa.func.to_tsquery("simple", phrase.tsquery))
    return sa.select(table.c.rowid).where(matches)


def searchable(text: str) -> str:
    """What of a text is indexed: its words as we take them apart, so that both databases find the same."""
    return words(text[:_MOST])
