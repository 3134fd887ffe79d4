"""The work behind `journeyman dataset`, apart from its options."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import click

from journeyman.cli.actions import traces
from journeyman.cli.console import bar
from journeyman.cli.shared import console, options_named
from journeyman.core.errors import InputError
from journeyman.experiments.planner import desk
from journeyman.experiments.weights.data import TraceSource, from_source
from journeyman.io.files import check_writable, sha256
from journeyman.optimizers.planner import data
from journeyman.optimizers.planner.data import PreparedExamples, prepare
from journeyman.optimizers.weights.data import DatasetCard as Sheet
from journeyman.optimizers.weights.data import DatasetConfig, dataset_card, files
from journeyman.optimizers.weights.rows import SPREAD, Row, is_plain
from journeyman.optimizers.weights.rows import CompletionGroup as Group
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled
from journeyman.optimizers.weights.rows import TextOrMessages as Said

_SETTINGS = (
    "method", "form", "context", "reasoning", "threshold", "auto_labels", "balance", "max_characters", "max_tokens", "seed",
)  # fmt: skip
_FILTERS = (
    "agent", "model", "tool", "task_id", "session", "domain", "source", "candidate_id", "label", "min_reward", "max_reward",
    "failed", "text", "since", "until", "last",
)  # fmt: skip
_ALSO = {"task": "task_id", "candidate": "candidate_id"}
"""Filters whose option has another name."""
_LABELS = ("good", "bad", "none", "some")
_OF_FILES = frozenset({"agent"})
_SHORT = 400
_PAUSE = 2.0


def build(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Build what the options name; its datasheet. Words go to stderr."""
    out: Path = given["out"]
    check_writable(out)
    source = _source(given)
    with options_named():
        config = DatasetConfig(**{name: given[name] for name in _SETTINGS}, agent_weights=_weights(given["agent_weights"]))
    total = source.count()
    with bar("traces", total or 1, quiet=quiet or total is None, pause=_PAUSE) as done:
        made = from_source(source, None if given["dry_run"] else out, config, done=done)
    if not quiet:
        _tell(made, out, dry_run=given["dry_run"])
    return {**made.json(), "out": None if given["dry_run"] else str(out), "dry_run": given["dry_run"]}


def show(path: Path, *, limit: int, full: bool, quiet: bool) -> dict[str, Any]:
    rows = list(islice(files.read(path), limit))
    if not quiet:
        for number, row in enumerate(rows, start=1):
            click.echo(f"{'' if number == 1 else chr(10)}── row {number} " + "─" * 40)
            click.echo("\n".join(_lines(row, None if full else _SHORT)))
    return {"file": str(path), "rows": [json.loads(files.line_of(row)) for row in rows]}


def check(path: Path, *, quiet: bool) -> dict[str, Any]:
    """What a file holds, read to its end."""
    counts: Counter[str] = Counter()
    tools: set[str] = set()
    for row in files.read(path):
        counts.update(_counted(row))
        tools |= {
            str(tool.get("function", tool).get("name")) for tool in row.tools if isinstance(tool.get("function", tool), Mapping)
        }
    faults = list(_faults(path, counts))
    found = {
        "file": str(path),
        "rows": counts["rows"],
        "kind": "kto" if counts["labelled"] else "grpo" if counts["rows"] else None,
        "form": "plain" if counts["plain"] else "conversational" if counts["rows"] else None,
        "completions": counts["completions"],
        "good": counts["good"],
        "bad": counts["bad"],
        "groups_without_spread": counts["flat"],
        "groups_with_logprobs": counts["logprobs"],
        "tools": sorted(tools),
        "faults": faults,
    }
    if not quiet:
        traces.tell(_said(found))
        for fault in faults:
            traces.tell(f"  {fault}")
    return found


def _source(given: Mapping[str, Any]) -> TraceSource:
    wanted = {name: given[name] for name in _FILTERS}
    paths: list[Path] = []
    for words in given["from_traces"]:
        if words and ("=" not in words or Path(words).exists()):
            paths.append(Path(words))
        else:
            wanted |= _filters(words)
    if paths:
        other = [name for name, value in wanted.items() if value is not None and name not in _OF_FILES]
        if other or given["store"] is not None:
            what = "--store" if given["store"] is not None else f"--{_option(other[0])}"
            raise InputError(f"{what} is for traces of a store; collect the files first: journeyman collect {paths[0]}")
        return TraceSource(files=tuple(paths), agent=wanted["agent"], run=given["run"])
    return TraceSource(store=given["store"], query=traces.query(wanted), run=given["run"])


