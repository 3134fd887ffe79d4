"""Logs of Inspect (UK AI Security Institute): one JSON object, or a `.eval` archive with a file for each sample."""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman.core.errors import TraceError
from journeyman.core.messages import Turn
from journeyman.core.reward import Reward
from journeyman.core.trace import ModelCall, Step, ToolCall
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers.source import Format, Problem, WholeFile

_LARGEST = 128 * 2**20
"""Bytes of one unpacked file of an archive."""
_TIGHTEST = 300
"""How many times smaller than its content a file may be packed: text does not pack better, and what does is a bomb."""
_SMALL = 2**20
"""Below it nothing is a bomb."""
_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""Inspect's letters: correct, incorrect, partial, no answer."""
_POINTER = "attachment://"


def recognised(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("eval"), dict) and "status" in record


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace | TraceError]:
    """The samples of a log."""
    for number, sample in enumerate(record.get("samples") or (), start=1):
        if isinstance(sample, dict) and "messages" in sample:
            yield _recorded(sample, record)
        else:
            yield TraceError(f"samples.{number}: is no sample: it has no messages")


def _read_archives(paths: Sequence[Path]) -> Iterator[RecordedTrace | Problem]:
    for path in paths:
        yield from read_archive(path)


def read_archive(path: Path) -> Iterator[RecordedTrace | Problem]:
    """The samples of a `.eval` archive, each with its place in it; what is broken is named.

    A log that was cut off before its end has no header, and is read by the one with which it was begun.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            first = next((name for name in ("header.json", "_journal/start.json") if name in names), None)
            if first is None:
                yield Problem(str(path), "is an archive, but no .eval log of Inspect: it has no header.json")
                return
            header = _file(path, archive, first)
            if isinstance(header, Problem):
                yield header
                return
            for name in sorted(set(names), key=_order):
                if name.startswith("samples/") and name.endswith(".json"):
                    sample = _file(path, archive, name)
                    if isinstance(sample, Problem):
                        yield sample
                    elif "messages" not in sample:
                        yield Problem(f"{path}:{name}", "is no sample: it has no messages")
                    else:
                        yield replace(_recorded(sample, header), where=f"{path}:{name}")
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        yield Problem(str(path), f"is a broken archive: {error}")


def _order(name: str) -> tuple[int, str]:
    start = name.rpartition("/")[2].partition("_")[0]
    return (int(start) if start.isascii() and start.isdigit() and len(start) < 19 else 0, name)


def _file(path: Path, archive: zipfile.ZipFile, name: str) -> dict[str, Any] | Problem:
    info = archive.getinfo(name)
    where = f"{path}:{name}"
    if info.file_size > _LARGEST:
        return Problem(where, f"would be {info.file_size >> 20} MB unpacked, more than {_LARGEST >> 20} MB")
    if info.file_size > _SMALL and info.file_size > _TIGHTEST * max(info.compress_size, 1):
        return Problem(where, f"would unpack to {info.file_size // max(info.compress_size, 1)} times its size, as no log does")
    try:
        with archive.open(info) as file:
            # What the directory says of the size need not be true.
            data = file.read(info.file_size + 1)
        found = json.loads(data)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, OSError) as error:
        # RuntimeError is what a file with a password gives.
        return Problem(where, f"could not be unpacked: {error}")
    except (ValueError, RecursionError) as error:
        return Problem(where, f"is not JSON: {error or 'nested too deeply'}")
    return found if isinstance(found, dict) else Problem(where, "is no JSON object")


def _recorded(sample: Mapping[str, Any], log: Mapping[str, Any]) -> RecordedTrace:
    about = fields.mapping(log.get("eval"))
    id, epoch = str(sample.get("id", "")), sample.get("epoch", 1)
    run = about.get("eval_id") or about.get("run_id") or about.get("task_id") or ""
    held = _Held(sample)
    events = held.events
    times = [time for event in events if (time := fields.time(event.get("timestamp"))) is not None]
    started = min(times) if times else fields.time(about.get("created"))
    rewards = tuple(_rewards(fields.mapping(sample.get("scores")), held))
    task = str(about.get("task") or "inspect")
    output = fields.mapping(sample.get("output"))
    return builder.recorded(
        str(sample.get("uuid") or f"{run}/{about.get('task_id', '')}/{id}/{epoch}"),
        task_id=f"{task}/{id}",
        started_at=started,
        ended_at=max(times, default=None),
        steps=_enriched(builder.steps(held.turns(), model=str(about.get("model") or "")), events),
        error=_error(sample),
        domain=task,
        agent=str(about.get("solver") or task),
        session=str(about.get("run_id") or "") or None,
        input=conversation.content_text(sample["input"]) if isinstance(sample.get("input"), str) else None,
        output=_completion(output),
        rewards=rewards,
        reward=rewards[0].value if len(rewards) == 1 else None,
        raw=fields.without_empty(
            status=log.get("status"),
            epoch=epoch,
            target=sample.get("target"),
            metadata=sample.get("metadata"),
            # With the calls of a model that graded, which are no steps of the agent.
            model_usage=sample.get("model_usage"),
            working_time=sample.get("working_time"),
        ),
    )


def _completion(output: Mapping[str, Any]) -> str | None:
    for choice in fields.objects(output.get("choices")):
        return conversation.content_text(fields.mapping(choice.get("message")).get("content"))
    return None


def _error(sample: Mapping[str, Any]) -> str | None:
    error, limit = sample.get("error"), sample.get("limit")
    if error:
        return f"Error: {fields.text(fields.mapping(error).get('message') or error)}"
    if limit:
        return f"Limit: {fields.text(fields.mapping(limit).get('type') or limit)}"
    return None


class _Held:
    """A sample's messages and events, with what they refer to put in its place."""

    def __init__(self, sample: Mapping[str, Any]) -> None:
        transcript = fields.mapping(sample.get("transcript"))
        # What the first versions called a transcript's content are attachments.
        self._attachments = {**fields.mapping(transcript.get("content")), **fields.mapping(sample.get("attachments"))}
        self._messages = fields.objects(sample.get("messages"))
        self.events = fields.objects(sample.get("events")) or fields.objects(transcript.get("events"))

    def text(self, value: Any) -> str:
        """A text, or that of an attachment."""
        found = fields.text(value)
        if found.startswith(_POINTER):
            return fields.text(self._attachments.get(found[len(_POINTER) :], found))
        return found

    def _whole(self, value: Any) -> Any:
        """A content with what its parts refer to."""
        if isinstance(value, list):
            return [self._whole(each) for each in value]
        if isinstance(value, dict):
            return {name: self._whole(each) for name, each in value.items()}
        return self.text(value) if isinstance(value, str) else value

    def turns(self) -> Iterator[Turn]:
        for message in self._messages:
            role, error = str(message.get("role", "user")), fields.mapping(message.get("error"))
            said = self._whole(message.get("content"))
            calls = fields.objects(message.get("tool_calls")) if role == "assistant" else ()
            yield Turn(
                role,
                conversation.content_text(said),
                thought="\n".join(conversation.part_thoughts(said)),
                calls=tuple(map(conversation.tool_use, calls)),
                answers=str(message["tool_call_id"]) if message.get("tool_call_id") else None,
                failed=bool(error),
                error=f"{error.get('type', 'error')}: {error.get('message', '')}" if error else None,
                tool=str(message["function"]) if message.get("function") else None,
                id=str(message.get("id") or "") if role == "assistant" else "",
                model=str(message.get("model") or ""),
            )


