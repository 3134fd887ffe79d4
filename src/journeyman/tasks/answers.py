"""Is that answer right? Finds the final answer in a reply, whatever stands around it, and compares it with the truth."""

import json
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from journeyman.core.score import Reward
from journeyman.core.task import Task
from journeyman.core.trace import Trace

_DIGITS = r"(?:\d{1,3}(?:,\d{3}){1,20}(?!\d)|\d+)(?:\.\d+)?(?:[eE][+-]?\d{1,3}\b)?|\.\d+"
_NUMBER = re.compile(
    r"(?P<minus>(?<![\w)\].])[-−](?=[$€£]?\.?\d|\\[dt]?frac))?(?:[$€£](?P<minus2>[-−](?=\.?\d))?)?"
    r"(?:"
    r"\\[dt]?frac\{(?P<top>\d+)\}\{(?P<under>\d+)\}"
    r"|(?P<mixed>\d+) (?P<over>\d+)/(?P<part>\d+)"
    rf"|(?P<whole>{_DIGITS})(?:\s?/\s?(?P<below>\d+))?"
    r")"
)
"""`18`, `-$1,234.50`, `1.5e3`, `2/3`, `3 1/3`, `\\frac{2}{3}`. A minus behind a digit is a subtraction."""

_STRONG = re.compile(
    r"(?P<hashes>\#{4})"
    r"|\\boxed\s*(?P<boxed>\{)"
    r"|\"(?:final[_ ])?answer\"\s*:(?P<json>)"
    r"|<answer>(?P<tag>)"
    r"|^[ \t\r\f\v\u3000>*_#-]*(?:(?:the\s+)?(?:final\s+)?answer|(?-i:A))[\s*_]*:(?P<line>)",
    re.IGNORECASE | re.MULTILINE,
)
"""What announces a final answer for certain. The last one counts: a reply may correct itself."""

_WEAK = re.compile(r"\banswer(?:\s+is|\s*[:=])", re.IGNORECASE)
"""What announces one where nothing stronger does, if a number follows."""

_TO_NINE = "zero one two three four five six seven eight nine"
_TO_NINETEEN = "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_WORDS = {word: number for number, word in enumerate(f"{_TO_NINE} {_TO_NINETEEN}".split())} | {
    word: 10 * number for number, word in enumerate(_TENS.split(), 2)
}
_SCALES = {"thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}
_NUMBER_WORD = "|".join(sorted((*_WORDS, "hundred", *_SCALES), key=len, reverse=True))
_IN_WORDS = re.compile(
    rf"(?<!point\s)\b(?P<minus>(?:minus|negative)\s+)?(?P<words>(?:{_NUMBER_WORD})(?:(?:\s+and\s+|[\s-]\s?)(?:{_NUMBER_WORD}))*+)\b"
    r"(?![\s-]+(?:(?:of|point|dozen|half|halves|thirds?|quarters?|(?:four|fif|six|seven|eigh|nin|ten|hundred|thousand)ths?)\b"
    r"|and\s+(?:a|one)\s))",
    re.IGNORECASE,
)
"""`eighteen`, `minus one hundred and five`; no fraction, and no part of one."""

_CHAIN = re.compile(r"(?:=|\b(?:is|are|equals?|makes?|leaves?|gives?|totals?|total\s+of))[\s*_$]*", re.IGNORECASE)
"""Behind which a chain of thought ends in its result."""

_OPTION = re.compile(r"\(?(?P<letter>[A-Za-z])(?:[).:]\s*(?P<text>.*))?", re.DOTALL)
"""`B`, `B) Paris`, `(b)`, `B. Paris`."""

_LATEX = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " "})
_MARKUP = " \t\r\n*_`\"'“”‘’()[]{}<>$\\.,;:!?"
_ARTICLE = re.compile(r"^(?:a|an|the)\s+")
_FENCED = re.compile(r"```(?:json)?[ \t]*\n((?:(?!```).)*)```\s*\Z", re.DOTALL | re.IGNORECASE)
"""A block of code with which a reply ends."""


