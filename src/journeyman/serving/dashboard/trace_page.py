"""The page of one trace: what was said and done, who says what of it, and the forms to say something oneself."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.core.errors import InputError, StoreError
from journeyman.core.feedback import (
    ANSWER,
    NOTE,
    SUCCESS,
    Feedback,
    LabelScheme,
    TargetKind,
    corrected_answer,
    latest,
    read_feedback,
)
from journeyman.core.reward import Reward, Source, source_of
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk
from journeyman.serving.dashboard.experiments import COMPARED, Marked, marked
from journeyman.serving.dashboard.layout import (
    PageRefused,
    PageRenderer,
    filters_of,
    graph,
    id_of,
    local,
    name,
    one_line,
    query_of,
    visible,
)
from journeyman.stores.traces.base import RECORDER, Given, Label, Query, TraceStore
from journeyman.stores.traces.labels import FEEDBACK_OF as SAID
from journeyman.stores.traces.labels import said as words_of
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.redaction import is_length

# A trace as it is read: what was said and done in its order, and when.

SHALLOW = 8
"""Levels of the tree that are set in; deeper ones stand below each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """When a step ran, in per cent of the trace's time."""

    left: float
    width: float
    known: bool
    """Whether it is known how long it took; else the bar is a mark where it began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """A step as the page shows it."""

    number: int
    """Its place in `Trace.steps`, from 1."""
    depth: int
    kind: str
    """"model", "tool", "reasoning" or "agent"."""
    name: str
    step: Step
    said: tuple[Message, ...]
    """Of a model call, what was new to the model and is not shown elsewhere on the page."""
    failed: bool
    gist: str
    """One line for where the step is folded."""
    bar: Bar | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """A reward, and who gave it."""

    reward: Reward
    by: str | None
    """`None` is the recorder."""
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """A trace, laid out."""

    trace: Trace
    blocks: tuple[StepView, ...]
    left_out: int
    """Steps past those that were asked for."""
    asked: str | None
    """What was asked, where no message says it."""
    answered: str | None
    """What was answered, where no reply says it."""
    seconds: float | None
    tool_failures: int


def read(trace: Trace, *, most: int) -> TraceView:
    """Lay out a trace, of its steps the first `most`."""
    order = list(walk(trace.steps))
    places = {id(step): place for place, step in enumerate(trace.steps, start=1)}
    axis = _axis(trace)
    answers = frozenset(step.id for step in trace.tool_calls if step.id)
    blocks = [_block(step, depth, places[id(step)], answers, axis) for depth, step in order[:most]]
    said = {message.text.strip() for call in trace.calls for message in call.messages}
    prompts = {call.prompt.strip() for call in trace.calls if not call.messages}
    replies = {call.reply.strip() for call in trace.calls}
    asked, answered = (trace.input or "").strip(), (trace.output or "").strip()
    return TraceView(
        trace=trace,
        blocks=tuple(blocks),
        left_out=max(0, len(order) - most),
        asked=trace.input if asked and asked not in said | prompts else None,
        answered=trace.output if answered and answered not in replies else None,
        seconds=trace.seconds if trace.seconds is not None else axis[1] if axis else None,
        tool_failures=sum(not call.ok for call in trace.tool_calls),
    )


def worth(trace: Trace, given: Sequence[Given]) -> list[Worth]:
    """The trace's rewards, each with who gave it last. What people said and what decides nothing stands among their words."""
    last: Mapping[Reward, Given] = {each.reward: each for each in given}
    told = [(reward, last.get(reward)) for reward in trace.rewards]
    return [
        Worth(reward=reward, by=found.by if found else None, at=found.at if found else None)
        for reward, found in told
        if found is None or reward.weight > 0 or not found.by.startswith(SAID)
    ]


Axis = tuple[datetime, float]
"""When it began, and how many seconds it took."""


