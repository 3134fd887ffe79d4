"""Our own format, one trace a line.

docs/trace-format.md has the schema of our own. Its promise: a reader of version 1 reads every 1.x. What a later minor version
has added is kept in `raw`, under "unknown"; what a record of our own version has beside the schema is a mistake, and is named.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from pydantic import TypeAdapter, ValidationError

from journeyman.core import registry
from journeyman.core.errors import TraceError
from journeyman.core.trace import KIND_OF, KINDS, Reasoning, Step, Trace
from journeyman.tracing import fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers.source import Format

VERSION = "1.1"
"""Of the format that `line` writes. The major number changes only when an older reader would read it wrong."""
UNKNOWN = "unknown"
"""The key in `raw` under which a reader keeps the fields of a later version."""
_MARKS = {"model": "model", "tool": "tool", "text": "reasoning", "agent": "agent"}
"""The field that only a step of this kind must have: a step that does not say what it is, as in the first files, has one."""
_TRACE = TypeAdapter(Trace)
_KNOWN = frozenset(Trace.__dataclass_fields__)
_NUMBERS = re.compile(r"(\d{1,6})\.(\d{1,6})")


_FORMATS = {"messages": "chat", "traj": "tau-bench", "messages_display": "tau-bench", "steps": "journeyman"}
"""By the field that says so, the format of one recorded object."""


def parse(record: Mapping[str, Any], *, name: str) -> RecordedTrace:
    """The trace that a record tells of: with "steps" a native one, with "messages" a transcript, with "traj" or
    "messages_display" a run of tau-bench.

    Args:
        name: Its id where the record has none, such as the file and line it stands at.

    Raises:
        TraceError: It is none of these, or a field cannot be what it is; the message names the field.
    """
    format = next((format for field, format in _FORMATS.items() if field in record), None)
    if format is None:
        raise TraceError('no trace: it has neither "steps" nor "messages" nor "traj"')
    found: RecordedTrace
    (found,) = registry.load("importers", format).read(record)
    if format == "journeyman":
        return found
    id = found.trace.id or name
    return replace(found, trace=replace(found.trace, id=id, task_id=found.trace.task_id or id))


def _native(record: Mapping[str, Any]) -> Trace:
    later = _later(record.get("version", "0.0"))
    known, strange = _split_fields(record, _KNOWN | {"version"})
    known.pop("version", None)
    if strange and not later:
        raise TraceError(f"a trace has no field {min(strange)!r}")
    steps = record["steps"]
    if isinstance(steps, list | tuple):
        known["steps"] = [_step(step, f"steps.{at}", later) for at, step in enumerate(steps)]
    if strange:
        raw = known.get("raw")
        known["raw"] = {**(raw if isinstance(raw, dict) else {}), UNKNOWN: strange}
    try:
        return _zoned(_TRACE.validate_python(known))
    except ValidationError as error:
        raise TraceError(fields.fault(error)) from None


def _later(version: Any) -> bool:
    """Whether a record is of a later minor version than ours.

    Raises:
        TraceError: It is of a later major one, or its version is none.
    """
    found = _NUMBERS.fullmatch(version) if isinstance(version, str) else None
    if found is None:
        raise TraceError(f'version: {version!r:.40} is none; it is written like "{VERSION}"')
    major, minor = int(found[1]), int(found[2])
    ours = tuple(map(int, VERSION.split(".")))
    if major > ours[0]:
        raise TraceError(f"version: {version} is newer than this Journeyman reads ({VERSION}); update it to read this")
    return (major, minor) > ours


def _step(step: Any, where: str, later: bool) -> Step:
    if not isinstance(step, Mapping):
        raise TraceError(f"{where}: is no object")
    told = step.get("kind")
    kind = told if told is not None else next((name for mark, name in _MARKS.items() if mark in step), None)
    made = KINDS.get(kind) if isinstance(kind, str) else None
    if made is None:
        if later and isinstance(kind, str):
            # A kind of step of a later version: what it is, a newer reader will say.
            return Reasoning(text="", id=str(step.get("id") or ""), raw={UNKNOWN: dict(step)})
        raise TraceError(f"{where}: is no step; its kind is one of {', '.join(KINDS)}")
    known, strange = _split_fields(step, {*made.__dataclass_fields__, "kind"})
    known.pop("kind", None)
    if strange and not later:
        raise TraceError(f"{where}: a step of the kind {kind} has no field {min(strange)!r}")
    if strange:
        known["raw"] = {**known.get("raw", {}), UNKNOWN: strange}
    try:
        made_of: Step = _STEPS[made].validate_python(known)
    except ValidationError as error:
        raise TraceError(fields.fault(error, where)) from None
    return made_of


_STEPS: Mapping[type[Step], TypeAdapter[Any]] = {made: TypeAdapter(made) for made in KINDS.values()}


def _split_fields(record: Mapping[str, Any], known: frozenset[str] | set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields that are known, and the others."""
    return (
        {name: value for name, value in record.items() if name in known},
        {str(name): value for name, value in record.items() if name not in known},
    )