def _filters(words: str) -> dict[str, Any]:
    """The filters that one text holds: agent=desk,last=7d."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in words.split(","))):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        name = _ALSO.get(name, name)
        if name not in _FILTERS or not value:
            known = ", ".join(_option(each) for each in _FILTERS if each != "failed")
            raise InputError(f"--from-traces {words}: {part!r} is no filter; write {'agent=desk,last=7d'}, with {known}")
        found[name] = _value(name, value.strip(), words)
    return found


def _value(name: str, value: str, words: str) -> Any:
    if name == "label" and value not in _LABELS:
        raise InputError(f"--from-traces {words}: a label is one of {', '.join(_LABELS)}")
    if name not in ("min_reward", "max_reward"):
        return value
    try:
        return float(value)
    except ValueError:
        raise InputError(f"--from-traces {words}: {value!r} is no number") from None


def _option(name: str) -> str:
    back = {field: option for option, field in _ALSO.items()}
    return back.get(name, name).replace("_", "-")


def _weights(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for each in given:
        name, is_told, value = each.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            is_told = ""
        if not is_told:
            raise InputError(f"--agent-weight {each}: write NAME=NUMBER, such as coder=2")
    return found


def _tell(made: Sheet, out: Path, *, dry_run: bool) -> None:
    tell = traces.tell
    for what, count in made.left_out.items():
        tell(f"{count} {what}")
    told = f"{made.rows} rows, {made.completions} completions of {made.traces} traces: {made.good} good, {made.bad} bad"
    if made.groups is not None:
        told += f"; {made.groups} groups, {made.flat_groups} of them without spread"
    tell(told + (" (nothing was written)" if dry_run else f" in {out}"))
    if made.weights:
        tell("train with " + " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in made.weights.items()))
    if not dry_run:
        tell(f"what it holds stands in {out}.sheet.md")


def _counted(row: Row) -> Iterator[str]:
    yield "rows"
    if is_plain(row):
        yield "plain"
    if isinstance(row, Labelled):
        yield from ("labelled", "completions", "good" if row.label else "bad")
        return
    yield from ["completions"] * len(row.completions)
    if all(abs(reward) < SPREAD for reward in row.rewards):
        yield "flat"
    if any(each is not None for each in row.logprobs):
        yield "logprobs"


def _faults(path: Path, counts: Counter[str]) -> Iterator[str]:
    if not counts["rows"]:
        yield "it has no rows"
    elif counts["labelled"] and not (counts["good"] and counts["bad"]):
        yield f"all its labels are {'good' if counts['good'] else 'bad'}: there is nothing to tell apart"
    elif not counts["labelled"] and counts["flat"] == counts["rows"]:
        yield "no group has any spread in its rewards: GRPO learns nothing from it"
    beside = dataset_card.json_path(path)
    if beside.is_file() and _sha256(beside) != sha256(path):
        yield f"it is not the file that {beside.name} speaks of: it was changed, or the sheet was"


def _sha256(beside: Path) -> str | None:
    try:
        told = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told.get("sha256") if isinstance(told, dict) else None


def _said(found: Mapping[str, Any]) -> str:
    if not found["rows"]:
        return f"{found['file']}: 0 rows"
    told = f"{found['file']}: {found['rows']} rows for {found['kind']}, {found['form']}"
    if found["kind"] == "kto":
        return f"{told}; {found['good']} good, {found['bad']} bad"
    told += f"; {found['completions']} completions, {found['groups_without_spread']} rows without spread"
    return f"{told}, {found['groups_with_logprobs']} with log-probabilities"


def _lines(row: Row, most: int | None) -> Iterator[str]:
    yield from _spoken(row.prompt, most)
    if isinstance(row, Labelled):
        yield f"→ {'good' if row.label else 'bad'}"
        yield from _spoken(row.completion, most)
        return
    assert isinstance(row, Group)
    for at, (completion, reward) in enumerate(zip(row.completions, row.rewards, strict=True)):
        yield f"→ {reward:+.3f}" + (f" (from {row.scores[at]:.3f})" if row.scores else "")
        yield from _spoken(completion, most)


def _spoken(said: Said, most: int | None) -> Iterator[str]:
    if isinstance(said, str):
        yield _short(said, most)
        return
    for message in said:
        if message["content"] or not message.get("tool_calls"):
            yield f"{message['role']}: {_short(message['content'], most)}"
        for call in message.get("tool_calls", ()):
            does = call["function"]
            yield f"{message['role']} calls {does['name']} {_short(json.dumps(does['arguments'], ensure_ascii=False), most)}"


def _short(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else f"{text[:most]}…"


# The work behind `journeyman dataset planner`, apart from its options.

_TOLD = 20
"""Broken places that are named on the screen; `--json` names all."""


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Read the logs, and write the set unless that was not wanted."""
    output = given["output"]
    prepared = prepare(given["logs"], cards=desk.cards(), only_success=given["only_success"])
    if not given["dry_run"]:
        data.write(prepared.data, output)
    if not quiet:
        _tell_dataset_planner(prepared)
        console().print("nothing was written" if given["dry_run"] else f"wrote {output}")
    return {**prepared.json(), "output": None if given["dry_run"] else str(output)}


def _tell_dataset_planner(prepared: PreparedExamples) -> None:
    out, made = console(), prepared.data
    for problem in prepared.problems[:_TOLD]:
        out.print(str(problem), style="yellow", markup=False, soft_wrap=True)
    if len(prepared.problems) > _TOLD:
        out.print(f"and {len(prepared.problems) - _TOLD} more places that could not be read", style="yellow")
    out.print(
        f"{prepared.lines} executions: {prepared.succeeded} succeeded, {prepared.failed} failed, "
        f"{prepared.unjudged} that nobody judged"
    )
    skipped = ((prepared.held_out, "held out"), (prepared.without_plan, "without a plan"), (prepared.left_out, "failed"))
    if left := ", ".join(f"{count} {why}" for count, why in skipped if count):
        out.print(f"left out: {left}")
    steps = [len(example.plan.subtasks) for example in made.examples]
    out.print(
        f"{len(made.examples)} examples of {min(steps)} to {max(steps)} subtasks; {len(made.task_types)} kinds of work, "
        f"{len(made.tools)} tools, {len(made.models)} models"
    )
    if made.models and not prepared.succeeded:
        out.print("no execution succeeded, so there is no plan to follow: phase 1 has nothing to learn from", style="yellow")
