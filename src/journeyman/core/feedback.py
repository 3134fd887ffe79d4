"""What is said of work that was served: a word on a request, a trace, a task or a session, as it comes from outside."""

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from journeyman.core.errors import InputError
from journeyman.core.reward import Reward, Source, decide, source_named, source_of

_T = TypeVar("_T")

SUCCESS = "success"
"""The metric that says whether work was good. The others are kept and shown, and decide nothing by themselves."""
ANSWER = "correct_answer"
"""The metric whose value is a text: what should have been answered."""
NOTE = "note"
"""The metric whose value is a text for people alone: it is no reward, so that it enters no prompt and decides nothing."""
SCALE = "scale"
"""The tag that says on which scale a number is, `1..5`: a project's scheme puts it on, and nobody else."""
MOST = 1000
"""Words in one list."""
LARGEST = 1e12
"""The largest number that is kept, and the smallest below 0."""
_LONGEST = {"text": 20_000, "value": 20_000, "metric": 100, "rater": 200}
_LONGEST_ID = 512
"""As long as a label of a request may be."""
_MOST_TAGS, _LONGEST_TAG = 32, 500
_AHEAD = timedelta(minutes=5)
"""So much may a clock be ahead of ours. A word from the future would be the last one for ever."""


class TargetKind(StrEnum):
    """What a word is about."""

    REQUEST = "request"
    """One call, by the id in the header `X-Journeyman-Request-Id` of its answer."""
    TRACE = "trace"
    TASK = "task"
    SESSION = "session"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """One word."""

    id: str
    target_kind: TargetKind
    target: str
    metric: str = SUCCESS
    value: float | None = None
    """From 0 to 1 where the metric is success; another may have a scale of its own. `None` where only a text was said."""
    text: str | None = None
    source: Source = Source.USER
    rater: str | None = None
    """Who of them, where that is known."""
    tags: Mapping[str, str | float | bool] = field(default_factory=dict)
    at: datetime

    @property
    def key(self) -> tuple[object, ...]:
        """Of the words with the same one the last counts."""
        return self.target_kind, self.target, self.metric, self.source, self.rater

    @property
    def content(self) -> tuple[object, ...]:
        """All of it but its id and time: what comes twice is the same where this is."""
        return *self.key, self.value, self.text, dict(self.tags)

    @property
    def is_taken_back(self) -> bool:
        """Whether it only takes back what the same rater said before: then neither of the two counts."""
        return self.value is None and self.text is None

    @property
    def scale(self) -> tuple[float, float]:
        """The least and the largest that the number could have been; from 0 to 1 where nothing is said of it."""
        told = _RANGE.fullmatch(str(self.tags.get(SCALE, ""))) if self.metric != SUCCESS else None
        low, high = (float(told[1]), float(told[2])) if told else (0.0, 1.0)
        return (low, high) if low < high else (0.0, 1.0)

    @property
    def reward(self) -> Reward:
        """The word as a verdict: `decide` tells what it comes to beside others."""
        low, high = self.scale
        scaled = self.value is not None and low <= self.value <= high
        said = [] if self.value is None or (scaled and (low, high) == (0, 1)) else [f"{self.value:g}"]
        if said and scaled:
            said = [f"{said[0]} of {low:g} to {high:g}"]
        return Reward(
            name=f"{self.metric} ({self.source})",
            value=(self.value - low) / (high - low) if self.value is not None and scaled else None,
            evidence=": ".join([*said, *([self.text] if self.text else [])]),
            weight=float(self.metric == SUCCESS and not self.is_taken_back),
            source=self.source,
        )

    @property
    def label(self) -> tuple[bool | None, str] | None:
        """Whether it calls the work good, `None` where that is taken back, and under which name it is a label; nothing at all
        where it is none: a check or a model gives a reward."""
        if self.metric != SUCCESS or self.source not in (Source.TRUTH, Source.PERSON, Source.USER):
            return None
        who = (self.rater or "person") if self.source is Source.PERSON else self.source.replace(" ", "-")
        return None if self.is_taken_back else bool(decide([self.reward]).good), who

    def as_json(self) -> dict[str, Any]:
        """What `read_feedback` takes."""
        told = {
            "id": self.id,
            self.target_kind.value: self.target,
            "metric": self.metric,
            "value": self.value,
            "text": self.text,
            "source": self.source.value,
            "rater": self.rater,
            "tags": dict(self.tags),
            "at": self.at.isoformat(),
            "clear": True if self.is_taken_back else None,
        }
        return {name: each for name, each in told.items() if each is not None}