def _enriched(steps: Sequence[Step], events: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    """The steps with what the events say of them: tokens, times, errors.

    A call of a model that scored is no step. Where messages have no ids, the events before the first score are the calls, in
    their order.
    """
    calls = _model_events(events)
    by_id = {_message_id(event): event for event in calls if _message_id(event)}
    made = [step for step in steps if isinstance(step, ModelCall)]
    by_place = dict(zip((step.id for step in made), calls, strict=False)) if len(made) == len(calls) else {}
    tools = {str(event.get("id")): event for event in events if event.get("event") == "tool"}
    enriched: list[Step] = []
    for step in steps:
        if isinstance(step, ModelCall):
            event = by_id.get(step.id) or by_place.get(step.id)
            enriched.append(_call(step, event) if event else step)
        elif isinstance(step, ToolCall) and step.id in tools:
            event = tools[step.id]
            start, end = fields.time(event.get("timestamp")), fields.time(event.get("completed"))
            enriched.append(replace(step, started_at=start, seconds=fields.seconds(start, end)))
        else:
            enriched.append(step)
    return tuple(enriched)


def _model_events(events: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Those of the agent."""
    scoring = {
        str(event.get("id")) for event in events if event.get("event") == "span_begin" and "scorer" in str(event.get("type"))
    }
    agents_events: list[Mapping[str, Any]] = []
    inside = 0
    for event in events:
        kind = event.get("event")
        if kind == "step" and event.get("type") == "scorer":
            inside += 1 if event.get("action") == "begin" else -1
        elif kind == "model" and inside <= 0 and str(event.get("span_id")) not in scoring:
            agents_events.append(event)
    return agents_events


def _message_id(event: Mapping[str, Any]) -> str:
    choices = fields.objects(fields.mapping(event.get("output")).get("choices"))
    return str(fields.mapping(choices[0].get("message")).get("id") or "") if choices else ""


def _call(step: ModelCall, event: Mapping[str, Any]) -> ModelCall:
    output = fields.mapping(event.get("output"))
    usage = fields.mapping(output.get("usage"))
    start, end = fields.time(event.get("timestamp")), fields.time(event.get("completed"))
    took = fields.seconds(start, end)
    choices = fields.objects(output.get("choices"))
    return replace(
        step,
        model=str(output.get("model") or step.model),
        input_tokens=fields.count(usage.get("input_tokens")),
        output_tokens=fields.count(usage.get("output_tokens")),
        cached_tokens=fields.count(usage.get("input_tokens_cache_read")),
        cost=fields.number(usage.get("total_cost")),
        started_at=start,
        seconds=took if took is not None else fields.number(output.get("time")),
        finish=str(choices[0]["stop_reason"]) if choices and choices[0].get("stop_reason") else None,
        error=fields.text(event.get("error") or output.get("error")) or None,
        raw=fields.without_empty(parameters=event.get("config")),
    )


def _rewards(scores: Mapping[str, Any], held: _Held) -> Iterator[Reward]:
    for name, score in scores.items():
        value = fields.mapping(score).get("value")
        evidence = held.text(fields.mapping(score).get("explanation") or fields.mapping(score).get("answer"))
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else [("", value)]
        for part, one in parts:
            told = _VALUES.get(one, one) if isinstance(one, str) else one
            yield fields.reward(f"{name}/{part}" if part != "" else name, told, evidence)


FORMAT = Format(
    name="inspect",
    recognises=recognised,
    read=read,
    unique=True,
    whole=WholeFile(knows=lambda head: head.is_archive, read=_read_archives),
)