def _axis(trace: Trace) -> Axis | None:
    """The time that the bars are drawn in; `None` where no step has a time."""
    begun = [(step.started_at, step.seconds or 0.0) for step in trace.steps if step.started_at not in (None, NO_TIME)]
    known = [(at, seconds) for at, seconds in begun if at is not None]
    if not known:
        return None
    first = min(at for at, _ in known)
    last = max(at + timedelta(seconds=min(max(seconds, 0.0), 1e9)) for at, seconds in known)
    return first, (last - first).total_seconds()


def _bar(step: Step, axis: Axis | None) -> Bar | None:
    if axis is None or step.started_at is None:
        return None
    begun, whole = axis
    if whole <= 0:
        return Bar(left=0, width=100, known=step.seconds is not None)
    left = min(100.0, max(0.0, 100 * (step.started_at - begun).total_seconds() / whole))
    width = min(100 - left, 100 * (step.seconds or 0.0) / whole)
    # A step of a blink is still to be seen, and clicked.
    width = max(width, 0.8)
    return Bar(left=round(min(left, 100 - width), 2), width=round(width, 2), known=step.seconds is not None)


def _block(step: Step, depth: int, number: int, answers: frozenset[str], axis: Axis | None) -> StepView:
    kind, name, gist, failed = _summary(step)
    said: tuple[Message, ...] = ()
    if isinstance(step, ModelCall):
        # A tool's answer stands with the tool's call.
        said = tuple(message for message in step.messages if message.answers is None or message.answers not in answers)
    return StepView(
        number=number,
        depth=min(depth, SHALLOW),
        kind=kind,
        name=name,
        step=step,
        said=said,
        failed=failed,
        gist=gist,
        bar=_bar(step, axis),
    )


def _summary(step: Step) -> tuple[str, str, str, bool]:
    match step:
        case ModelCall():
            return "model", step.model or "a model", one_line(step.reply), step.error is not None
        case ToolCall():
            return "tool", step.tool or "a tool", one_line(step.arguments, 90), not step.ok or step.error is not None
        case Reasoning():
            return "reasoning", "reasoning", one_line(step.text), False
        case AgentCall():
            return "agent", step.agent or "an agent", one_line(step.input), step.error is not None


# What people say of it, and who of them looks at the page.

RATER = "journeyman_rater"
"""The cookie of who looks, where a browser's user named themselves."""
_LONGEST_NAME = 100
_YEAR = 365 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRules:
    """What may be said on the pages, and what of a text is kept."""

    scheme: LabelScheme = field(default_factory=LabelScheme)
    clean: Callable[[str], str] = str
    """Takes out of a text what must not be kept."""


def rater_of(request: Request, who: str) -> str:
    """Who says what is said in a request: as they named themselves, else whose server it is."""
    try:
        return _named(unquote(request.cookies.get(RATER, ""))) or who
    except InputError:
        return who


def _named(text: str) -> str:
    """
    Raises:
        InputError: It is no name, or one that stands for no person.
    """
    found = " ".join(text.split())
    if len(found) > _LONGEST_NAME or not found.isprintable() or visible(found) != found:
        raise InputError(f"name: a name has 1 to {_LONGEST_NAME} characters that can be seen")
    if source_of(found) is not Source.PERSON or found == RECORDER:
        raise InputError(f"name: {found!r} stands for no person; take another")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OpinionView:
    """What somebody says of a trace, as the page shows it."""

    who: str
    source: Source
    metric: str
    says: str
    text: str
    good: bool | None
    at: datetime
    own: bool
    """Whether who looks said it."""
    holds: bool
    """Whether it is the label that decides among labels."""


