"""Tasks drawn from recorded attempts: one of each, where it is known what would be right.

What cannot be asked again, or would have an effect beyond an answer, is left out and counted.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from journeyman.agents.replay import NotAskable, RecordedRequest, request_of
from journeyman.core.feedback import corrected_answer
from journeyman.core.reward import Source, decide
from journeyman.core.rollout import PRODUCTION
from journeyman.core.task import Split, Task, content
from journeyman.core.trace import ModelCall, Trace
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.tasks import questions
from journeyman.tasks.answers import final_text
from journeyman.tasks.recorded import RecordedAnswer, TaskKind, is_exact, named_faults
from journeyman.tracing.evidence import AttemptEvidence, CallEvidence, evidence_of

EXAMINED = (TaskKind.ANSWERED, TaskKind.CALL)
"""By these a candidate can be shown to be better."""
_LONGEST = 200
"""Characters of an answer that can be compared; a longer one can be right in other words."""
_KNOWN = (Source.TRUTH, Source.PERSON, Source.CHECK)

HELD_OUT = "attempts at held-out tasks"
OTHER_ARM = "answers of another arm of a rollout"
TWINS = "requests that are there already"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTask:
    """A recorded request as a task."""

    task: Task
    kind: TaskKind
    request: RecordedRequest
    trace_id: str
    step_id: str = ""
    """Of the tool call that is examined."""
    tool: str = ""
    far: bool = False
    """Whether it is farther than most from all that was learned from."""

    def json(self) -> dict[str, Any]:
        """A line of a file of tasks."""
        return {
            "id": self.task.id,
            "kind": self.kind.value,
            "domain": self.task.domain,
            "messages": list(self.request.messages),
            "tools": list(self.request.tools),
            "answer": json.loads(self.task.answer),
            "cluster": self.task.cluster,
            "trace": self.trace_id,
            "step": self.step_id,
            "model": self.request.model,
            "dialect": self.request.dialect.value,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTasks:
    """What recorded attempts gave."""

    tasks: tuple[RecordedTask, ...]
    """In the order of the attempts."""
    attempts: int
    """How many were looked at."""
    left_out: Mapping[str, int] = field(default_factory=dict, hash=False)
    """How many of them gave none, by why."""

    @property
    def kinds(self) -> Mapping[str, int]:
        """How many tasks there are of each kind."""
        found = Counter(each.kind.value for each in self.tasks)
        return {kind.value: found[kind.value] for kind in TaskKind if found[kind.value]}

    @property
    def share(self) -> float:
        """The share of the attempts by which something can be told."""
        known = sum(each.kind is not TaskKind.UNVERIFIABLE for each in self.tasks)
        return known / self.attempts if self.attempts else 0.0


def draw(
    attempts: Sequence[AttemptEvidence],
    *,
    clusters: Sequence[str] = (),
    far: Collection[int] = (),
) -> DrawnTasks:
    """One task of each attempt that gives one; of equal requests the last.

    Args:
        clusters: To which group each attempt belongs; none where each stands alone.
        far: Which attempts, by their place, are farther than most from all that was learned from.
    """
    found: dict[str, RecordedTask] = {}
    left_out: Counter[str] = Counter()
    for at, attempt in enumerate(attempts):
        if why := excluded(attempt.trace):
            left_out[why] += 1
            continue
        try:
            drawn = _drawn(attempt, clusters[at] if clusters else "", at in far)
        except NotAskable as error:
            left_out[str(error)] += 1
            continue
        if found.pop(drawn.task.id, None) is not None:
            left_out[TWINS] += 1
        found[drawn.task.id] = drawn
    return DrawnTasks(tasks=tuple(found.values()), attempts=len(attempts), left_out=dict(left_out.most_common()))


def of_live_traffic(traces: Iterable[Trace], *, domain: str = "", least: int = questions.LEAST) -> tuple[Task, ...]:
    """Recorded questions as the tasks of a data set, in their splits: one question of a user, and the answer that truth, a
    person or a check calls right. What the agent was told of its work stays with the question, without what was learned.

    Args:
        domain: Only traces of it; empty for all.
        least: Held-out tasks that a gate needs.
    """
    asked = (evidence_of(trace) for trace in traces if domain in ("", trace.domain))
    found = [each for each in draw(list(asked)).tasks if each.kind is TaskKind.ANSWERED and not each.request.tools]
    alone = [each for each in found if [m["role"] for m in each.request.messages if m["role"] != "system"] == ["user"]]
    splits = questions.enough({each.task.question for each in alone}, least)
    return tuple(
        replace(
            each.task,
            answer=RecordedAnswer.loads(each.task.answer).text,
            instructions="\n\n".join(str(m["content"]) for m in each.request.messages if m["role"] == "system"),
            split=splits.get(each.task.question) or questions.share(each.task.question, questions.SHARES),
        )
        for each in alone
    )


def task_of(trace: Trace, request: RecordedRequest) -> Task | None:
    """What verifies answers to a request of a trace; `None` where nobody can say which would be right."""
    try:
        drawn = _drawn(evidence_of(trace), "", far=False)
    except NotAskable:
        return None
    # Of an attempt with several requests, what is known speaks of one.
    return drawn.task if drawn.request == request and drawn.kind is not TaskKind.UNVERIFIABLE else None


def excluded(trace: Trace) -> str:
    """Why nobody may learn from a trace or be examined on it; empty where one may."""
    if trace.held_out:
        return HELD_OUT
    arms = [arm for call in trace.calls for arm in _arms(call)]
    if any(arm.get("arm") != PRODUCTION and not arm.get("fell_back") for arm in arms):
        return OTHER_ARM
    return ""


def _arms(call: ModelCall) -> Iterator[Mapping[str, Any]]:
    told = call.raw.get("release")
    for each in told if isinstance(told, list | tuple) else [told]:
        if isinstance(each, Mapping) and "arm" in each:
            yield each


def _drawn(attempt: AttemptEvidence, cluster: str, far: bool) -> RecordedTask:
    """
    Raises:
        NotAskable: It cannot be asked again.
    """
    trace = attempt.trace
    examined = _examined(attempt)
    by_id = {call.id: call for call in trace.calls}
    asked = by_id.get(examined.model_call or "") if examined else None
    asked = asked or (trace.calls[0] if trace.calls else None)
    if asked is None:
        raise NotAskable("attempts in which no call of a model was seen")
    request = request_of(trace, asked)
    answer = _of_call(attempt, examined) if examined else _of_answer(trace)
    return RecordedTask(
        task=Task(
            id=_id(answer.kind, trace.domain, request),
            question=request.question,
            answer=answer.dumps(),
            domain=trace.domain,
            split=Split.HELD_OUT,
            cluster=cluster,
        ),
        kind=answer.kind,
        request=request,
        trace_id=trace.id,
        step_id=examined.id if examined else "",
        tool=examined.tool if examined else "",
        far=far,
    )


def _id(kind: TaskKind, domain: str, request: RecordedRequest) -> str:
    """By the words of the conversation up to there and the tools: the same request is the same task, whoever sent it."""
    words = [content(str(each["content"])) for each in request.messages if each["role"] != "system"]
    said = json.dumps([kind.value, domain, words, list(request.tools)], sort_keys=True, default=str)
    return f"{kind.value}-{hashlib.sha256(said.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _examined(attempt: AttemptEvidence) -> CallEvidence | None:
    """The first call of an attempt by which most can be told: one whose refusal says what is right, else one that was accepted,
    else any."""
    calls = [call for call in attempt.calls if call.arguments is not None]
    refused = (call for call in calls if call.ok is False and _of_call(attempt, call).kind is TaskKind.CALL)
    accepted = (call for call in calls if call.ok)
    # One that is accepted when it was mended was made with the refusal before one's eyes.
    first = next(refused, None) or next(accepted, None)
    return first or next(iter(calls or attempt.calls), None)


def _of_call(attempt: AttemptEvidence, call: CallEvidence) -> RecordedAnswer:
    about: dict[str, Any] = {
        "tool": call.tool,
        "arguments": call.arguments or {},
        "schema": dict(call.definition.parameters) if call.definition else {},
        "calls": sum(each.model_call == call.model_call for each in attempt.calls) if call.model_call else 1,
    }
    if call.ok:
        return RecordedAnswer(kind=TaskKind.ACCEPTED, **about)
    if call.ok is False:
        declared = call.definition.arguments if call.definition else ()
        # What merely echoes the customer is not the tool's word on what would be right.
        faults = named_faults(cut_echoes(call.answer, call.words), call.tool, call.arguments, declared)
        repaired, flake = _repaired(attempt, call)
        if is_exact(faults, repaired) and not flake:
            return RecordedAnswer(kind=TaskKind.CALL, faults=faults, repaired=repaired, **about)
    known = about["schema"] and call.arguments is not None
    return RecordedAnswer(kind=TaskKind.FORM if known else TaskKind.UNVERIFIABLE, **about)


def _repaired(attempt: AttemptEvidence, call: CallEvidence) -> tuple[Mapping[str, Any] | None, bool]:
    """The arguments with which the tool was asked until it accepted, and whether they were those that it had refused."""
    accepted = attempt.accepted_after(call)
    if accepted is None or accepted.arguments is None or call.arguments is None:
        return None, False
    if accepted.written == call.written:
        return None, True
    same = sum(call.arguments.get(name) == value for name, value in accepted.arguments.items())
    # One that has little in common with it is another piece of work.
    return (accepted.arguments if 2 * same >= len(accepted.arguments) else None), False


def _of_answer(trace: Trace) -> RecordedAnswer:
    """Of an attempt without a tool call: what it should have answered, or else what it answered, where that is known to be
    right."""
    correction = corrected_answer(trace.rewards)
    right = final_text(correction.evidence) if correction is not None else None
    if right is None and decide(each for each in trace.said if each.told_by in _KNOWN).good:
        right = final_text(trace.reply)
    if len(trace.calls) != 1 or not right or len(right) > _LONGEST:
        return RecordedAnswer(kind=TaskKind.UNVERIFIABLE)
    return RecordedAnswer(kind=TaskKind.ANSWERED, text=right)