_NUMBER = r"-?\d{1,13}(?:\.\d{1,9})?(?:e[+-]\d{1,2})?"
_RANGE = re.compile(rf"({_NUMBER})\.\.({_NUMBER})", re.ASCII)


def standing(words: Iterable[_T], key: Callable[[_T], Hashable], takes_back: Callable[[_T], bool]) -> list[_T]:
    """Those that count, of words that come oldest first: the last with the same key, unless it takes back. The one rule, for
    feedback, labels, rewards and evidence alike."""
    found: dict[Hashable, _T] = {}
    for word in words:
        found.pop(key(word), None)
        found[key(word)] = word
    return [word for word in found.values() if not takes_back(word)]


def latest(words: Iterable[Feedback]) -> list[Feedback]:
    """Those that count: the last of one rater on one thing."""
    return standing(words, lambda word: word.key, lambda word: word.is_taken_back)


def label_word(target: str, good: bool | None, who: str, at: datetime, *, kind: TargetKind = TargetKind.TRACE) -> Feedback:
    """Somebody's label of a trace, or of a request, as a word; `None` takes back what the same one said before. Said again at
    the same time it is the same word."""
    source = source_of(who)
    of = target if kind is TargetKind.TRACE else (kind.value, target)
    told = repr((of, good, who, at.astimezone(UTC)))
    return Feedback(
        id=f"label-{hashlib.sha256(told.encode(errors='surrogatepass')).hexdigest()[:32]}",
        target_kind=kind,
        target=target,
        value=None if good is None else float(good),
        source=source,
        rater=who if source is Source.PERSON else None,
        at=at,
    )


def corrected_answer(rewards: Iterable[Reward]) -> Reward | None:
    """What should have been answered, as `evidence` of who says so: what turned out later goes before a person, and of each the
    last word holds. Nobody else corrects. The one rule, for sets of rows, tasks, rules and pages alike.

    Args:
        rewards: All that was said, oldest first.
    """
    told = [each for each in rewards if each.name.partition(" (")[0] == ANSWER and each.evidence.strip()]
    by = [[each for each in told if each.told_by is source] for source in (Source.TRUTH, Source.PERSON)]
    return next((said[-1] for said in by if said), None)


