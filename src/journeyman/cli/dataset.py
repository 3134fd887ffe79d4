"""`journeyman dataset`: sets of rows to train weights or planners on."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option
from journeyman.cli.traces import filters

_FILE = click.Path(path_type=Path, dir_okay=False)
_STORE = click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")


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
@click.option("--threshold", type=float, default=0.5, show_default=True, help="Mean reward from which an attempt is good.")
@click.option("--auto-labels", is_flag=True, help="Take the auto-labeler's word where there is no other.")
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
@_STORE
@json_option
def build(as_json: bool, **given: Any) -> None:
    """Make a set of rows from recorded attempts, with a datasheet beside it.

    A completion is good in a person's word, else where the mean reward of its trace reaches the threshold; what nobody knows
    is left out and counted, and so is every attempt at a held-out task. For grpo the attempts at one task, or else with one
    prompt, are compared. The same traces give the same bytes.

    \b
    Examples:
      journeyman dataset build --method kto --out kto.jsonl --agent desk --last 7d
      journeyman dataset build --method grpo --out grpo.parquet --from-traces results.json.gz
      journeyman dataset build --method kto --out kto.jsonl --context drop --balance undersample --dry-run
    """
    from journeyman.cli.actions import dataset

    emit(dataset.build(given, quiet=as_json), as_json=as_json)


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
    from journeyman.cli.actions import dataset

    emit(dataset.show(file, limit=limit, full=full, quiet=as_json), as_json=as_json)


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
    from journeyman.cli.actions import dataset

    result = dataset.check(file, quiet=as_json)
    emit(result, as_json=as_json)
    return 1 if result["faults"] else 0


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
    from journeyman.cli.actions import dataset

    emit(dataset.run(given, quiet=as_json), as_json=as_json)
