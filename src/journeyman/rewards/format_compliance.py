"""Has the answer the form that was asked for?"""

import json
import re
from dataclasses import dataclass
from typing import Literal

from journeyman.core.trace import Trace
from journeyman.rewards.base import RewardResult, binary, short, unknown, version
from journeyman.rewards.blocks import blocks

_TAG = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(?:\s[^<>]*?)?(/?)>")
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\1|\Z)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`[^`\n]*`")
_MARKDOWN = re.compile(r"^ {0,3}(?:#{1,6}\s|>\s)|^[ \t]*(?:```|~~~)|\*\*[^*\n]+\*\*|^[ \t]*\|.*\|[ \t]*$", re.MULTILINE)

Form = Literal["no_xml", "plain", "json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatComplianceReward:
    """1 when the last reply has the form that was asked for; binary. Says nothing of what stands in it.

    Unknown when there is no reply, and when the last one is empty, as beside a tool call.
    """

    name: str = "format_compliance"
    weight: float = 1.0
    form: Form = "no_xml"
    """no_xml: no tag of XML outside of code; plain: neither that nor Markdown; json: one JSON value and nothing else, in a
    fenced block or bare."""
    pattern: str = ""
    """A regular expression that must match somewhere as well; `(?s)\\A…\\Z` for the whole reply."""

    @property
    def version(self) -> str:
        return version(1, self.form, self.pattern)

    def compute(self, trace: Trace) -> RewardResult:
        reply = trace.reply
        if not reply.strip():
            return unknown("there is no last reply")
        fault = _FAULTS[self.form](reply)
        if not fault and self.pattern and not re.search(self.pattern, reply):
            fault = f"the reply does not match {self.pattern!r}"
        return binary(not fault, fault or "the reply has the form that was asked for")


def xml_fault(text: str) -> str:
    """The first tag outside of code that is closed or closes, or nothing. `List<int>` is no tag."""
    if "<" not in text:
        return ""
    outside = _INLINE.sub("", _FENCED.sub("", text))
    opened = set()
    for tag in _TAG.finditer(outside):
        closing, name, empty = tag.groups()
        if empty or (closing and name in opened):
            return f"the reply holds the XML tag <{name}>"
        if not closing:
            opened.add(name)
    return ""


def plain_fault(text: str) -> str:
    """The first mark-up in the text, or nothing."""
    found = _MARKDOWN.search(text)
    return xml_fault(text) or (f"the reply holds Markdown: {short(found[0], 60)}" if found else "")


def json_fault(text: str) -> str:
    """Why the text is not one JSON value, or nothing."""
    fenced = blocks(text)
    inner = fenced[0].code if len(fenced) == 1 and not _FENCED.sub("", text).strip() else text
    try:
        json.loads(inner)
    except (ValueError, RecursionError) as error:
        return f"the reply is not JSON: {error}"
    return ""


_FAULTS = {"no_xml": xml_fault, "plain": plain_fault, "json": json_fault}
