"""Runs of LangSmith: what its SDKs post and then patch, and lists of runs as its client gives them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from journeyman.core.errors import TraceError
from journeyman.core.messages import Turn, Usage
from journeyman.core.trace import AgentCall, Step, ToolCall
from journeyman.tracing import builder, conversation, fields
from journeyman.tracing.base import NO_TIME, RecordedTrace
from journeyman.tracing.importers.source import Format, SeveralRecords


def recognised(record: Mapping[str, Any]) -> bool:
    posted = isinstance(record.get("post"), list) or isinstance(record.get("patch"), list)
    return posted and not {"messages", "openapi"} & set(record)


def recognised_run(record: Mapping[str, Any]) -> bool:
    return "run_type" in record and ("trace_id" in record or "dotted_order" in record or "inputs" in record)


def read(record: Mapping[str, Any]) -> Iterator[RecordedTrace | TraceError]:
    """The traces whose runs were posted and patched (a run that was patched is one run), or stood in a file as they are."""
    if _RUNS in record:
        yield from traces(record[_RUNS])
        return
    runs: dict[str, dict[str, Any]] = {}
    for name in ("post", "patch"):
        for row in fields.objects(record.get(name)):
            id = _id(row)
            if not id:
                yield TraceError(f"{name}: a run has neither id nor trace_id nor dotted_order")
                continue
            merged = runs.setdefault(id, {"id": id})
            # A patch repeats what it does not change, or leaves it empty.
            merged.update({key: value for key, value in row.items() if value not in (None, {}, []) or key not in merged})
    yield from traces(list(runs.values()))


def traces(runs: Sequence[Mapping[str, Any]]) -> Iterator[RecordedTrace]:
    """The runs, each with those of its trace, in the order in which the traces come first."""
    by_trace: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_trace.setdefault(str(run.get("trace_id") or _id(run)), []).append(run)
    for id, members in by_trace.items():
        yield _trace(id, members)


def _id(run: Mapping[str, Any]) -> str:
    order = str(run.get("dotted_order") or "").rpartition(".")[2]
    # A part of a dotted order is a time that ends in Z, and the id.
    return str(run.get("id") or order.partition("Z")[2] or run.get("trace_id") or "")


def _trace(id: str, runs: Sequence[Mapping[str, Any]]) -> RecordedTrace:
    known = {_id(run) for run in runs}
    ordered = sorted(runs, key=lambda run: fields.time(run.get("start_time")) or NO_TIME)
    root = next((run for run in ordered if _parent(run) not in known), ordered[0])
    about = fields.mapping(fields.mapping(root.get("extra")).get("metadata"))
    feedback = fields.mapping(root.get("feedback_stats"))
    return builder.recorded(
        id,
        task_id=str(root.get("reference_example_id") or root.get("name") or id),
        started_at=fields.time(root.get("start_time")),
        ended_at=fields.time(root.get("end_time")),
        steps=tuple(step for run in ordered for step in _steps(run)),
        error=fields.text(root.get("error")) or None,
        session=next((str(about[key]) for key in ("session_id", "thread_id", "conversation_id") if about.get(key)), None),
        agent=str(root["name"]) if root.get("name") and root.get("run_type") != "llm" else None,
        rewards=tuple(fields.reward(name, fields.mapping(said_so).get("avg")) for name, said_so in feedback.items()),
        raw=fields.without_empty(project=root.get("session_name"), tags=root.get("tags"), metadata=about),
    )


def _parent(run: Mapping[str, Any]) -> str | None:
    above = str(run.get("dotted_order") or "").split(".")[:-1]
    found = run.get("parent_run_id") or (above[-1].partition("Z")[2] if above else None)
    return str(found) if found else None


def _steps(run: Mapping[str, Any]) -> Iterator[Step]:
    error = fields.text(run.get("error")) or None
    kind, name, given, got = run.get("run_type"), str(run.get("name") or ""), run.get("inputs"), run.get("outputs")
    started = fields.time(run.get("start_time"))
    known: dict[str, Any] = {
        "error": error,
        "started_at": started,
        "seconds": fields.seconds(started, fields.time(run.get("end_time"))),
        "raw": _raw(run),
    }
    own: dict[str, Any] = {"id": _id(run), "parent": _parent(run)}
    if kind == "llm":
        turn = _answer(run)._replace(**known)
        calls = ((call.id or f"{own['id']}.{number}", call) for number, call in enumerate(turn.calls, start=1))
        sent = conversation.sent_messages(given)
        yield from builder.call_steps(turn, sent, calls, **own, unanswered="the run holds no answer to this call")
    elif kind in ("tool", "retriever"):
        result = fields.mapping(got).get("output", got)
        text = (
            conversation.content_text(fields.mapping(result).get("content", result)) if kind == "tool" else fields.text(result)
        )
        arguments = fields.text(fields.mapping(given).get("input", given))
        yield ToolCall(tool=name, arguments=arguments, result=text, ok=error is None, **known, **own)
    else:
        yield AgentCall(agent=name, input=fields.text(given), output=fields.text(got), **known, **own)


def _answer(run: Mapping[str, Any]) -> Turn:
    """What a model answered, and what is known of it that other steps do not have."""
    output = fields.mapping(run.get("outputs"))
    about = fields.mapping(fields.mapping(run.get("extra")).get("metadata"))
    usage = next(
        (each for each in (output.get("usage_metadata"), output.get("usage"), about.get("usage_metadata")) if each), run
    )
    first = next((event.get("time") for event in fields.objects(run.get("events")) if event.get("name") == "new_token"), None)
    first = fields.time(first or run.get("first_token_time"))
    cached = fields.first_count(fields.mapping(usage).get("input_token_details"), "cache_read")
    return conversation.reply_of(run.get("outputs"))._replace(
        model=str(output.get("model") or about.get("ls_model_name") or ""),
        usage=Usage(cached=cached).known_or(conversation.usage_of(usage)),
        cost=fields.number(run.get("total_cost")),
        first_token_seconds=fields.seconds(fields.time(run.get("start_time")), first),
        response_id=fields.word(output.get("id")),
    )


def _raw(run: Mapping[str, Any]) -> dict[str, Any]:
    given = fields.mapping(run.get("inputs"))
    parameters = {
        key: value for key, value in given.items() if key not in ("messages", "input", "prompt") and value is not None
    }
    runtime = fields.mapping(fields.mapping(run.get("extra")).get("runtime"))
    return fields.without_empty(
        run_type=run.get("run_type"), parameters=parameters if run.get("run_type") == "llm" else None, runtime=runtime
    )


_RUNS = "runs of a file"
FORMAT = Format(
    name="langsmith",
    recognises=recognised,
    read=read,
    unique=True,
    several=SeveralRecords(
        starts=lambda first: recognised_run(first.value),
        belongs=recognised_run,
        otherwise="is no run of LangSmith: it has no run_type",
        joined=lambda rows: {_RUNS: rows},
    ),
)
