"""`journeyman evaluate agent`: agents on tasks of repositories, by running what they leave, and on public benchmarks."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import Column, Screen, named_columns, say, table, write
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named, report_lines, resume_option, settled, workers_option
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.experiments.agents_config import KIND, AgentsConfig
from journeyman.io import executors
from journeyman.stores import Store, open_store

if TYPE_CHECKING:
    from journeyman.experiments.agent_evaluation import AgentReport, Bench
    from journeyman.experiments.run import Run


@click.command("agent")
@options(
    AgentsConfig,
    only=(
        *("tasks", "agent", "against", "attempts_per_task", "split", "category", "most"),
        *("generator_model", "playbook", "rounds", "base_url", "agent_package", "timeout", "max_cost", "rewards"),
        *("tool_calls", "mcp", "mcp_variable"),
        *("environments", "sandbox", "jobs", "plugin", "embedder"),
        *("alpha", "min_gain", "min_tasks", "min_clusters", "guardrails"),
    ),
    helps={
        "attempts_per_task": "Attempts at each task, on each side.",
        "generator_model": "The model of the agent journeyman, and {model} of a command.",
        "base_url": "Where models answer; for a command its only server, such as `journeyman serve`.",
        "embedder": "What chooses among the playbook's bullets: hashing, or sentence (an extra).",
    },
)
@resume_option
@workers_option
@json_option
def command(as_json: bool, resume: str | None, workers: str, item_timeout: float | None, **given: Any) -> int:
    """Measure an agent on tasks of repositories, or on a public benchmark: what it leaves is run.

    Of repositories, both agents attempt every task in a sandbox, with the files of its repository and its environment; the
    tests that decide they never see. An agent is journeyman (with --model, and a --playbook), the name of a model, any command,
    or for calibration reference, which leaves what is right, and nothing. A command begins in the repository without a network;
    its model answers at OPENAI_BASE_URL. In it, {workspace} is the folder, {task} what is asked, {task_file} a file of that.

    --tasks humaneval, mbpp or bfcl, or one of their files, asks a model once for each task: programs are run against tests that
    they cannot reach, function calls compared as the leaderboard does. JOURNEYMAN_DATA names the folder of the files. Exit
    code 0: it passed, 1: it did not, or the money was spent, 2: something could not be used.

    \b
    Examples:
      journeyman evaluate agent --tasks tasks.jsonl --agent reference
      journeyman evaluate agent --tasks tasks.jsonl --agent openai:gpt-5-mini --against openai:gpt-5-nano --max-cost 2
      journeyman evaluate agent --tasks tasks.jsonl --agent journeyman --model embedded --playbook mine.json --against embedded
      journeyman evaluate agent --tasks tasks.jsonl --agent gpt-5-mini --against gpt-5-nano --mcp 'python -m our_docs_server'
      journeyman evaluate agent --tasks tasks.jsonl --agent cmd:my_agent --agent-package my-agent --base-url http://h:4000/v1
      journeyman evaluate agent --tasks tasks.jsonl --agent reference --workers local:4
      journeyman evaluate agent --tasks humaneval --agent openai:gpt-5-mini --against openai:gpt-5-nano
      journeyman evaluate agent --tasks BFCL_v4_simple_python.json --agent journeyman --model gpt-5-mini --playbook mine.json
      journeyman evaluate agent --resume
    """
    with options_named(), executors.spread(workers, item_timeout) as spread:
        found = evaluate(provided(given), resume=resume, spread=spread, quiet=as_json)
    emit(found, as_json=as_json)
    return 0 if found["passed"] else 1


def evaluate(
    given: Mapping[str, Any], *, resume: str | None = None, spread: executors.Spread | None = None, quiet: bool = False
) -> dict[str, Any]:
    """Evaluate, or go on; the object that `--json` prints. The table goes to stdout, words to stderr."""
    from journeyman.experiments.agent_evaluation import begun, reopened
    from journeyman.experiments.benchmarks import check_options, is_benchmark, located

    if resume is not None and (strange := sorted(set(given) - {"max_cost"})):
        raise InputError(
            f"--resume goes on under the settings of its run; of the other options only --max-cost may be given, and not "
            f"--{strange[0].replace('_', '-')}"
        )
    config = settled(AgentsConfig, given)
    config = replace(config, tasks=located(config.tasks))
    if resume is None and is_benchmark(config.tasks):
        check_options(given, config.tasks)
    with open_store(config.store) as store:
        if resume is None:
            bench = bench_of(config, store)
            run = begun(config, store)
        else:
            config, run = reopened(store, resume, config)
            bench = bench_of(config, store)
        if spread is not None and config.max_cost is not None:
            raise InputError("what is spent is counted in one process: --max-cost is for --workers here")
        report = _run(bench, run, spread, quiet=quiet)
    if isinstance(report, str):
        return {"run": run.id, "passed": False, "finished": False, "reason": report}
    if not quiet:
        _show(report)
    return {"run": run.id, "finished": True, **report.json()}


def bench_of(config: AgentsConfig, store: Store) -> "Bench":
    """Of repositories, or of a benchmark: the file tells which."""
    from journeyman.experiments.benchmarks import QuestionBench, is_benchmark
    from journeyman.experiments.repository_agents import RepositoryBench

    return (QuestionBench if is_benchmark(config.tasks) else RepositoryBench)(config, store, said=say)


def _run(bench: "Bench", run: "Run", spread: executors.Spread | None, *, quiet: bool) -> "AgentReport | str":
    """The report; or why it was stopped before there was one."""
    from journeyman.experiments.agent_evaluation import BenchEvaluation, EvaluationStopped

    config, again = bench.config, f"go on with: journeyman {KIND} --resume {run.id}"
    with Screen("attempts", quiet=quiet) as screen, run.tracked():
        screen.say(f"run {run.id}: {counted(len(bench.tasks), 'task')}, {config.agent} against {config.against}")
        evaluation = BenchEvaluation(
            bench=bench, run=run, spread=spread, done=lambda done, of: screen.evaluated(done, of, "attempts at tasks")
        )
        try:
            report = asyncio.run(evaluation.evaluate())
        except EvaluationStopped as stopped:
            run.end({"reason": str(stopped)}, finished=False)
            say(f"stopped: {stopped}", f"{again} --max-cost <more, or inf>")
            return str(stopped)
        except KeyboardInterrupt:
            say(f"interrupted; {again}")
            raise
        run.end({"reason": report.reason, "passed": report.passed})
    return report


def _show(report: "AgentReport") -> None:
    """By category, and the gate's word on all of it."""
    rows = [
        (
            each["category"],
            str(each["tasks"]),
            str(each["clusters"] or "-"),
            _share(each["baseline"]),
            _share(each["candidate"]),
            "-" if each["gain"] is None else f"{each['gain']:+.3f}",
            "-" if each["low"] is None else f"{each['low']:+.3f} to {each['high']:+.3f}",
            str(each["unknown"]),
            _cost(each["cost"]["candidate"]),
        )
        for each in report.categories
    ]
    names = ("tasks", "clusters", "baseline", "candidate", "gain", "95 % interval", "unknown", "cost")
    spare = {"clusters": 2, "cost": 1}
    table([Column(name="category", words=True), *(Column(name=name, spare=spare.get(name, 0)) for name in names)], rows)
    if report.development:
        _show_development(report.development)
    write(*report_lines(report.report))


def _show_development(found: Mapping[str, Any]) -> None:
    parts = list(dict.fromkeys(name for side in found.values() for name in side))
    rows = [(name, *(_share(found[side].get(name, {}).get("mean")) for side in ("baseline", "candidate"))) for name in parts]
    table(named_columns("development", "baseline", "candidate"), rows)


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _cost(value: float | None) -> str:
    return "unknown" if value is None else f"${value:.4f}"
