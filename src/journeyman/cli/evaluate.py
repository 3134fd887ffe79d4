"""`journeyman evaluate`: does a playbook help? And below it the same of what else is learned."""

from typing import Any

import click

from journeyman.cli._evaluate_decisions import decisions
from journeyman.cli._evaluate_planner import planner
from journeyman.cli._evaluate_router import router
from journeyman.cli._shared import emit, json_option, options_named


@click.group(invoke_without_command=True)
@click.option("--playbook", default="none", show_default=True, metavar="FILE", help="The playbook to examine.")
@click.option("--against", default="none", show_default=True, metavar="FILE", help="The playbook it must beat.")
@click.option("--dataset", "dataset_name", default="gsm8k", show_default=True, help="gsm8k, custom, humaneval, mbpp or desk.")
@click.option("--input", "input_path", metavar="FILE", help="The data set's file.")
@click.option("--held-out-input", "held_out_path", metavar="FILE", help="Held-out tasks; else some are set apart from --input.")
@click.option("--domain", help="Only tasks of this domain; for the desk, the shop.")
@click.option(
    "--split",
    type=click.Choice(["held_out", "held-out", "test"]),
    default="held_out",
    show_default=True,
    help="What is examined.",
)
@click.option("--num-examples", "held_out", type=int, help="Held-out tasks, at most.  [default: 200]")
@click.option("--model", "--generator-model", "generator_model", metavar="MODEL", help="Such as openai:gpt-5-mini.")
@click.option("--baseline-model", metavar="MODEL", help="Another model for the side of --against.")
@click.option("--any-domain", is_flag=True, default=None, help="Show bullets of every domain: for placebos and transfer.")
@click.option("--base-url", metavar="URL", help="Another server for the models.")
@click.option(
    "--sandbox", metavar="NAME|URL", help="Where programs of humaneval or mbpp run.  [default: the strongest there is]"
)
@click.option("--attempts-per-task", "trials", type=int, help="Attempts at each task.  [default: 1]")
@click.option("--concurrency", type=int, help="Calls at once.  [default: 10]")
@click.option("--token-budget", type=int, help="Tokens of bullets in a prompt.  [default: 2000]")
@click.option("--min-gain", "least_gain", type=float, help="The gain that the interval's low end must exceed.  [default: 0]")
@click.option("--alpha", type=float, help="Chance of passing what is no better.  [default: 0.05]")
@click.option("--seed", type=int, help="Of the desk's tasks. No split hangs on it.  [default: 0]")
@click.option(
    "--output", type=click.Path(), metavar="DIR", help="Write baseline.jsonl and candidate.jsonl for `journeyman compare`."
)
@json_option
@click.pass_context
def command(context: click.Context, /, as_json: bool, **given: Any) -> int:
    """Measure on held-out tasks whether a playbook helps.

    Runs the agent with both playbooks over the same held-out tasks and reports the gain with its 95 % interval. Exit code 0: it
    passed, 1: it did not, 2: something could not be used. Every look at the same tasks is counted, also at a part of them, and
    makes the next harder to pass.

    \b
    Examples:
      journeyman evaluate --playbook playbooks/oslo.json --dataset desk --domain oslo
      journeyman evaluate --playbook new.json --against old.json --dataset gsm8k --input test.jsonl --model openai:gpt-5-mini
      journeyman evaluate --dataset gsm8k --input test.jsonl --model recorded:b.jsonl --baseline-model recorded:a.jsonl
      journeyman evaluate router --outcomes outcomes.jsonl
    """
    if context.invoked_subcommand is not None:
        return _refuse(context)
    from journeyman.cli import _evaluating

    given.pop("split")
    options = {name: value for name, value in given.items() if value is not None}
    with options_named():
        report = _evaluating.run(options, quiet=as_json)
    emit(report.json(), as_json=as_json)
    return 0 if report.passed else 1


def _refuse(context: click.Context) -> int:
    """Options of a playbook's evaluation, said before the name of another, would be lost without a word."""
    for each in context.command.params:
        if each.name and context.get_parameter_source(each.name) is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{each.opts[0]} stands before {context.invoked_subcommand!r}; say the options behind it")
    return 0


command.add_command(planner)
command.add_command(router)
command.add_command(decisions)