def final_number(reply: str) -> Decimal | None:
    """The number that a reply gives as its answer.

    It is looked for behind the last `####`, `\\boxed{`, `<answer>`, `"answer":`, `Answer:` or `A:`, behind the last equals sign
    there; else behind "the answer is"; else it is the last number of all. It may be in English words where it is announced, and
    where a chain of thought ends in it. Where an answer is announced and is no number, there is none.
    """
    text = _plain(reply)
    announced = _announced(text)
    if announced is not None:
        behind = _first(announced.rpartition("=")[2])
        return behind if behind is not None else _first(announced)
    end = len(text)
    for mark in reversed(list(_WEAK.finditer(text))):
        # What stands behind the next mark was looked at before.
        found = _first(_first_line(text[mark.end() : end]))
        if found is not None:
            return found
        end = mark.start()
    numbers = list(_NUMBER.finditer(text))
    in_words = _end_of_chain(text[numbers[-1].end() :] if numbers else text)
    if in_words is not None:
        return in_words
    return _value(numbers[-1]) if numbers else None


def final_text(reply: str) -> str:
    """The text that a reply gives as its answer: what is announced as such, else the JSON object or list that it is, or
    that a block of code at its end holds, else its last line."""
    text = _plain(reply)
    announced = _announced(text)
    if announced is not None:
        return announced.strip()
    fenced = _FENCED.search(reply)
    for whole in (reply, fenced[1] if fenced else ""):
        if json_value(whole) is not None:
            return whole.strip()
    lines = [line for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    weak = list(_WEAK.finditer(last))
    return (last[weak[-1].end() :] if weak else last).strip()


def json_value(text: str) -> dict[str, Any] | list[Any] | None:
    """The JSON object or list that a text is and nothing else; `None` where it is none."""
    if text.strip()[:1] not in ("{", "["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict | list) else None


def json_leaves(value: Any, path: str = "") -> dict[str, str]:
    """The leaves of a JSON value by their paths, with dots, each as JSON; an object or list with nothing in it is a leaf within
    another, and none by itself."""
    inner = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    found: dict[str, str] = {}
    for name, each in inner:
        found |= json_leaves(each, f"{path}.{name}" if path else str(name))
    if found or (not path and isinstance(value, Mapping)):
        return found
    return {path: json.dumps(value, sort_keys=True, default=str)}


def first_number(text: str) -> Decimal | None:
    """The value of the first number in a text."""
    found = _NUMBER.search(text)
    return _value(found) if found else None


def number_in_words(text: str) -> Decimal | None:
    """The value of the first number that a text writes in English words."""
    found = _IN_WORDS.search(text)
    return _spoken(found) if found else None


def whole_number(text: str) -> Decimal | None:
    """The value of a text that is a number and nothing else, apart from a currency or percent sign."""
    found = _NUMBER.fullmatch(_plain(text).strip().rstrip("%.").strip())
    return _value(found) if found else None


def truth(answer: str) -> str:
    """The answer itself, where the ground truth of a data set shows the way to it and ends with `#### answer`."""
    return answer.rpartition("####")[2].strip()


def normalised(text: str) -> str:
    """A text without case, marks around it, a leading article and doubled space."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return _ARTICLE.sub("", folded.strip(_MARKUP)).strip(_MARKUP)


def same_number(a: Decimal, b: Decimal) -> bool:
    """Equal but for the last digits of a calculation in floating point."""
    return abs(a - b) <= Decimal("1e-9") * max(abs(a), abs(b))


class Number:
    """Verifies that the final number is the right one, as GSM8K's own graders do."""

    deterministic = True

    async def verify(self, task: Task, trace: Trace) -> Reward:
        return judge_number(task.answer, trace.reply)


class Exact:
    """Verifies the final answer, by `judge_answer`."""

    deterministic = True

    async def verify(self, task: Task, trace: Trace) -> Reward:
        return judge_answer(task.answer, trace.reply)


class ExactOrNear(Exact):
    """Verifies the final answer, and tells of one in JSON how near it came. Implements `tasks.base.Grader`."""

    async def grade(self, task: Task, trace: Trace) -> Reward:
        """The Jaccard index of the fields, and of the fields with their values: those in both answers as a share of those in
        either, with one that is wrong in each case. So a field of the right name counts before its value is right. Of an answer
        that is no JSON, 1 or 0 as `verify` has it."""
        wanted, verdict = json_value(truth(task.answer)), judge_answer(task.answer, trace.reply)
        if wanted is None or verdict.value == 1.0:
            return Reward(name="answer fields", value=verdict.value, evidence=verdict.evidence)
        right, found = json_leaves(wanted), json_value(final_text(trace.reply))
        got = {} if found is None else json_leaves(found)
        both = len(right.keys() & got.keys()) + len(right.items() & got.items())
        either = len(right.keys() | got.keys()) + len(right.items() | got.items())
        return Reward(name="answer fields", value=both / (either + 1), evidence=verdict.evidence)


def judge_answer(answer: str, reply: str) -> Reward:
    """As a number where the truth is one; as a JSON value where it is an object, in which nothing but white space and the order
    of the names is free; else as a text, by `normalised`, or a list as a JSON value."""
    if whole_number(truth(answer)) is not None:
        return judge_number(answer, reply)
    expected, found = truth(answer), final_text(reply)
    wanted = json_value(expected)
    if wanted is not None and _canonical(json_value(found)) == _canonical(wanted):
        return Reward(name="answer", value=1.0)
    if not isinstance(wanted, dict) and (normalised(found) == normalised(expected) or _same_option(expected, found)):
        return Reward(name="answer", value=1.0)
    return _wrong(expected, f'"{_short(found)}"' if found else "no answer")


def judge_number(answer: str, reply: str) -> Reward:
    """1 when the reply's final number is the one of the ground truth; unknown when the ground truth holds none."""
    expected, found = first_number(_plain(truth(answer))), final_number(reply)
    if expected is None:
        return Reward(name="answer", value=None, evidence=f'answer: the ground truth "{_short(truth(answer))}" is no number')
    if found is not None and same_number(found, expected):
        return Reward(name="answer", value=1.0)
    return _wrong(truth(answer), "no number" if found is None else f'"{_short(f"{found:f}")}"')


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _wrong(expected: str, got: str) -> Reward:
    return Reward(name="answer", value=0.0, evidence=f'answer: expected "{expected}", got {got}')


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _plain(text: str) -> str:
    return text.replace("{,}", ",").replace("\\,", "").replace("\\!", "").replace("\\$", "$").translate(_LATEX)


def _announced(text: str) -> str | None:
    """What stands behind the last strong mark; `None` when there is no such mark."""
    marks = list(_STRONG.finditer(text))
    if not marks:
        return None
    mark, rest = marks[-1], text[marks[-1].end() :]
    if mark["boxed"]:
        return _braced(rest)
    if mark["json"] is not None:
        return _json_value(rest)
    if mark["tag"] is not None:
        inside, closed, _ = rest.partition("</answer>")
        return inside if closed else _first_line(rest)
    return _first_line(rest)


def _first_line(text: str) -> str:
    """The first line that says something: the answer may stand below its heading."""
    return next((line for line in text.splitlines() if line.strip(_MARKUP)), "")


def _braced(text: str) -> str:
    """Up to the brace that closes the one before the text."""
    depth = 1
    for at, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:at]
    return text