_METRIC = re.compile(r"\w[\w .-]{0,59}")
SCORE = "score"
"""The metric of a number from 0 to 1 that is no success."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelScheme:
    """What raters of a project may say beside good and bad. A metric that it names is held to it, whoever says it and where;
    others may be said as they come."""

    scales: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """By metric, the least and the largest number."""
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By metric, the names of which one is said."""

    @classmethod
    def parse(cls, scales: Iterable[str], categories: Iterable[str]) -> "LabelScheme":
        """From `helpful:1..5` and `topic:refund,delivery`.

        Raises:
            InputError: One is not written so, or has the name of a metric that means something already.
        """
        ranges: dict[str, tuple[float, float]] = {}
        names: dict[str, tuple[str, ...]] = {}
        for each in scales:
            metric, _, told = each.partition(":")
            found = _RANGE.fullmatch(told.strip())
            if found is None or not float(found[1]) < float(found[2]):
                raise InputError(f"{each!r} is no scale; write helpful:1..5, the least and the largest number")
            ranges[metric.strip()] = float(found[1]), float(found[2])
        for each in categories:
            metric, _, told = each.partition(":")
            names[metric.strip()] = tuple(filter(None, map(str.strip, told.split(","))))
            if len(names[metric.strip()]) < 2:
                raise InputError(f"{each!r} has no names to choose from; write topic:refund,delivery")
        for metric in (*ranges, *names):
            if (
                not _METRIC.fullmatch(metric)
                or metric in (SUCCESS, ANSWER, "answer", NOTE, SCORE)
                or (metric in ranges and metric in names)
            ):
                raise InputError(
                    f"{metric!r} cannot be the name of a scale or of categories; take another, of letters and digits"
                )
        return cls(scales=ranges, categories=names)

    @property
    def all_scales(self) -> Mapping[str, tuple[float, float]]:
        """With the one that every project has."""
        return {SCORE: (0.0, 1.0), **self.scales}

    def cleaned(self, word: Feedback, clean: Callable[[str], str]) -> Feedback:
        """The word without what must not be kept of its text. The names of categories are the project's own."""
        return replace(word, text=clean(word.text)) if word.text and word.metric not in self.categories else word

    def placed(self, word: Feedback, where: str) -> Feedback:
        """The word, with the scale that its number is on, and with no other: what somebody else says is one does not hold.

        Raises:
            InputError: It does not keep to the scheme; the sentence says what there is.
        """
        if SCALE in word.tags:
            word = replace(word, tags={name: value for name, value in word.tags.items() if name != SCALE})
        if word.is_taken_back:
            return word
        if (scale := self.all_scales.get(word.metric)) is not None:
            low, high = scale
            if word.value is None or not low <= word.value <= high:
                said = word.text if word.value is None else word.value
                raise InputError(f"{where}: {word.metric} is a number from {low:g} to {high:g}, not {_shown(said)}")
            return word if scale == (0, 1) else replace(word, tags={**word.tags, SCALE: f"{low:g}..{high:g}"})
        if (names := self.categories.get(word.metric)) is not None and (word.value is not None or word.text not in names):
            said = word.text if word.value is None else word.value
            raise InputError(f"{where}: {word.metric} is one of {', '.join(names)}, not {_shown(said)}")
        return word


_KEYS = ("id", *TargetKind, "metric", "value", "text", "source", "rater", "tags", "at", "clear")


def read_feedback(
    given: object, where: str, *, id: str, now: datetime | None, source: Source = Source.USER, rater: str | None = None
) -> Feedback:
    """A word from what JSON holds.

    Args:
        where: How it is named in a sentence.
        id: Its id, where it has none of its own.
        now: When it comes; its time, where it tells none. Without a clock, as when it is read back, any time is taken.
        source: Whose word it is, where it does not say so.
        rater: Who says so, where it does not.

    Raises:
        InputError: It is none; the sentence names the key.
    """
    if not isinstance(given, Mapping):
        raise InputError(f"{where}: an object is wanted, not {_shown(given)}")
    if strange := [key for key in given if key not in _KEYS]:
        raise InputError(f"{where}: there is no {_shown(strange[0])}; there are {', '.join(_KEYS)}")
    told = {key: value for key, value in given.items() if value is not None}
    kinds = [kind for kind in TargetKind if kind in told]
    if len(kinds) != 1:
        raise InputError(f"{where}: it is about one thing: give one of {', '.join(TargetKind)}, not {len(kinds)}")
    metric = _text(told, "metric", where) or SUCCESS
    clears = _clears(told, where)
    value, text = (None, None) if clears else _said(told, ANSWER if metric == "answer" else metric, where)
    whose = _source(told, where) or source
    who = _text(told, "rater", where) or rater
    if who is not None and whose is Source.PERSON and source_of(who) is not Source.PERSON:
        raise InputError(f"{where}: rater {who!r} stands for no person; name another, or say the source")
    return Feedback(
        id=_id(told, "id", where) or id,
        target_kind=kinds[0],
        target=_id(told, kinds[0], where) or "",
        metric=ANSWER if metric == "answer" else metric,
        value=value,
        text=text,
        source=whose,
        rater=who,
        tags=_tags(told.get("tags", {}), where),
        at=_at(told, where, now),
    )


def _shown(value: object) -> str:
    return f"{value!r:.40}"


