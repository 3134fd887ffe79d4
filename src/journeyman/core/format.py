"""Amounts of things, money and time as a reader sees them. What is unknown is said so, and is never 0."""

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def noun(number: float, one: str, several: str = "") -> str:
    """The word for so many: `one`, or `several`, which is that with an s where nothing is said."""
    return one if number == 1 else several or f"{one}s"


def counted(number: int, one: str, several: str = "") -> str:
    """1 bullet, 2 bullets, 1,200 bullets."""
    return f"{number:,} {noun(number, one, several)}"


_NAMED = 5
"""Ids that a sentence names; the rest are counted."""


def named(ids: Sequence[str]) -> str:
    """The first few by name, and how many more there are."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"{', '.join(ids[:_NAMED])}{more}"


def money(value: float | None) -> str:
    """US dollars, with as many digits as tell something; or `?`."""
    if value is None:
        return "?"
    if value == 0:
        return "$0"
    if abs(value) >= 0.01:
        return f"${value:,.2f}" if abs(value) >= 0.1 else f"${value:.3f}"
    return f"${value:.2g}" if abs(value) >= 0.0001 else f"${value:.1e}"


def seconds(value: float | None) -> str:
    """820 ms, 4.1 s, 3 min 20 s, 2 h 5 min; or `?`."""
    if value is None:
        return "?"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


def value_text(value: Any) -> str:
    """A setting or a figure as a text: itself where it is one, else JSON; a dash where it is null or not there."""
    return "—" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", below: str = "") -> str:
    """A table for a notebook, as HTML in which every text is only text.

    Args:
        head: The names of the columns; nothing for none.
        title: Stands above it.
        below: HTML that stands below it, such as a picture.
    """
    named = "".join(f"<th style='text-align:left'>{escape(each)}</th>" for each in head)
    lines = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
    above = f"<caption style='text-align:left;font-weight:bold'>{escape(title)}</caption>" if title else ""
    return f"<table>{above}{f'<thead><tr>{named}</tr></thead>' if head else ''}<tbody>{lines}</tbody></table>{below}"


def _html_cell(text: str) -> str:
    return f"<td style='text-align:left'>{escape(text)}</td>"
