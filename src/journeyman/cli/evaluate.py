"""`journeyman evaluate`: does a playbook help? And below it the same of what else is learned."""

from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import emit, json_option, options_named
from journeyman.cli.train import OUTPUT

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
@click.option(
    "--success-value", "pay", metavar="USD,SECONDS", help="What one more success is worth to you, in money and in time."
)
@click.option(
    "--min-gain", "least_gain", type=float, default=0.0, show_default=True, help="What the interval's low end must exceed."
)
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

    result = evaluate.run_planner(given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1


# The options of `journeyman evaluate router`.

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.command("router")
@click.option("--policy", default=str(OUTPUT), show_default=True, metavar="DIR|ID", help="The router: its folder, or its id.")
@click.option("--outcomes", type=_FILE, multiple=True, required=True, metavar="FILE", help="What became of requests.")
@click.option("--all", "everything", is_flag=True, help="Use all of the file: nothing in it was learned from.")
@click.option("--prices", type=_FILE, metavar="FILE", help="US dollars for a million tokens, by model.  [default: list prices]")
@click.option(
    "--assume-output-tokens",
    type=click.IntRange(1),
    metavar="N",
    help="How long answers are whose length was not recorded.",
)
@click.option("--skip-unusable", is_flag=True, help="Leave lines out that cannot be used.")
@click.option(
    "--min-gain", "least_gain", type=float, help="Successes a request that the interval's low end must exceed.  [default: 0]"
)
@json_option
def router(as_json: bool, **given: Any) -> int:
    """Measure a router on requests that it has not learned from.

    Accuracy, cost and utility beside every single model, chance and an oracle, with 95 % intervals; how true its
    probabilities are; and whether it is better than the best single model. Without --all only the held-out part of the file is
    used, found by the split of the training. Exit code 0: it is better, 1: it is not. Every look is counted.

    \b
    Examples:
      journeyman evaluate router --outcomes outcomes.jsonl
      journeyman evaluate router --policy routers/trained --outcomes next_month.jsonl --all --json
    """
    from journeyman.cli.actions import routing

    result = routing.evaluate(given, quiet=as_json)
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
    from journeyman.cli.actions import evaluate

    given.pop("split")
    options = {name: value for name, value in given.items() if value is not None}
    with options_named():
        report = evaluate.run(options, quiet=as_json)
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