def _id(told: Mapping[str, object], key: str, where: str) -> str | None:
    value = told.get(key)
    if key not in told:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_ID:
        raise InputError(f"{where}: {key} is a text of 1 to {_LONGEST_ID} characters, not {_shown(value)}")
    return value


def _text(told: Mapping[str, object], key: str, where: str) -> str | None:
    value = told.get(key)
    if key not in told:
        return None
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST[key]:
        raise InputError(f"{where}: {key} is a text of 1 to {_LONGEST[key]:,} characters, not {_shown(value)}")
    return value


def _clears(told: Mapping[str, object], where: str) -> bool:
    """Whether it takes back what was said."""
    clear = told.get("clear", False)
    if not isinstance(clear, bool):
        raise InputError(f"{where}: clear is true or false, not {_shown(clear)}")
    if clear and (told.keys() & {"value", "text"}):
        raise InputError(f"{where}: clear takes back what was said; it has no value and no text beside it")
    return clear


def _said(told: Mapping[str, object], metric: str, where: str) -> tuple[float | None, str | None]:
    """The number and the text."""
    value, text = told.get("value"), _text(told, "text", where)
    if isinstance(value, str):
        if text is not None:
            raise InputError(f"{where}: value and text are both texts; give one of them")
        value, text = None, _text(told, "value", where)
    number = None if value is None else _number(value, "value", where)
    if number is None and text is None:
        raise InputError(f"{where}: value is missing: true or false, a number, or a text")
    if metric == SUCCESS and (number is None or not 0 <= number <= 1):
        raise InputError(f"{where}: value of success is true, false, or from 0 to 1; another scale is another metric")
    if metric == ANSWER and (number is not None or text is None):
        raise InputError(f"{where}: value of {ANSWER} is the text that should have been answered")
    if metric == NOTE and (number is not None or text is None):
        raise InputError(f"{where}: value of {NOTE} is a text")
    return number, text


def _number(value: object, key: str, where: str) -> float:
    # A whole number may be too large to be made a float.
    if not isinstance(value, bool | int | float) or not -LARGEST <= value <= LARGEST:
        raise InputError(f"{where}: {key} is a number from {-LARGEST:g} to {LARGEST:g}, not {_shown(value)}")
    # NaN lies within no bounds.
    return float(value)


def _source(told: Mapping[str, object], where: str) -> Source | None:
    value = told.get("source")
    if "source" not in told:
        return None
    if not isinstance(value, str) or (found := source_named(value)) is None:
        raise InputError(f"{where}: source is one of {', '.join(Source)}, not {_shown(value)}")
    return found


def _tags(given: object, where: str) -> Mapping[str, str | float | bool]:
    if not isinstance(given, Mapping) or len(given) > _MOST_TAGS:
        raise InputError(f"{where}: tags are an object of at most {_MOST_TAGS}, not {_shown(given)}")
    for name, value in given.items():
        fits = len(value) <= _LONGEST_TAG if isinstance(value, str) else isinstance(value, int | float)
        finite = not isinstance(value, int | float) or abs(value) <= LARGEST
        if not (isinstance(name, str) and len(name) <= _LONGEST_TAG and fits and finite):
            raise InputError(f"{where}: the tag {_shown(name)} is a short text, a number or a truth value, not {_shown(value)}")
    return dict(given)


def _at(told: Mapping[str, object], where: str, now: datetime | None) -> datetime:
    value = told.get("at")
    if "at" not in told:
        if now is None:
            raise InputError(f"{where}: at is missing")
        return now
    try:
        at = datetime.fromisoformat(value) if isinstance(value, str) else None
        moment = at.astimezone(UTC) if at is not None and at.tzinfo is not None else None
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.year < 1970:
        raise InputError(f"{where}: at is a time with its zone, such as 2026-11-05T14:00:00+01:00, not {_shown(value)}")
    if now is not None and moment > now + _AHEAD:
        raise InputError(f"{where}: at lies in the future: {moment.isoformat()}")
    return moment
