"""`journeyman traces`: find, read, label, export and forget what was recorded.

What stands in a trace was written by anybody: nothing in it is taken for markup, or for a command to the terminal.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any
from uuid import uuid4

import click

from journeyman.cli.console import bar, minute, plain, say, write
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.shared import read_store_url, store_option, together
from journeyman.cli.trace_filters import (
    filters,
    id_of,
    opened,
    query,
    reading,
    say_that_there_are_none,
    show_agreement,
    span,
)
from journeyman.cli.trace_view import show_answers, show_list, show_signals, show_statistics, show_trace, tail_line
from journeyman.core.errors import InputError
from journeyman.core.format import counted, money
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Page, Pruned, Query, TraceStore
from journeyman.stores.urls import is_nowhere

_MOST = 10_000
"""Nobody asks how many more than this there are, and counting them takes its time."""
_paged = together(
    click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show so many at most."),
    click.option("--after", metavar="MARK", help="Go on where the list before ended: the `next` of its --json."),
)


@click.group(
    cls=LazyGroup,
    lines={
        "autolabel": "Learn from people's labels, and label the rest where that is sure enough.",
        "forget": "Forget traces of somebody or something, and lower what was learned from them.",
        "label": "Say of traces whether they went well, one key each.",
    },
    homes={"autolabel": "autolabel:autolabel", "forget": "forget", "label": "labels:label"},
)
def command() -> None:
    """Find, read, label, export and forget what agents did.

    They come in through `journeyman serve`, `journeyman collect`, or a TraceCollector in your program.

    \b
    Examples:
      journeyman traces list --last 7d --error
      journeyman traces label --who ada
    """


@command.command("list")
@filters
@_paged
@reading
def list_(*, store: str | None, limit: int, after: str | None, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """List traces, newest first.

    \b
    Examples:
      journeyman traces list --last 7d --error
      journeyman traces list --agent desk --label none --limit 50
    """
    return _listed(store, query(wanted), limit, after, quiet=quiet)


@command.command()
@click.argument("words", nargs=-1, required=True)
@filters
@_paged
@reading
def search(
    *, words: tuple[str, ...], store: str | None, limit: int, after: str | None, quiet: bool, **wanted: Any
) -> dict[str, Any]:
    """Find traces by words that stand in them, newest first.

    All the words must be there, in any order and case; "in quotes" is a phrase, and the last word may be a beginning.

    \b
    Examples:
      journeyman traces search refund damaged
      journeyman traces search '"cannot be exchanged" order' --agent desk
    """
    wanted["text"] = " ".join((wanted["text"] or "", *words)).lstrip()
    return _listed(store, query(wanted), limit, after, quiet=quiet)


def _listed(url: str | None, wanted: Query, limit: int, after: str | None, *, quiet: bool) -> dict[str, Any]:
    where = read_store_url(url)
    if is_nowhere(where) and after is None:
        # Half of the time that a list takes goes into loading what opens a store.
        page, count, others = Page(lines=(), next=None), 0, 0
    else:
        with open_traces(where, make=False) as store:
            page = store.page(wanted, limit=limit, after=after)
            count = store.count(wanted, most=_MOST)
            others = 0 if count else store.count(Query(), most=_MOST)
    if not (count or others):
        say_that_there_are_none(where)
    if not quiet:
        if page.lines:
            show_list(page.lines)
        more = f"{_MOST:,} or more traces" if count == _MOST else counted(count, "trace")
        rest = f"; of the {counted(others, 'trace')} that there are, none is so" if others else ""
        say(f"{len(page.lines)} of {more}{rest}" + (f"; go on with --after {page.next}" if page.next else ""))
    return {"count": count, "counted_to": _MOST, "next": page.next, "traces": [_json(asdict(line)) for line in page.lines]}


@command.command()
@filters
@click.option("--lines", "-n", type=click.IntRange(0), default=10, show_default=True, metavar="N", help="So many of before.")
@click.option(
    "--every", type=click.FloatRange(0.1), default=1.0, show_default=True, metavar="SECONDS", help="How often to look."
)
@click.option("--for", "seconds", type=click.FloatRange(0), metavar="SECONDS", help="End after so long.  [default: Ctrl-C]")
@store_option
def tail(*, store: str | None, lines: int, every: float, seconds: float | None, **wanted: Any) -> None:
    """Show the newest traces, and each new one as it comes, a line each, until Ctrl-C.

    A trace that goes on is shown once, as it was when it was first seen.

    \b
    Examples:
      journeyman traces tail
      journeyman traces tail --agent desk --error
    """
    meant, until = query(wanted), None if seconds is None else monotonic() + seconds
    seen: set[str] = set()
    with suppress(KeyboardInterrupt), opened(store) as traces:
        show = lines
        while True:
            found = [line for line in traces.page(meant, limit=max(lines, _AT_ONCE)).lines if line.id not in seen]
            seen.update(line.id for line in found)
            for line in reversed(found[:show]):
                write(tail_line(line))
            show = _AT_ONCE
            if until is not None and monotonic() + every > until:
                return
            sleep(every)


_AT_ONCE = 200
"""Traces that are looked through each time; of more that came in between only the newest are shown."""


@command.command()
@click.argument("trace_id", metavar="ID")
@click.option("--full", is_flag=True, help="Unfold the tool calls, and shorten nothing.")
@reading
def show(*, trace_id: str, full: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Show one trace as a conversation, and its steps as a tree.

    As much of the ID as tells it apart is enough.

    \b
    Examples:
      journeyman traces show 4f2a
      journeyman traces show 4f2a --full
    """
    from journeyman.tracing.importers import jsonl

    with opened(store) as traces:
        trace = traces.get(id_of(traces, trace_id))
        # Between the two looks it may have been pruned.
        if trace is None:
            raise InputError(f"{trace_id}: no trace has this id")
        labels, given = traces.labels(trace.id), traces.rewards(trace.id)
    if not quiet:
        show_trace(trace, labels, given, full=full)
    return {
        "trace": json.loads(jsonl.line(trace)),
        "verdict": asdict(trace.verdict),
        "labels": [_json(asdict(label)) for label in labels],
        "given": [_json({**asdict(each.reward), "by": each.by, "at": each.at}) for each in given],
    }