def opinions(labels: Sequence[Label], words: Sequence[Feedback], *, rater: str, holds: str | None) -> list[OpinionView]:
    """What counts of what was said, labels first: those from before they were feedback stand here, too.

    Args:
        labels: Oldest first.
        words: Those that count, oldest first.
        holds: Whose label decides.
    """
    last = {label.who: label for label in labels}
    beside = {word.label[1]: word for word in words if word.label is not None}
    found = []
    for who, label in last.items():
        if label.good is not None:
            word = beside.get(who)
            grade = f" ({word.value:g} of 1)" if word is not None and word.value not in (None, 0, 1) else ""
            said = ("good" if label.good else "bad") + grade
            text = (word.text or "") if word is not None else ""
            share = f", {label.probability:.0%}" if label.probability is not None else ""
            found.append(_opinion((who, source_of(who), SUCCESS), said + share, text, label.at, (label.good, rater, holds)))
        elif source_of(who) is Source.LABELER:
            before = next((each.good for each in reversed(labels) if each.who == who and each.good is not None), None)
            says = "withdrew what it said" + ("" if before is None else f": {'good' if before else 'bad'}")
            found.append(_opinion((who, Source.LABELER, SUCCESS), says, "", label.at, (None, rater, None)))
    for word in words:
        if word.label is None:
            low, high = word.scale
            of = "" if (low, high) == (0, 1) else f" of {low:g} to {high:g}"
            said = "" if word.value is None else f"{word.value:g}{of}"
            found.append(
                _opinion((word.rater or "", word.source, word.metric), said, word.text or "", word.at, (None, rater, None))
            )
    return found


