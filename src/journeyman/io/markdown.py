"""Fenced blocks in Markdown (CommonMark 0.31, section 4.5): found in what models write, and written so that they are found."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MARK = re.compile(r"([ \t]*)(`{3,}|~{3,})[ \t]*([^`\n]*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """One block."""

    info: str
    """What stands behind its mark, such as "python file=main.py"."""
    before: str
    """The line with text on it before the block; empty when there is none since the block before."""
    lines: tuple[str, ...]
    """Without their ends, and without the indentation of the mark: a block in a list is indented with it."""
    closed: bool
    """Whether its end was there. Else it ends with the text, as one that was cut off does."""

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


def fences(text: str) -> Iterator[Fence]:
    """Every block, in order. A longer mark holds shorter ones, and one that is indented further is part of the code."""
    indent, mark, info, before, last = "", "", "", "", ""
    lines: list[str] = []
    for line in text.replace("\r\n", "\n").split("\n"):
        found = _MARK.match(line)
        if not mark:
            if found:
                (indent, mark, info), before, lines = found.groups(), last, []
            last = line if line.strip() else last
        elif found and found[2].startswith(mark) and not found[3].strip() and len(found[1]) <= len(indent) + 3:
            yield Fence(info=info, before=before, lines=tuple(lines), closed=True)
            mark, last = "", ""
        else:
            lines.append(line.removeprefix(indent))
    if mark:
        yield Fence(info=info, before=before, lines=tuple(lines), closed=False)


def fenced(text: str, info: str = "") -> str:
    """The text as a block, with a mark that does not occur in it."""
    longest = max((len(line) - len(line.lstrip("`")) for line in map(str.lstrip, text.split("\n"))), default=0)
    mark = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{mark}{info}\n{text}{end}{mark}"
