"""`journeyman evaluate`: does a playbook help? And below it the same of what else is learned."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.options import options, provided
from journeyman.cli.route import evaluate as router
from journeyman.cli.shared import emit, json_option, options_named
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.settings import GateSettings

# The options of `journeyman evaluate planner`.


@click.command("planner")
@click.option("--planner", default="checkpoints", show_default=True, metavar="POLICY", help="A file, a folder, or an id.")
@click.option("--against", metavar="POLICY", help="Another planner.  [default: the nearest past plan, or the desk's expert]")
@click.option(
    "--data",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Compare with the plans of this file, as `journeyman dataset planner` writes them; carry out none.",
)
@click.option("--held-out", type=click.IntRange(1), default=100, show_default=True, help="Instructions to carry out.")
@click.option("--success-value", metavar="USD,SECONDS", help="What one more success is worth to you, in money and in time.")
@options(GateSettings)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the instructions.")
@json_option
def planner(as_json: bool, **given: Any) -> int:
    """Measure a planner: by plans that are known to be right, or by what its own plans bring.

    With --data node-F1, edge-F1 and exact matches, against a copy of the nearest plan that it learned from. Without, held-out
    notes of the embedded desk are planned by both, carried out for real and judged; success, cost and time are one utility.
    Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate planner --planner checkpoints/phase2_best
      journeyman evaluate planner --planner checkpoints/phase2_best --against checkpoints/phase1_best --held-out 200
      journeyman evaluate planner --planner checkpoints/phase1_best --data other_plans.json
    """
    from journeyman.cli.actions import evaluate

    with options_named():
        result = evaluate.run_planner(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1


# The options of `journeyman evaluate decisions`.


@click.command("decisions")
@click.option(
    "--log", type=click.Path(path_type=Path, dir_okay=False, exists=True), required=True, help="The log of decisions."
)
@click.option("--policy", metavar="DIR|ID", help="The router that would have chosen: its folder, or its id.")
@click.option("--always", metavar="WORKER", help="Or one worker that would always have been chosen.")
@click.option("--objective", metavar="WORDS", help='With --always: what is wanted.  [default: "quality"]')
@click.option("--explain-reward", is_flag=True, help="Also show what cost, latency and success each weigh on this log.")
@json_option
def decisions(as_json: bool, **given: Any) -> int:
    """Ask a log of decisions what another policy would have brought.

    Inverse propensity scores, the same self-normalised, a model of outcomes, and both together (doubly robust), each with its
    95 % interval, beside what was really brought. Refused where the log cannot tell: decisions must have been explored. Exit
    code 0: better, even at the low end of the interval; 1: not, or refused.

    \b
    Examples:
      journeyman evaluate decisions --log decisions.jsonl --policy routers/new
      journeyman evaluate decisions --log decisions.jsonl --always openai:gpt-5-mini --explain-reward
    """
    from journeyman.cli.actions import evaluate

    result = evaluate.run_decisions(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["better"] else 1


@click.group(invoke_without_command=True)
@click.option("--playbook", default="none", show_default=True, metavar="FILE", help="The playbook to examine.")
@click.option("--against", default="none", show_default=True, metavar="FILE", help="The playbook it must beat.")
@options(
    TrainingConfig,
    only=("dataset_name", "input_path", "held_out_path", "domain"),
    helps={"input_path": "The data set's file.", "domain": "Only tasks of this domain; for the desk, the shop."},
)
@click.option(
    "--split",
    type=click.Choice(["held_out", "held-out", "test"]),
    default="held_out",
    metavar="[held_out|test]",
    show_default=True,
    help="What is examined.",
)
@options(
    TrainingConfig,
    only=("held_out", "attempts_per_task", "generator_model"),
    names={"held_out": ("--num-examples", "--held-out")},
    helps={"generator_model": "Who attempts the tasks, such as openai:gpt-5-mini."},
)
@click.option("--baseline-model", metavar="MODEL", help="Another model for the side of --against.")
@click.option("--any-domain", is_flag=True, default=None, help="Show bullets of every domain: for placebos and transfer.")
@options(
    TrainingConfig,
    only=("base_url", "sandbox", "concurrency", "token_budget", "embedder", "alpha", "min_gain", "min_tasks", "seed"),
    helps={"seed": "Of the desk's tasks. No split hangs on it."},
)
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
    from journeyman.cli.actions import evaluate

    given.pop("split")
    with options_named():
        report = evaluate.run(provided(given), quiet=as_json)
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
