"""The formats that are read, by name, and how each knows its own."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from journeyman.capture import jsonl
from journeyman.capture.base import Recorded
from journeyman.capture.files import (
    execution_log,
    inspect_log,
    langfuse,
    langsmith,
    openclaw,
    sharegpt,
    swe_agent,
    tau2_bench,
)
from journeyman.capture.otlp.dumps import is_dump
from journeyman.errors import TraceError

OWN = "journeyman"
OTLP = "otlp"
CHECKPOINT = "checkpoint"
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One way to write traces down."""

    name: str
    title: str
    recognises: Callable[[Row], bool]
    """Whether a record is of this format. Asked in the order of the table: the narrower ones come first."""
    read: Callable[[Row], Iterable[Recorded | TraceError]]
    """The traces of a record; what of it is broken comes as an error between them, or is raised."""
    unique: bool = False
    """Whether the ids that it writes are unique in the world."""


def _parsed(record: Row) -> Iterator[Recorded]:
    yield jsonl.parse(record, name="")


def _is_message(record: Row) -> bool:
    return isinstance(record.get("role"), str) and "content" in record


FORMATS: tuple[Format, ...] = (
    Format(
        name=OWN,
        title="JSON lines of Journeyman",
        recognises=lambda record: "steps" in record,
        read=_parsed,
        unique=True,
    ),
    Format(name="tau2-bench", title="results of tau2-bench", recognises=tau2_bench.recognised, read=tau2_bench.read),
    Format(
        name="inspect",
        title="logs of Inspect (.json, .eval)",
        recognises=inspect_log.recognised,
        read=inspect_log.read,
        unique=True,
    ),
    Format(
        name="langfuse", title="traces exported from Langfuse", recognises=langfuse.recognised, read=langfuse.read, unique=True
    ),
    Format(name="langsmith", title="runs of LangSmith", recognises=langsmith.recognised, read=langsmith.read, unique=True),
    Format(
        name="tau-bench",
        title="results and few-shot data of tau-bench",
        recognises=lambda record: "traj" in record or "messages_display" in record,
        read=_parsed,
    ),
    Format(name="swe-agent", title="trajectories of SWE-agent", recognises=swe_agent.recognised, read=swe_agent.read),
    Format(
        name="mini-swe-agent",
        title="trajectories of mini-swe-agent",
        recognises=swe_agent.recognised_mini,
        read=swe_agent.read_mini,
    ),
    Format(name="execution-log", title="execution logs", recognises=execution_log.recognised, read=execution_log.read),
    Format(
        name="openclaw",
        title="session logs of OpenClaw",
        recognises=openclaw.recognised,
        read=lambda row: openclaw.read([row]),
        unique=True,
    ),
    Format(name="sharegpt", title="conversations in ShareGPT's form", recognises=sharegpt.recognised, read=sharegpt.read),
    Format(
        name="chat",
        title="chat messages, as for fine-tuning at OpenAI",
        recognises=lambda record: "messages" in record,
        read=_parsed,
    ),
)
"""All that are read record by record."""
BY_NAME: Mapping[str, Format] = {each.name: each for each in FORMATS}
NAMES = (*BY_NAME, CHECKPOINT, OTLP)

_ELSE: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"judge_response", "simulation_id"}), "verdicts of a judge on traces"),
    (frozenset({"total_judged", "entries"}), "verdicts of a judge on traces"),
    (frozenset({"submitting_organization", "results"}), "entries of a leaderboard"),
    (frozenset({"skills", "sections"}), "a skill book (see journeyman playbook import)"),
    (frozenset({"evaluation_criteria", "user_scenario"}), "tasks"),
)


def _is_extracted(value: Any) -> bool:
    parts = list(value.values()) if isinstance(value, dict) and set(value) <= {"input", "output"} else []
    return bool(parts) and all(isinstance(part, dict) and "success" in part for part in parts)


def recognise(record: Any) -> Format | None:
    """The format that a record is of."""
    if not isinstance(record, dict):
        return None
    return next((each for each in FORMATS if each.recognises(record)), None)


def is_otlp(record: Any) -> bool:
    spans = {"resourceSpans", "resource_spans", "resourceLogs", "resource_logs"}
    return isinstance(record, dict) and (bool(spans & set(record)) or is_dump(record))


def is_bare_message(record: Any) -> bool:
    """A message that stands in a list which is a whole file: mini-swe-agent began so."""
    return isinstance(record, dict) and _is_message(record)


def said_of(record: Any) -> str | None:
    """What a record is that is known to be no trace."""
    if not isinstance(record, dict):
        return None
    if record and all(_is_extracted(each) for each in record.values()):
        return "messages that Langfuse took out of a trace"
    return next((what for keys, what in _ELSE if keys <= set(record)), None)
