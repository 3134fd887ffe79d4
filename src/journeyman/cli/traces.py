"""`journeyman traces`: find, read, label, export and forget what was recorded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option

_Command = Callable[..., Any]
_STORE = click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")
_FILTERS = (
    click.option("--agent", metavar="NAME", help="Of one agent."),
    click.option("--model", metavar="NAME", help="That called this model."),
    click.option("--tool", metavar="NAME", help="That used this tool."),
    click.option("--task", "task_id", metavar="ID", help="Of one task."),
    click.option("--session", metavar="ID", help="Of one session."),
    click.option("--domain", metavar="NAME", help="Of one domain."),
    click.option("--source", metavar="NAME", help="That came in this way: gateway, otlp, hook, run, or a file's format."),
    click.option("--candidate", "candidate_id", metavar="ID", help="Made while this playbook, policy or adapter was in force."),
    click.option(
        "--label", type=click.Choice(("good", "bad", "none", "some")), help="Labelled so; some, none: by a person, or not."
    ),
    click.option("--min-reward", type=float, metavar="R", help="With a mean reward of at least R."),
    click.option("--max-reward", type=float, metavar="R", help="With a mean reward of at most R."),
    click.option("--error/--no-error", "failed", default=None, help="With an error in it, or without."),
    click.option(
        "--text", metavar="WORDS", help='With all these words; "in quotes" for a phrase, the last may be a beginning.'
    ),
    click.option("--since", metavar="TIME", help="Begun at TIME or after it: 2026-11-05, 2026-11-05T14:00, …+02:00."),
    click.option("--until", metavar="TIME", help="Begun before TIME. Without a zone it is the time of this machine."),
    click.option("--last", metavar="SPAN", help="Begun within the last 30m, 12h, 7d or 2w."),
)


def filters(made: _Command) -> _Command:
    """Gives a command the options that say which traces are meant; `_traces.query` reads them."""
    for option in reversed(_FILTERS):
        made = option(made)
    return made


@click.group()
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
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show so many at most.")
@click.option("--after", metavar="MARK", help="Go on where the list before ended: the `next` of its --json.")
@_STORE
@json_option
def list_(store: str | None, limit: int, after: str | None, as_json: bool, **wanted: Any) -> None:
    """List traces, newest first.

    \b
    Examples:
      journeyman traces list --last 7d --error
      journeyman traces list --agent desk --label none --limit 50
    """
    from journeyman.cli.actions import traces

    emit(traces.listed(store, wanted, limit=limit, after=after, quiet=as_json), as_json=as_json)


@command.command()
@click.argument("words", nargs=-1, required=True)
@filters
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show so many at most.")
@click.option("--after", metavar="MARK", help="Go on where the list before ended: the `next` of its --json.")
@_STORE
@json_option
def search(words: tuple[str, ...], store: str | None, as_json: bool, **wanted: Any) -> None:
    """Find traces by words that stand in them, newest first.

    All the words must be there, in any order and case; "in quotes" is a phrase, and the last word may be a beginning.

    \b
    Examples:
      journeyman traces search refund damaged
      journeyman traces search '"cannot be exchanged" order' --agent desk
    """
    from journeyman.cli.actions import traces

    wanted["text"] = " ".join((wanted["text"] or "", *words)).lstrip()
    limit, after = wanted.pop("limit"), wanted.pop("after")
    emit(traces.listed(store, wanted, limit=limit, after=after, quiet=as_json), as_json=as_json)


@command.command()
@click.argument("trace_id", metavar="ID")
@click.option("--full", is_flag=True, help="Unfold the tool calls, and shorten nothing.")
@_STORE
@json_option
def show(trace_id: str, full: bool, store: str | None, as_json: bool) -> None:
    """Show one trace as a conversation, and its steps as a tree.

    As much of the ID as tells it apart is enough.

    \b
    Examples:
      journeyman traces show 4f2a
      journeyman traces show 4f2a --full
    """
    from journeyman.cli.actions import traces

    emit(traces.shown(store, trace_id, full=full, quiet=as_json), as_json=as_json)


@command.command()
@filters
@click.option(
    "--format", "name", type=click.Choice(("jsonl", "chat")), default="jsonl", show_default=True, help="See the text above."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here.  [default: stdout]")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="So many at most.")
@_STORE
@json_option
def export(name: str, out: Path | None, limit: int | None, store: str | None, as_json: bool, **wanted: Any) -> None:
    """Write traces to a file, oldest first.

    jsonl is ours: a trace a line, whole, and `journeyman collect` reads it again. chat is what OpenAI's fine-tuning takes:
    a conversation a line, and what it has no place for is said.

    \b
    Examples:
      journeyman traces export --out traces.jsonl
      journeyman traces export --label good --format chat --out train.jsonl
    """
    from journeyman.cli.actions import traces

    emit(traces.export(store, wanted, name, out, limit=limit, quiet=as_json), as_json=as_json)


@command.command()
@filters
@click.option("--agreement", is_flag=True, help="How far the people who labelled agree, too.")
@_STORE
@json_option
def stats(store: str | None, agreement: bool, as_json: bool, **wanted: Any) -> None:
    """Say what went well, what it cost and how long it took, by agent, model, day and tool.

    \b
    Examples:
      journeyman traces stats --last 7d
      journeyman traces stats --agent desk --agreement
    """
    from journeyman.cli.actions import traces

    emit(traces.statistics(store, wanted, agreement=agreement, quiet=as_json), as_json=as_json)


@command.command()
@click.argument("trace_id", metavar="[ID]", required=False)
@click.argument("word", metavar="[good|bad|clear]", type=click.Choice(("good", "bad", "clear")), required=False)
@click.option("--who", metavar="NAME", help="Whose word it is.  [default: $JOURNEYMAN_USER, else who is logged in]")
@click.option("--others", is_flag=True, help="The ones, too, that others have labelled and WHO has not: to see if you agree.")
@click.option("--agreement", is_flag=True, help="Say how far the people who labelled agree, and ask nothing.")
@click.option("--telling", is_flag=True, help="Ask first for the labels that an auto-labeler would learn most from.")
@filters
@click.option("--limit", type=click.IntRange(1), default=200, show_default=True, metavar="N", help="Ask about so many at most.")
@_STORE
@json_option
def label(trace_id: str | None, word: str | None, as_json: bool, **given: Any) -> None:
    """Say of traces whether they went well, one key each.

    Without an ID the traces that nobody has labelled are shown one after the other, newest first: y good, n bad, s skip,
    f the whole of it, u undo, q quit. Where there is no terminal, the same letters are read from stdin, a line each. Every word
    is kept at once, with who said it and when; of one person the latest word holds.

    \b
    Examples:
      journeyman traces label --who ada --agent desk
      journeyman traces label 4f2a good
      journeyman traces label --agreement
    """
    from journeyman.cli.actions import traces

    emit(traces.label(trace_id, word, given, quiet=as_json), as_json=as_json)


@command.command()
@click.option(
    "--threshold", type=click.FloatRange(0.5, 1), default=0.9, show_default=True, help="Least probability of being right."
)
@click.option("--embedder", metavar="NAME", default="", help="Look at the words, too: hashing:32, for instance.")
@click.option("--dry-run", is_flag=True, help="Say what would be labelled, and label nothing.")
@_STORE
@json_option
def autolabel(threshold: float, embedder: str, dry_run: bool, store: str | None, as_json: bool) -> int:
    """Learn from people's labels, and label the rest where that is sure enough.

    What it labels says so, still waits for a person's word, and is withdrawn by a later round that does not stand by it. It
    is silent, with exit code 1, until people have labelled 20 good and 20 bad traces of different tasks, and an examination
    shows that it can tell them apart.

    \b
    Examples:
      journeyman traces label --telling
      journeyman traces autolabel --dry-run
    """
    from journeyman.cli.actions import traces

    result = traces.autolabel(store, threshold=threshold, embedder=embedder, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result["silent"] else 0


@command.command()
@click.option("--older-than", metavar="SPAN", required=True, help="What began longer ago: 12h, 30d, 8w.")
@click.option("--keep", type=click.Choice(("labelled",)), help="Spare what a person has labelled.")
@click.option("--dry-run", is_flag=True, help="Say what would go, and let nothing go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_STORE
@json_option
def prune(older_than: str, keep: str | None, store: str | None, as_json: bool, **how: bool) -> None:
    """Forget old traces, with their spans and contents.

    What a run attempted goes with the run: journeyman runs rm.

    \b
    Examples:
      journeyman traces prune --older-than 30d --keep labelled --dry-run
      journeyman traces prune --older-than 30d --keep labelled --yes
    """
    from journeyman.cli.actions import traces

    emit(traces.pruned(store, older_than, keep_labelled=keep is not None, quiet=as_json, **how), as_json=as_json)