@command.command()
@click.argument("trace_id", metavar="ID")
@click.option("--step", type=click.IntRange(1), metavar="N", help="Which, as the page counts them.  [default: its last answer]")
@click.option("--model", default="", metavar="NAME", help="Ask this one.  [default: that of then, at the server that answered]")
@click.option("--playbook", metavar="FILE", help="Show its bullets, as a live request is shown them.  [default: none]")
@click.option("--dry-run", is_flag=True, help="Say what would be asked and what it may cost, and ask nobody.")
@reading
def replay(*, trace_id: str, store: str | None, quiet: bool, dry_run: bool, **given: Any) -> dict[str, Any]:
    """Ask a recorded step again, with another playbook or another model, and show both answers.

    No tool is run. What comes is kept as an attempt of Journeyman's own, from which nobody learns.

    \b
    Examples:
      journeyman traces replay 4f2a --playbook playbooks/mine.json --dry-run
      journeyman traces replay 4f2a --step 3 --model openai:gpt-5-mini
    """
    import asyncio

    from journeyman.core.playbook import Playbook
    from journeyman.experiments import settings
    from journeyman.experiments.agents import candidate_of
    from journeyman.experiments.playbook.examination import asker, is_own
    from journeyman.experiments.playground import ReplayedStep, ReplayServers, sent

    project = settings.load()
    with opened(store) as traces:
        trace = traces.get(id_of(traces, trace_id))
        if trace is None:
            raise InputError(f"{trace_id}: no trace has this id")
        asked = ReplayedStep.of(trace, given["step"])
        if given["playbook"] is not None:
            shown = Playbook.load(given["playbook"])
            candidate = candidate_of(shown)
            asked = asked.showing(shown, candidate.id if candidate else "")
        ask = asker(project.settings, model=given["model"])
        there = asked.request.base_url or "a server that is not known"
        if asked.bullets and not given["model"] and not is_own(asked.request, project.settings.upstreams):
            raise InputError(
                f"step {asked.number} was answered at {plain(there)}, which is none of this project's servers: "
                "--model NAME says who is to be shown the playbook"
            )
        most, who = asked.most(ask), given["model"] or f"{asked.call.model} at {there}"
        price = "its price is not known" if most is None else f"at most {money(most)} by list price"
        say(f"step {asked.number}: {plain(who)} is asked, {counted(len(asked.bullets), 'bullet')} shown; {price}")
        told: dict[str, Any] = {"trace": trace.id, "step": asked.number, "bullets": len(asked.bullets), "most_cost": most}
        if dry_run:
            return {**told, "dry_run": True}
        id = f"playground-{uuid4().hex}"
        found = asyncio.run(asked.send(ask, id=id, by=settings.person() or "", clock=lambda: datetime.now(UTC)))
        found = ReplayServers(settings=project.settings, servers={}).cleaned(found)
        traces.add([found])
    before, after = asked.then(), sent(found)
    if not quiet:
        show_answers(before, after)
    answers = {"before": asdict(before), "after": asdict(after)}
    return {**told, "answer": found.id, **answers, **({"silent": True} if after.error is not None else {})}