def _zoned(trace: Trace) -> Trace:
    """A time without a zone is taken for UTC."""
    if any(step.started_at and not step.started_at.tzinfo for step in trace.steps):
        trace = replace(trace, steps=tuple(replace(step, started_at=_utc(step.started_at)) for step in trace.steps))
    if not trace.started_at.tzinfo or (trace.ended_at and not trace.ended_at.tzinfo):
        trace = replace(trace, started_at=_utc(trace.started_at) or NO_TIME, ended_at=_utc(trace.ended_at))
    return trace


def _utc(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None and not at.tzinfo else at


def check(trace: Trace) -> None:
    """
    Raises:
        TraceError: A field of a trace that somebody else's code has made cannot be what it is.
    """
    if strange := next((step for step in trace.steps if type(step) not in KIND_OF), None):
        raise TraceError(f"a step is a {type(strange).__name__}; its kind is one of {', '.join(KINDS)}")
    told = _TRACE.dump_python(trace, exclude_defaults=True, warnings=False)
    steps = told.pop("steps", ())
    _native({**told, "steps": [{"kind": KIND_OF[type(step)], **row} for step, row in zip(trace.steps, steps, strict=True)]})


def line(trace: Trace) -> str:
    """A trace as one line of JSON, without the line's end and without what is as it is by default; `parse` gives the same
    trace back."""
    told = _TRACE.dump_python(trace, exclude_defaults=True)
    steps = told.pop("steps", ())
    record = {
        "version": VERSION,
        **told,
        "steps": [{"kind": KIND_OF[type(step)], **row} for step, row in zip(trace.steps, steps, strict=True)],
    }
    try:
        text = _dumped(record, ascii=False)
    except ValueError:
        # Not a number, or infinite: JSON has neither.
        record = _finite(record)
        text = _dumped(record, ascii=False)
    # Half of a surrogate pair, which JSON can hold, and UTF-8 cannot.
    return text if text.isascii() or not _HALF.search(text) else _dumped(record, ascii=True)


def _dumped(record: Mapping[str, Any], *, ascii: bool) -> str:
    return json.dumps(record, ensure_ascii=ascii, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return dict(value) if isinstance(value, Mapping) else str(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


_HALF = re.compile("[\ud800-\udfff]")


def _read(record: Mapping[str, Any]) -> Iterator[RecordedTrace]:
    yield RecordedTrace(trace=_native(record))


_OTHERS = frozenset({"output", "state", "timing"})
"""What stands beside steps in the result of a run of smolagents."""
STEPS = Format(
    name="journeyman",
    recognises=lambda record: "steps" in record and not set(record) >= _OTHERS,
    read=_read,
    unique=True,
)