def _opinion(
    by: tuple[str, Source, str], says: str, text: str, at: datetime, of: tuple[bool | None, str, str | None]
) -> OpinionView:
    (who, source, metric), (good, rater, holds) = by, of
    own = source is Source.PERSON and who == rater
    return OpinionView(
        who=who, source=source, metric=metric, says=says, text=text, good=good, at=at, own=own, holds=who == holds and bool(who)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectionView:
    """What should have been answered, beside what was."""

    by: str
    answered: Marked
    wanted: Marked
    cut: bool
    """Whether only the beginning of a text is compared."""


def correction(trace: Trace) -> CorrectionView | None:
    """By the one rule, `core.feedback.corrected_answer`; `None` where nobody corrected the answer."""
    found = corrected_answer(trace.rewards)
    if found is None:
        return None
    answered, wanted = marked(answer_of(trace), found.evidence)
    return CorrectionView(
        by=found.told_by.value,
        answered=answered,
        wanted=wanted,
        cut=max(len(answer_of(trace)), len(found.evidence)) > COMPARED,
    )


def answer_of(trace: Trace) -> str:
    """What was answered; nothing where that was not recorded."""
    text = trace.output or trace.reply
    return "" if is_length(text) else text


_MARKS = re.compile("[\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff]")


def field_value(text: str) -> Markup:
    """A text for a field, which gives back what it holds: marks of direction are in it, though none stands in the page's own
    text. What no field can hold is written out, as elsewhere."""
    return Markup(visible(_MARKS.sub(lambda found: f"&#x{ord(found[0]):X};", str(escape(text)))))  # noqa: S704 - escaped


# Its page, and what a person says of it.

STEPS = 200
"""Shown at first."""
CHARACTERS = 6_000
"""Of one text, shown at first."""
GONE = "There is no such trace, or it was pruned."
_WORDS = {"yes": True, "no": False, "clear": None}
_SAYS = {True: "yes", False: "no", None: "clear"}


class TracePage:
    """The handlers of these addresses."""

    def __init__(self, store: TraceStore, frame: PageRenderer, who: str, rules: LabelRules | None = None) -> None:
        """
        Args:
            who: Whose word it is that is said by a browser whose user named nobody.
        """
        self._store = store
        self._frame = frame
        self._who = who
        self._rules = rules or LabelRules()

    def trace(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One trace. `show` names a text that is wanted whole, `steps=all` wants every step, and the filters say in which list
        the next and the previous one are looked up."""
        id = id_of(request.path_params["name"])
        trace, line = self._store.get(id), self._store.line(id)
        if trace is None or line is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, GONE)
        typed = filters_of(fields)
        newer, older = self._neighbours(id, typed)
        every = fields.get("steps") == "all"
        return self._frame.page(
            "trace.html",
            title=trace.query[:80] or "Trace",
            trace=trace,
            reading=read(trace, most=len(trace.steps) if every else STEPS),
            worth=worth(trace, self._store.rewards(id)),
            plan=graph(trace),
            newer=newer,
            older=older,
            typed=typed,
            every=every,
            show=fields.get("show", ""),
            most=CHARACTERS,
            **self._said(trace, rater_of(request, self._who)),
        )

    def _said(self, trace: Trace, rater: str) -> dict[str, Any]:
        """What was said of a trace, and what whoever looks said themselves."""
        line, labels = self._store.line(trace.id), self._store.labels(trace.id)
        good, by = (line.label, line.labelled_by) if line is not None else (None, None)
        words = self._store.feedback_of(_targets(trace))
        found = opinions(labels, words, rater=rater, holds=by)
        people = [each for each in found if each.good is not None and each.source is Source.PERSON]
        own = {each.metric: each for each in words if each.source is Source.PERSON and each.rater == rater}
        return {
            "id": trace.id,
            "good": good,
            "by": by,
            "labels": labels,
            "opinions": found,
            "apart": [each for each in people if len({other.good for other in people}) > 1],
            "rater": rater,
            "own": own,
            "scales": self._rules.scheme.all_scales,
            "categories": self._rules.scheme.categories,
            "correction": correction(trace),
            "field_value": field_value,
            # To be mended, where all of it stands on the page.
            "answered": text if len(text := answer_of(trace)) <= CHARACTERS else "",
        }

    def _neighbours(self, id: str, typed: Mapping[str, str]) -> tuple[str | None, str | None]:
        try:
            return self._store.neighbours(id, query_of(typed, datetime.now(UTC)))
        except InputError:
            return self._store.neighbours(id, Query())

    def label(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Add this person's word: whether it was good, or, with `metric`, another one; with `undo` the one from before. A
        script gets what is new of the page and a note with a way back; without one, the browser goes back to where the form
        was."""
        id, rater = id_of(fields.get("trace", "")), rater_of(request, self._who)
        metric = fields.get("metric", SUCCESS)
        try:
            if metric == SUCCESS:
                done, undo = self._judge(id, rater, fields)
            else:
                done, undo = self._tell(id, rater, metric, fields)
        except StoreError:
            if self._store.get(id) is None:
                raise PageRefused(HTTPStatus.NOT_FOUND, GONE) from None
            raise
        if "hx-request" not in request.headers:
            back = local(fields.get("back", "/traces/" + name(id)))
            return RedirectResponse(back, status_code=HTTPStatus.SEE_OTHER)
        view, line = fields.get("view", ""), self._store.line(id)
        trace = self._store.get(id) if view == "trace" else None
        values: dict[str, Any] = {"id": id, "good": None, "by": None, "rater": rater}
        if line is not None:
            values |= {"good": line.label, "by": line.labelled_by}
        if trace is not None:
            values |= {"trace": trace, **self._said(trace, rater)}
        here = {
            "metric": metric,
            "done": done,
            "undo": undo,
            "view": view if trace is not None else "",
            "back": fields.get("back"),
        }
        return self._frame.page("labelled.html", typed={}, **values, **here)

    def _judge(self, id: str, rater: str, fields: Mapping[str, str]) -> tuple[str, str | None]:
        """Good or bad: what was done, and what would undo it."""
        said = fields.get("good", fields.get("undo", ""))
        if said == "last":
            said = _SAYS[_before([label.good for label in self._store.labels(id) if label.who == rater])]
        if said not in _WORDS:
            raise InputError("good: a label is yes, no or clear")
        before = words_of(self._store.labels(id)).get(rater, {}).get(id)
        self._store.label(id, _WORDS[said], who=rater, at=datetime.now(UTC))
        done = {True: "Labelled good", False: "Labelled bad", None: "Label taken back"}[_WORDS[said]]
        return done, None if "undo" in fields else _SAYS[before]

    def _tell(self, id: str, rater: str, metric: str, fields: Mapping[str, str]) -> tuple[str, str | None]:
        """Any other word: what was done, and what would undo it."""
        trace = self._store.get(id)
        if trace is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, GONE)
        scheme = self._rules.scheme
        if metric not in (known := (ANSWER, NOTE, *scheme.all_scales, *scheme.categories)):
            raise InputError(f"metric: {metric[:40]!r} is none of {', '.join(known)}")
        now, mine = datetime.now(UTC), (Source.PERSON, rater, metric)
        said = self._store.feedback_of(_targets(trace), whole=True)
        history = [each for each in said if (each.source, each.rater, each.metric) == mine]
        # The page shows the last that stands; that one is changed, or else what was taken back last.
        last = (latest(history) or history)[-1:]
        about = [(each.target_kind, each.target) for each in last] or [(TargetKind.TRACE, id)]
        history = [each for each in history if (each.target_kind, each.target) in about]
        if "undo" in fields:
            word = _before([None if each.is_taken_back else each for each in history])
            given: dict[str, object] = {"clear": True}
            if word is not None:
                given = {"value": word.value, "text": word.text, "tags": dict(word.tags)}
        else:
            given = _given(fields, metric, numbers=scheme.all_scales.keys(), stands=bool(latest(history)))
        ((kind, target),) = about
        told = {**given, kind.value: target, "metric": metric}
        word = read_feedback(told, metric.replace("_", " "), id=uuid4().hex, now=now, source=Source.PERSON, rater=rater)
        word = scheme.cleaned(scheme.placed(word, metric), self._rules.clean)
        self._store.add_feedback([word], now=now)
        what = {ANSWER: "Answer", NOTE: "Note"}.get(metric, metric)
        return f"{what} {'taken back' if word.is_taken_back else 'kept'}", None if "undo" in fields else "last"

    def rater(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Keep in this browser who looks; an empty name is whose server it is."""
        named = _named(fields.get("name", ""))
        response = RedirectResponse(local(fields.get("back", "/traces")), status_code=HTTPStatus.SEE_OTHER)
        if named:
            secure = request.url.scheme == "https"
            response.set_cookie(
                RATER, quote(named, safe=""), max_age=_YEAR, httponly=True, samesite="strict", secure=secure, path="/"
            )
        else:
            response.delete_cookie(RATER, path="/", httponly=True, samesite="strict")
        return response


def _targets(trace: Trace) -> list[tuple[TargetKind, str]]:
    """What is spoken of where a trace is: itself, and the requests in it."""
    # Elsewhere the ids of calls are their recorder's, and may be in other traces, too.
    requests = {trace.id, *(call.id for call in trace.calls if call.id)} if trace.source == "gateway" else ()
    return [(TargetKind.TRACE, trace.id), *((TargetKind.REQUEST, each) for each in requests)]


def _before(history: Sequence[Any]) -> Any:
    """What the same person had said before their last word; `None` for nothing."""
    return history[-2] if len(history) > 1 else None


def _given(fields: Mapping[str, str], metric: str, *, numbers: Any, stands: bool) -> dict[str, object]:
    """What a form says."""
    text = fields.get("value", "").replace("\r\n", "\n").strip()
    if "clear" in fields or (not text and stands):
        return {"clear": True}
    if metric in numbers:
        return {"value": _number(text)}
    return {"text": text or None}


def _number(text: str) -> float | str | None:
    """The number that was typed; what is none is refused as what it is."""
    return float(text) if re.fullmatch(r"[+-]?(\d{1,15}\.?\d{0,15}|\.\d{1,15})", text, re.ASCII) else text or None