@command.command()
@filters
@click.option(
    "--format",
    "name",
    type=click.Choice(("jsonl", "chat", "sharegpt", "evals", "dpo", "dpo-axolotl", "dpo-sharegpt")),
    default="jsonl",
    show_default=True,
    help="See the text above.",
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.  [default: stdout]")
@click.option("--otlp", metavar="URL", help="Send spans to a collector instead, such as http://localhost:6006.")
@click.option(
    "--convention",
    type=click.Choice(("both", "openinference", "genai")),
    default="both",
    show_default=True,
    help="With --otlp: whose words the spans speak.",
)
@click.option("--again", is_flag=True, help="With --otlp: also what was sent there before.")
@click.option("--dry-run", is_flag=True, help="With --otlp: say what would be sent, and send nothing.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="So many at most.")
@reading
def export(*, name: str, out: Path | None, limit: int | None, store: str | None, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """Write traces to a file, or send them to a collector of OpenTelemetry, oldest first.

    jsonl is ours: a trace a line, whole, and `journeyman collect` reads it again. chat is what OpenAI's fine-tuning takes, and
    TRL and axolotl: a conversation a line. sharegpt is LLaMA-Factory's. evals are samples of openai/evals, of traces that are
    known to be good. dpo are pairs of preferences for TRL, dpo-axolotl and dpo-sharegpt for axolotl and LLaMA-Factory: where
    somebody said what should have been answered, that before what was. What a format has no place for is said.

    With --otlp they go out as spans by OTLP over HTTP, to Phoenix, Langfuse, MLflow or any collector, in the words of
    OpenInference and of OpenTelemetry's GenAI conventions. Secrets are taken out; keys for the server stand in
    OTEL_EXPORTER_OTLP_HEADERS. What the server has taken is not sent again, so that the same command goes on where it stopped.

    \b
    Examples:
      journeyman traces export --out traces.jsonl
      journeyman traces export --label good --format chat --out train.jsonl
      journeyman traces export --format dpo --out pairs.jsonl
      journeyman traces export --otlp http://localhost:6006 --last 7d
    """
    otlp = {key: wanted.pop(key) for key in ("otlp", "convention", "again", "dry_run")}
    if otlp["otlp"] is not None:
        if out is not None or name != "jsonl":
            raise InputError("--otlp sends spans and writes no file: leave out --out and --format")
        return _sent(store, query(wanted), limit, otlp, quiet=quiet)
    if given := [key for key in ("again", "dry_run") if otlp[key]]:
        raise InputError(f"--{given[0].replace('_', '-')} goes with --otlp URL")
    return _exported(store, query(wanted), limit, name, out, quiet=quiet)


def _exported(url: str | None, meant: Query, limit: int | None, name: str, out: Path | None, *, quiet: bool) -> dict[str, Any]:
    from journeyman.tracing.importers import jsonl
    from journeyman.tracing.importers.finetuning import Losses, lines

    if quiet and out is None:
        raise InputError("--json and the traces would both be on stdout; name a file with --out")
    losses, traces, written = Losses(), 0, 0
    with opened(url) as recorded, _written(out) as file:
        for trace in islice(recorded.traces(meant), limit):
            traces += 1
            for line in [jsonl.line(trace)] if name == "jsonl" else lines(trace, losses, name):
                file.write(line + "\n")
                written += 1
    lost = list(losses)
    if name != "jsonl" and written:
        lost.append("Times, tokens, costs, labels and rewards have no place in this format")
    say(*lost)
    say(f"{counted(traces, 'trace')}, {counted(written, 'line')}" + (f" in {out}" if out else ""))
    return {"format": name, "traces": traces, "lines": written, "losses": lost, "out": None if out is None else str(out)}


def _sent(url: str | None, meant: Query, limit: int | None, given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Send spans to a collector, and say how many it took."""
    from journeyman.cli.console import bar
    from journeyman.experiments import settings
    from journeyman.tracing.otel.export import TraceShipment, endpoint
    from journeyman.tracing.redaction import Redactor

    project = settings.load()
    shipment = TraceShipment(
        endpoint(given["otlp"]),
        folder=project.folder / "otlp",
        redactor=Redactor(project.settings.record.redact),
        convention=given["convention"],
        again=given["again"],
        dry_run=given["dry_run"],
    )
    try:
        with opened(url) as recorded:
            total = min(recorded.count(meant), limit or sys.maxsize)
            with bar("traces", total, quiet=quiet, pause=2.0) as done:
                shipment.send(islice(recorded.traces(meant), limit), done)
    finally:
        # What was taken before it broke off is there, and is said.
        found = shipment.summary()
        verb = "would be sent" if given["dry_run"] else "sent"
        known = f"; {counted(found['skipped'], 'trace')} there already" if found["skipped"] else ""
        say(*found["losses"])
        say(f"{counted(found['traces'], 'trace')}, {counted(found['spans'], 'span')} {verb} to {shipment.url}{known}")
        if found["rejected"]:
            say(f"{counted(found['rejected'], 'span')} of them rejected there: {found['reason'] or 'it does not say why'}")
    return {"format": "otlp", **found, "dry_run": given["dry_run"], **({"silent": True} if found["rejected"] else {})}


@contextmanager
def _written(out: Path | None) -> Iterator[IO[str]]:
    """Where to write; a file is there whole when all went well, and else as it was. It is its owner's alone: traces may hold
    what is private."""
    if out is None:
        yield sys.stdout
        return
    from journeyman.io.atomic import atomic_write

    if not out.parent.is_dir():
        raise InputError(f"{out} could not be written: {out.parent} is no folder; make it, or name another place")
    with atomic_write(out) as part, part.open("w", encoding="utf-8") as file:
        yield file


@command.command()
@filters
@click.option("--agreement", is_flag=True, help="How far the people who labelled agree, too.")
@reading
def stats(*, store: str | None, agreement: bool, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """Say what went well, what it cost and how long it took, by agent, model, day and tool.

    \b
    Examples:
      journeyman traces stats --last 7d
      journeyman traces stats --agent desk --agreement
    """
    with opened(store) as traces:
        statistics = traces.statistics(query(wanted))
        if not quiet and statistics.all.traces:
            show_statistics(statistics)
        return asdict(statistics) | (show_agreement(traces, quiet=quiet) if agreement else {})


@command.command()
@filters
@reading
def signals(*, store: str | None, quiet: bool, **wanted: Any) -> dict[str, Any]:
    """Say of each signal in traces how often it fires, how well it agrees with what is known, and whether it has a vote.

    Known is what turned out later, what people say and what checks found. The AUC is the chance that a signal is higher in a
    failure than in a success: .5 says nothing, and below it its sign is wrong. Intervals are of 95 %, over tasks, or over those
    for whom it was done. Judges are examined on each agent by itself, and only by people and later truth.

    \b
    Examples:
      journeyman traces signals --last 30d
      journeyman traces signals --agent desk --domain oslo --json
    """
    from journeyman.rewards.signal_examination import measure
    from journeyman.rewards.signals import request_of, without_disputed
    from journeyman.tracing.evidence import evidence_of
    from journeyman.tracing.twins import twin_groups

    with opened(store) as traces:
        known = without_disputed(traces.traces(query(wanted)), traces.labels())
        found = [evidence_of(trace) for trace in known]
    # Where no task is named, as in live traces, requests that say the same are one.
    group = dict(zip((each.trace.id for each in found), twin_groups(found), strict=True)) if found else {}
    report = measure(found, lambda each: request_of(each) or (group[each.trace.id]))
    if not quiet and report.attempts:
        show_signals(report)
    if report.attempts and report.silence is not None:
        say(
            f"How well they tell cannot be said: {report.silence}. To say of traces whether they went well: "
            "journeyman traces label --telling"
        )
    if report.attempts:
        say("A vote is on whole sessions. What tools refused and took in the end teaches without one: "
            "journeyman train playbook --from traces --dry-run")  # fmt: skip
    return report.json()


@command.command()
@click.option("--older-than", metavar="SPAN", required=True, help="What began longer ago: 12h, 30d, 8w.")
@click.option("--keep", type=click.Choice(("labelled",)), help="Spare what a person has labelled.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and let nothing go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@reading
def prune(*, older_than: str, keep: str | None, dry_run: bool, yes: bool, store: str | None, quiet: bool) -> dict[str, Any]:
    """Forget old traces, with their spans and contents.

    What a run attempted goes with the run: journeyman runs rm.

    \b
    Examples:
      journeyman traces prune --older-than 30d --keep labelled --dry-run
      journeyman traces prune --older-than 30d --keep labelled --yes
    """
    before = datetime.now(UTC) - span(older_than, "--older-than")
    with opened(store) as traces:
        pruned = traces.prune(before=before, keep_labelled=keep is not None, dry_run=True)
        if not dry_run and pruned.traces:
            if not yes:
                question = f"Forget {counted(pruned.traces, 'trace')} from before {minute(before)} for good?"
                click.confirm(question, abort=True, err=True)
            pruned = _forgotten(traces, before, keep is not None, pruned.traces, quiet=quiet)
    if not quiet:
        bytes_ = f" and {pruned.bytes / 1e6:.1f} MB of contents" if pruned.bytes else ""
        spans = f", {pruned.spans} spans" if pruned.spans else ""
        say(f"{counted(pruned.traces, 'trace')}{spans}{bytes_} {'would go' if dry_run else 'are forgotten'}")
    return {**asdict(pruned), "before": before.isoformat(), "dry_run": dry_run}


def _forgotten(traces: TraceStore, before: datetime, keep_labelled: bool, there_are: int, *, quiet: bool) -> Pruned:
    with bar("traces forgotten", there_are, quiet=quiet, pause=1) as more:
        gone = 0

        def told(now: int) -> None:
            nonlocal gone
            more(now - gone)
            gone = now

        try:
            return traces.prune(before=before, keep_labelled=keep_labelled, told=told)
        except KeyboardInterrupt:
            say(f"interrupted: {counted(gone, 'trace')} of {there_are:,} are forgotten; the same command goes on")
            raise


def _json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Times as ISO 8601."""
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in fields.items()}
