"""`journeyman dataset`: sets of rows to train weights or planners on."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import bar, say, say_some, write
from journeyman.cli.shared import emit, json_option, options_named, store_option
from journeyman.cli.trace_filters import filters, opened, query
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.io.atomic import atomic_write, encoded
from journeyman.io.files import check_writable, sha256
from journeyman.stores.traces.base import Query

if TYPE_CHECKING:
    from journeyman.experiments.weights.data import TraceSource
    from journeyman.optimizers.planner.data import PreparedExamples
    from journeyman.optimizers.weights.data import DatasetCard
    from journeyman.optimizers.weights.rows import Row, TextOrMessages

_FILE = click.Path(path_type=Path, dir_okay=False)
_FLAGS = ("failed", "ended_in_error", "scored")
"""Filters that take no value."""
_FILTERS = (*(field.name for field in fields(Query) if field.name != "labelled"), "last")
"""The options of `filters`."""
_SAID = tuple(name for name in _FILTERS if name not in _FLAGS)
"""Those that can stand in one text: agent=desk,last=7d."""
_ALSO = {"task": "task_id", "candidate": "candidate_id"}
"""Filters whose option has another name."""
_LABELS = ("good", "bad", "none", "some")
_OF_FILES = frozenset({"agent"})
_SHORT = 400
"""Characters of a text in a row that are shown."""
_PAUSE = 2.0
_SHOWN = 20
"""Broken places that are named on the screen; `--json` names all."""


@click.group()
def command() -> None:
    """Build, look at and check sets of rows to train on.

    \b
    Examples:
      journeyman dataset build --method kto --out kto.jsonl
      journeyman dataset check kto.jsonl
    """


@command.command()
@click.option("--method", type=click.Choice(("kto", "grpo")), required=True, help="What the rows are for.")
@click.option("--out", type=_FILE, required=True, metavar="FILE", help="Write here: JSON lines, or Parquet by its suffix.")
@click.option(
    "--from-traces",
    metavar="[FILTERS]",
    multiple=True,
    is_flag=False,
    flag_value="",
    help="Files or folders of traces, or filters such as agent=desk,last=7d.  [default: the store, all of it]",
)
@click.option("--run", metavar="ID", help="The attempts of one run.")
@click.option(
    "--form",
    type=click.Choice(("conversational", "plain")),
    default="conversational",
    show_default=True,
    help='Messages with tool calls, or "User: …" and the last answer.',
)
@click.option(
    "--context",
    type=click.Choice(("keep", "drop")),
    default="keep",
    show_default=True,
    help="What becomes of a playbook's bullets in the prompts.",
)
@click.option(
    "--reasoning", type=click.Choice(("keep", "drop")), default="keep", show_default=True, help="What becomes of thoughts."
)
@click.option(
    "--threshold",
    type=float,
    default=0.5,
    show_default=True,
    help="Mean from which an attempt is good that neither a person nor a check judged.",
)
@click.option("--auto-labels", is_flag=True, help="Take the auto-labeler's word where there is no other.")
@click.option(
    "--calls", is_flag=True, help="Where nobody judged: calls that a tool refused as bad, what it took instead as good."
)
@click.option(
    "--balance",
    type=click.Choice(("none", "undersample", "oversample", "weights")),
    default="none",
    show_default=True,
    help="What is done about more good labels than bad ones, or fewer.",
)
@click.option("--max-characters", type=int, metavar="N", help="Of a row; later answers are cut off, never half a message.")
@click.option("--max-tokens", type=int, metavar="N", help="The same in tokens, counted as four characters each.")
@click.option("--agent-weight", "agent_weights", multiple=True, metavar="NAME=W", help="Have an agent's rows W times.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is left out or repeated.")
@filters
@click.option("--dry-run", is_flag=True, help="Say what the set would hold, and write nothing.")
@store_option
@json_option
def build(as_json: bool, **given: Any) -> None:
    """Make a set of rows from recorded attempts, with a datasheet beside it.

    Ground truth decides whether a completion is good, else a person, a check, an end user, a judge, heuristics, in this order;
    what nobody knows is left out and counted, and so is every attempt at a held-out task. For grpo the attempts at one task,
    or else with one prompt, are compared. The same traces give the same bytes.

    \b
    Examples:
      journeyman dataset build --method kto --out kto.jsonl --agent desk --last 7d
      journeyman dataset build --method grpo --out grpo.parquet --from-traces results.json.gz
      journeyman dataset build --method kto --out kto.jsonl --context drop --balance undersample --dry-run
    """
    from journeyman.experiments.weights.data import from_source
    from journeyman.optimizers.weights.data import DatasetConfig

    out: Path = given["out"]
    check_writable(out)
    source = _source(given)
    settings = [field.name for field in fields(DatasetConfig) if field.name != "agent_weights"]
    with options_named():
        config = DatasetConfig(**{name: given[name] for name in settings}, agent_weights=_weights(given["agent_weights"]))
    total = source.count()
    with bar("traces", total or 1, quiet=as_json or total is None, pause=_PAUSE) as done:
        card = from_source(source, None if given["dry_run"] else out, config, done=done)
    if not as_json:
        _show_card(card, out, dry_run=given["dry_run"])
    written = {"out": None if given["dry_run"] else str(out), "dry_run": given["dry_run"]}
    emit({**card.json(), **written}, as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@click.option("--limit", type=click.IntRange(1), default=3, show_default=True, metavar="N", help="So many rows at most.")
@click.option("--full", is_flag=True, help="Shorten nothing.")
@json_option
def show(file: Path, limit: int, full: bool, as_json: bool) -> None:
    """Show the first rows of a set as people read them.

    \b
    Example:
      journeyman dataset show kto.jsonl --limit 1 --full
    """
    from journeyman.optimizers.weights.data import files

    rows = list(islice(files.read(file), limit))
    if not as_json:
        for number, row in enumerate(rows, start=1):
            click.echo(f"{'' if number == 1 else chr(10)}── row {number} " + "─" * 40)
            write(*_lines(row, None if full else _SHORT))
    emit({"file": str(file), "rows": [json.loads(files.line_of(row)) for row in rows]}, as_json=as_json)


@command.command()
@click.argument("file", type=_FILE)
@json_option
def check(file: Path, as_json: bool) -> int:
    """Read a whole set, and say what is in it and what to mind.

    Exit code 1 when it can be read but not trained on as it is: no rows, labels of one kind, groups without any spread, or
    another file than the datasheet beside it speaks of.

    \b
    Example:
      journeyman dataset check kto.jsonl
    """
    from journeyman.optimizers.weights.data import files

    counts: Counter[str] = Counter()
    tools: set[str] = set()
    for row in files.read(file):
        counts.update(_counted(row))
        tools |= {
            str(tool.get("function", tool).get("name")) for tool in row.tools if isinstance(tool.get("function", tool), Mapping)
        }
    faults = list(_faults(file, counts))
    found = {
        "file": str(file),
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
    if not as_json:
        say(_summary(found), *(f"  {fault}" for fault in faults))
    emit(found, as_json=as_json)
    return 1 if faults else 0


@command.command()
@click.option(
    "--logs", type=click.Path(path_type=Path, exists=True), required=True, multiple=True, metavar="PATH",
    help="A folder or file of execution logs; several times for several.",
)  # fmt: skip
@click.option("--output", type=_FILE, default="training_data.json", show_default=True, metavar="FILE", help="Write here.")
@click.option("--only-success", is_flag=True, help="Leave out what failed, instead of giving it no weight in training.")
@click.option("--dry-run", is_flag=True, help="Say what the set would hold, and write nothing.")
@json_option
def planner(as_json: bool, **given: Any) -> None:
    """Make training data for a planner out of execution logs.

    Each example is an instruction with its subtasks, their types, models and dependencies, and what they brought. Executions
    of held-out instructions are left out and counted.

    \b
    Example:
      journeyman dataset planner --logs execution_logs/ --output training_data.json
    """
    from journeyman.experiments.planner import desk
    from journeyman.optimizers.planner import data

    output = given["output"]
    prepared = data.prepare(given["logs"], cards=desk.cards(), only_success=given["only_success"])
    if not given["dry_run"]:
        data.write(prepared.data, output)
    if not as_json:
        _show_prepared(prepared)
        say("nothing was written" if given["dry_run"] else f"wrote {output}")
    emit({**prepared.json(), "output": None if given["dry_run"] else str(output)}, as_json=as_json)


@command.command("from-traces")
@click.option("--output", type=_FILE, required=True, metavar="FILE", help="Write here, a task a line.")
@filters
@click.option("--dry-run", is_flag=True, help="Say what there would be, and write nothing.")
@store_option
@json_option
def from_traces(output: Path, as_json: bool, dry_run: bool, store: str | None, **given: Any) -> None:
    """Draw tasks from recorded attempts: requests that can be asked again, and of which it is known what would be right.

    No tool is run, and no model asked. A tool call whose refusal names its fields is a task of the kind `call`, one that was
    accepted `accepted`; a single answer that truth, a person or a check calls right is `answered`; of a `form` only its schema
    is known. What cannot be asked again is left out and counted.

    \b
    Example:
      journeyman dataset from-traces --output tasks.jsonl --agent desk --last 30d
    """
    from journeyman.experiments.playbook.from_traces import NO_TRACES
    from journeyman.experiments.playbook.recorded_tasks import draw
    from journeyman.tracing.evidence import evidence_of

    if not dry_run:
        check_writable(output)
    with opened(store) as traces:
        drawn = draw([evidence_of(trace) for trace in traces.traces(query(given))])
    if not drawn.attempts:
        raise InputError(NO_TRACES)
    if not dry_run:
        with atomic_write(output) as part:
            part.write_bytes(encoded("".join(f"{json.dumps(each.json(), ensure_ascii=False)}\n" for each in drawn.tasks)))
    if not as_json:
        say(*(f"{count} {why}: left out" for why, count in drawn.left_out.items()))
        kinds = ", ".join(f"{count} {kind}" for kind, count in drawn.kinds.items()) or "none"
        said = f"{counted(len(drawn.tasks), 'task')} of {counted(drawn.attempts, 'trace')}: {kinds}"
        say(f"{said} (nothing was written)" if dry_run else f"{said}; in {output}")
    told = {"tasks": len(drawn.tasks), "traces": drawn.attempts, "kinds": dict(drawn.kinds), "left_out": dict(drawn.left_out)}
    emit({**told, "output": None if dry_run else str(output), "dry_run": dry_run}, as_json=as_json)


def _source(given: Mapping[str, Any]) -> "TraceSource":
    from journeyman.experiments.weights.data import TraceSource

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
    return TraceSource(store=given["store"], query=query(wanted), run=given["run"])


def _filters(words: str) -> dict[str, Any]:
    """The filters that one text holds: agent=desk,last=7d."""
    found: dict[str, Any] = {}
    for part in filter(None, (part.strip() for part in words.split(","))):
        name, _, value = part.partition("=")
        name = name.strip().replace("-", "_")
        name = _ALSO.get(name, name)
        if name not in _SAID or not value:
            known = ", ".join(_option(each) for each in _SAID)
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
        name, equals, value = each.rpartition("=")
        try:
            found[name] = float(value)
        except ValueError:
            equals = ""
        if not equals:
            raise InputError(f"--agent-weight {each}: write NAME=NUMBER, such as coder=2")
    return found


def _show_card(card: "DatasetCard", out: Path, *, dry_run: bool) -> None:
    say(*(f"{count} {what}" for what, count in card.left_out.items()))
    written = f"{counted(card.rows, 'row')}, {counted(card.completions, 'completion')} of {counted(card.traces, 'trace')}"
    rows = f"{written}: {card.good} good, {card.bad} bad"
    if card.groups is not None:
        rows += f"; {card.groups} groups, {card.flat_groups} of them without spread"
    say(rows + (" (nothing was written)" if dry_run else f" in {out}"))
    if card.weights:
        say("train with " + " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in card.weights.items()))
    if not dry_run:
        say(f"what it holds stands in {out}.sheet.md")


def _counted(row: "Row") -> Iterator[str]:
    from journeyman.optimizers.weights.rows import SPREAD, LabelledCompletion, is_plain

    yield "rows"
    if is_plain(row):
        yield "plain"
    if isinstance(row, LabelledCompletion):
        yield from ("labelled", "completions", "good" if row.label else "bad")
        return
    yield from ["completions"] * len(row.completions)
    if all(abs(reward) < SPREAD for reward in row.rewards):
        yield "flat"
    if any(each is not None for each in row.logprobs):
        yield "logprobs"


def _faults(path: Path, counts: Counter[str]) -> Iterator[str]:
    from journeyman.optimizers.weights.data import dataset_card

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
        text = json.loads(beside.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return text.get("sha256") if isinstance(text, dict) else None


def _summary(found: Mapping[str, Any]) -> str:
    if not found["rows"]:
        return f"{found['file']}: 0 rows"
    text = f"{found['file']}: {found['rows']} rows for {found['kind']}, {found['form']}"
    if found["kind"] == "kto":
        return f"{text}; {found['good']} good, {found['bad']} bad"
    text += f"; {found['completions']} completions, {found['groups_without_spread']} rows without spread"
    return f"{text}, {found['groups_with_logprobs']} with log-probabilities"


def _lines(row: "Row", most: int | None) -> Iterator[str]:
    from journeyman.optimizers.weights.rows import LabelledCompletion

    yield from _text_lines(row.prompt, most)
    if isinstance(row, LabelledCompletion):
        yield f"→ {'good' if row.label else 'bad'}"
        yield from _text_lines(row.completion, most)
        return
    for at, (completion, reward) in enumerate(zip(row.completions, row.rewards, strict=True)):
        yield f"→ {reward:+.3f}" + (f" (from {row.scores[at]:.3f})" if row.scores else "")
        yield from _text_lines(completion, most)


def _text_lines(text: "TextOrMessages", most: int | None) -> Iterator[str]:
    if isinstance(text, str):
        yield _short(text, most)
        return
    for message in text:
        if message["content"] or not message.get("tool_calls"):
            yield f"{message['role']}: {_short(message['content'], most)}"
        for call in message.get("tool_calls", ()):
            does = call["function"]
            yield f"{message['role']} calls {does['name']} {_short(json.dumps(does['arguments'], ensure_ascii=False), most)}"


def _short(text: str, most: int | None) -> str:
    return text if most is None or len(text) <= most else f"{text[:most]}…"


def _show_prepared(prepared: "PreparedExamples") -> None:
    made = prepared.data
    say_some([str(problem) for problem in prepared.problems], _SHOWN, "places that could not be read", colour="yellow")
    say(
        f"{prepared.lines} executions: {prepared.succeeded} succeeded, {prepared.failed} failed, "
        f"{prepared.unjudged} that nobody judged"
    )
    skipped = ((prepared.held_out, "held out"), (prepared.without_plan, "without a plan"), (prepared.left_out, "failed"))
    if left := ", ".join(f"{count} {why}" for count, why in skipped if count):
        say(f"left out: {left}")
    steps = [len(example.plan.subtasks) for example in made.examples]
    say(
        f"{counted(len(made.examples), 'example')} of {min(steps)} to {max(steps)} subtasks; "
        f"{counted(len(made.task_types), 'kind')} of work, "
        f"{counted(len(made.tools), 'tool')}, {counted(len(made.models), 'model')}"
    )
    if made.models and not prepared.succeeded:
        say("no execution succeeded, so there is no plan to follow: phase 1 has nothing to learn from", colour="yellow")
