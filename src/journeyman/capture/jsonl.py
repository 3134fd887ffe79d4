"""One recorded object becomes one trace, and back: native traces, transcripts of messages, runs of tau-bench."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from journeyman.capture import chat
from journeyman.capture.base import NO_TIME, Recorded
from journeyman.capture.tau_bench import Run
from journeyman.errors import TraceError
from journeyman.trace import Trace

_TRACE = TypeAdapter(Trace)
_KNOWN = frozenset(Trace.__dataclass_fields__)


class _Transcript(BaseModel):
    """Chat messages with what may stand beside them."""

    model_config = ConfigDict(coerce_numbers_to_str=True)

    messages: list[chat.Message]
    id: str | None = None
    task_id: str | None = None
    model: str = ""
    domain: str = "general"
    candidate_id: str = "base"
    started_at: datetime | None = Field(default=None)
    finish_reason: str | None = None
    error: str | None = None

    def recorded(self, name: str) -> Recorded:
        return Recorded(
            trace=Trace(
                id=self.id or name,
                task_id=self.task_id or self.id or name,
                candidate_id=self.candidate_id,
                started_at=self.started_at or NO_TIME,
                steps=tuple(chat.steps(self.messages, model=self.model, finish=self.finish_reason)),
                error=self.error,
                domain=self.domain,
            )
        )


def parse(record: Mapping[str, Any], *, name: str) -> Recorded:
    """The trace that a record tells of: with "steps" a native one, with "messages" a transcript, with "traj" a run of
    tau-bench.

    Args:
        name: Its id where the record has none, such as the file and line it stands at.

    Raises:
        TraceError: It is none of these, or a field cannot be what it is; the message names the field.
    """
    try:
        if "messages" in record:
            return _Transcript.model_validate(record).recorded(name)
        if "traj" in record:
            return Run.model_validate(record).recorded()
        if "steps" not in record:
            raise TraceError('no trace: it has neither "steps" nor "messages" nor "traj"')
        strange = sorted(set(record) - _KNOWN)
        if strange:
            raise TraceError(f"a trace has no field {strange[0]!r}")
        return Recorded(trace=_TRACE.validate_python(record))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # Of a step that fits none of the three kinds every kind's complaint is listed; the first path names the step.
        where = ".".join(str(part) for part in first["loc"])
        raise TraceError(f"{where}: {first['msg']}") from None


def line(trace: Trace) -> str:
    """A trace as one line of JSON, without the line's end; `parse` gives the same trace back."""
    return _TRACE.dump_json(trace).decode()
