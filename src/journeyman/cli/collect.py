"""`journeyman collect`: bring in what others recorded, or record executions of plans."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import CommandGroup, Own, emit, json_option, options_named


@click.group(cls=CommandGroup, invoke_without_command=True, subcommand_metavar="FILES... | executions [OPTIONS]")
@click.argument("files", cls=Own, nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "format_name", metavar="NAME", help="What the files are.  [default: recognised by what they hold]")
@click.option("--store", metavar="URL", help="Another store than the project's: a file, or postgresql://…")
@click.option("--dry-run", is_flag=True, help="Read and count, and store nothing.")
@click.option("--agent", metavar="NAME", help="Who made the attempts, instead of what the files say.")
@click.option("--domain", metavar="NAME", help="Which domain they belong to, instead of what the files say.")
@click.option("--session", metavar="ID", help="Which session they belong to, instead of what the files say.")
@click.option("--no-content", is_flag=True, help="Keep only shapes and numbers: no prompt, reply, argument or result.")
@json_option
def command(as_json: bool, **given: Any) -> int:
    """Bring in what others recorded, from files and folders of them.

    Formats: journeyman, chat, tau-bench, tau2-bench, swe-agent, mini-swe-agent, langfuse, langsmith, inspect, execution-log,
    openclaw, sharegpt, checkpoint (pickles too: they are read, and never loaded), otlp; gzipped or not. MODULE:CLASS is an
    importer of your own. A format can also stand before the files. Keys and tokens are taken out. The same file twice is the
    same traces. What is broken in a file is named, and what is whole comes in: then the exit code is 1, and 2 when there was
    nothing to bring in.

    \b
    Examples:
      journeyman collect results.json logs/
      journeyman collect otlp spans.jsonl --session 2026-11-05
      journeyman collect export.json --dry-run --json
    """
    from journeyman.cli.actions import collect

    result, code = collect.run(given, quiet=as_json)
    emit(result, as_json=as_json)
    return code


@command.command()
@click.option("--num-executions", type=click.IntRange(1), default=200, show_default=True, help="Instructions to carry out.")
@click.option(
    "--output-dir", type=click.Path(path_type=Path, file_okay=False), default="execution_logs", show_default=True,
    metavar="DIR", help="The folder of the logs. What is in it already is not carried out again.",
)  # fmt: skip
@click.option(
    "--instructions", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Your own: a line each, or JSON lines with instruction.  [default: notes for the embedded desk]",
)  # fmt: skip
@click.option("--models", metavar="A,B", help="Who does the subtasks.  [default: the sizes of the embedded model]")
@click.option(
    "--workers-from", "crew", metavar="MODULE:NAME", help="Your own tools and agents: a mapping from names to workers."
)
@click.option("--planner", metavar="POLICY", help="A learned planner.  [default: the desk's own expert, or one step a line]")
@click.option("--explore", type=click.FloatRange(0, 1), default=0.5, show_default=True, help="Subtasks whose worker is drawn.")
@click.option("--concurrency", type=click.IntRange(1), default=4, show_default=True, help="Subtasks at once.")
@click.option("--max-cost", type=float, metavar="USD", help="Stop cleanly before more than this is spent.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of instructions and of what is drawn.")
@click.option("--dry-run", is_flag=True, help="Show the first instructions and their plans; carry out none.")
@json_option
def executions(as_json: bool, **given: Any) -> None:
    """Carry out instructions of many kinds, and log what became of each step.

    Each line of the log holds the plan, who did which subtask and how likely that was, what it cost and took, and whether it
    was right. `journeyman dataset planner` makes training data of it. Stopped, the same command goes on where it was.

    \b
    Examples:
      journeyman collect executions --num-executions 200 --output-dir execution_logs/
      journeyman collect executions --instructions asked.txt --models openai:gpt-5-nano,openai:gpt-5-mini --max-cost 2
      journeyman collect executions --dry-run
    """
    from journeyman.cli.actions import planning

    with options_named():
        emit(planning.collect_executions(given, quiet=as_json), as_json=as_json)