def _json_value(text: str) -> str:
    quoted = re.match(r'\s*"((?:[^"\\]|\\.)*)"?', text)
    return quoted[1] if quoted else re.split(r"[}\n]", text, maxsplit=1)[0]


def _first(text: str) -> Decimal | None:
    number = first_number(text)
    return number if number is not None else number_in_words(text)


def _end_of_chain(text: str) -> Decimal | None:
    """The number in words behind the last word that says what something comes to."""
    ends = [found for mark in _CHAIN.finditer(text) if (found := _IN_WORDS.match(text, mark.end()))]
    return _spoken(ends[-1]) if ends else None


def _spoken(found: re.Match[str]) -> Decimal:
    total = group = 0
    for word in re.findall(_NUMBER_WORD, found["words"].lower()):
        if word in _SCALES:
            total, group = total + max(group, 1) * _SCALES[word], 0
        elif word == "hundred":
            group = max(group, 1) * 100
        else:
            group += _WORDS[word]
    return Decimal(-(total + group) if found["minus"] else total + group)


def _same_option(expected: str, found: str) -> bool:
    """Whether both name the same choice of several: `B`, or `B) Paris`. Where both say a text, that must be the same too."""
    one, other = (_OPTION.fullmatch(text.strip(" \t\r\n*_`$.")) for text in (expected, found))
    if not one or not other or one["letter"].upper() != other["letter"].upper():
        return False
    return not one["text"] or not other["text"] or normalised(one["text"]) == normalised(other["text"])


def _value(found: re.Match[str]) -> Decimal | None:
    """What a number means; `None` for a fraction of zero."""
    top, under = found["top"] or found["over"], found["under"] or found["part"]
    if found["whole"]:
        top, under = found["whole"].replace(",", ""), found["below"] or "1"
    if not Decimal(under):
        return None
    value = Decimal(found["mixed"] or 0) + Decimal(top) / Decimal(under)
    return -value if found["minus"] or found["minus2"] else value
