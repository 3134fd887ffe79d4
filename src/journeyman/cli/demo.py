"""`journeyman demo`: the whole loop on the embedded model."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import PlaybookScreen, WeightsScreen, pipeline_lines, write
from journeyman.cli.shared import emit, json_option, options_named, shares
from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.release import Stage
from journeyman.stores.urls import mark_demo

if TYPE_CHECKING:
    from journeyman.agents.attempt import Attempt
    from journeyman.experiments.compare import EvaluationReport
    from journeyman.experiments.playbook.training import TrainingResult
    from journeyman.experiments.weights.pipeline import Comparison, MethodResult
    from journeyman.experiments.weights.training import WeightsResult

FOLDER = Path(".journeyman/demo")
INTRODUCTION = """\
The order desk of {domain}: customers write, and {model} turns each sentence into a tool call. It can read, but
nobody has told it the house's conventions. (embedded is a language model of a few million parameters that
ships with this package.) It now tries {examples} tasks, learns from the API's error messages, and is then
examined on {held_out} new ones.
"""
NEXT = """\
What next:
  journeyman demo --live          the same on live traffic: a gateway, customers, a release in steps, a rollback, and pages
  journeyman playbook show {playbook}
  journeyman demo --domain cairo
  journeyman evaluate --playbook {playbook} --dataset desk --domain lima --any-domain    (a placebo)

With a real model and your own questions, JSON with "question" and "answer":
  export OPENAI_API_KEY=...
  journeyman train playbook --dataset custom --input my_dataset.json --model openai:gpt-5-mini --dry-run
or a local one: --model ollama:qwen3:4b"""
WEIGHTS_FOLDER = Path(".journeyman/demo-weights")
WEIGHTS_INTRODUCTION = """\
The order desk of {domain} again: {model} reads customers' sentences, and nobody has told it the house's conventions. This time
nothing is written into its prompts. It attempts orders, the desk says how much of each is right, and GRPO moves its weights
towards what was better (a LoRA adapter). Then it is examined on {held_out} new orders, turned into a GGUF file, and served.
"""
COMPARED = """
The same shop by every method, each against the model as it came. All but GRPO learn from {traces} recorded
attempts of an agent with a half-learned playbook, GRPO from attempts of its own (the training above, without its examination).
"""


@click.command()
@click.option("--domain", default="oslo", show_default=True, help="Which shop of the order desk.")
@click.option("--model", default="embedded", show_default=True, help="embedded, embedded:small, or any other model.")
@click.option("--num-examples", default=100, show_default=True, help="Training tasks.")
@click.option("--held-out", default=200, show_default=True, help="Held-out tasks.")
@click.option("--weights", is_flag=True, help="Learn in the weights: train, prove, export, serve, and compare the methods.")
@click.option(
    "--compare/--no-compare", default=True, show_default=True, help="With --weights: all methods, and forced collapses."
)
@click.option("--live", is_flag=True, help="On live traffic: a gateway, customers, a release in steps, and a rollback.")
@click.option("--port", type=click.IntRange(0, 65_535), default=4100, show_default=True, help="With --live: the gateway's.")
@click.option("--keep", is_flag=True, help="With --live: serve on until Ctrl-C.")
@json_option
def command(weights: bool, compare: bool, live: bool, as_json: bool, **given: Any) -> int:
    """See a small real model fail at a job, learn from its failures, and pass.

    The model ships with the package and needs no key, no GPU and no network. It works at an order desk whose house conventions
    nobody has told it. Everything is written into .journeyman/demo. Exit code 0 when the learned playbook passes the gate.

    \b
    Examples:
      journeyman demo
      journeyman demo --domain cairo --json
      journeyman demo --live
      journeyman demo --weights --no-compare
    """
    port, keep = given.pop("port"), given.pop("keep")
    if (weights and live) or (keep and not live):
        raise InputError("--live is a demo of its own, without --weights; and --keep is an option of it")
    if live:
        from journeyman.cli.demo_live import play

        told = play(FOLDER / "live", given["domain"], given["model"], port=port, keep=keep, out=_out(quiet=as_json))
        emit(told, as_json=as_json)
        return 0 if told["came_true"] else 1
    with options_named():
        if weights:
            result = _learn_in_weights(given["domain"], given["model"], given["held_out"], compare=compare, quiet=as_json)
        else:
            result = _learn_playbook(**given, quiet=as_json)
    emit(result, as_json=as_json)
    return 0 if result["passed"] else 1


def _out(*, quiet: bool) -> Callable[[str], None]:
    """What tells the story on stdout, where there is anybody to hear it."""
    return (lambda _: None) if quiet else write


def _learn_playbook(domain: str, model: str, num_examples: int, held_out: int, *, quiet: bool) -> dict[str, Any]:
    """Train on one shop, evaluate, and tell the story; the object that `--json` prints."""
    from journeyman.experiments.playbook.config import TrainingConfig
    from journeyman.experiments.playbook.training import OfflineTrainer

    started, out = time.monotonic(), _out(quiet=quiet)
    mark_demo(FOLDER)
    trainer = OfflineTrainer(
        TrainingConfig(
            dataset_name="desk",
            domain=domain,
            num_examples=num_examples,
            held_out=held_out,
            generator_model=model,
            target_stage=Stage.PRODUCTION,
            output_playbook_path=str(FOLDER / f"{domain}.json"),
            output_metrics_path=str(FOLDER / f"{domain}.metrics.json"),
            project=str(FOLDER),
            store=str(FOLDER / "journeyman.db"),
        )
    )
    out(INTRODUCTION.format(domain=domain, model=model, examples=num_examples, held_out=held_out))
    opened = trainer.begin()
    with PlaybookScreen(trainer.examples, quiet=quiet) as screen:
        trainer.watcher = screen
        result = trainer.finish(opened)
    report = result.evaluation
    if report is None:
        raise JourneymanError(f"the demo learned nothing: {result.reason}; see {result.metrics_path}")
    seconds = round(time.monotonic() - started, 1)
    _tell_story(out, result, report, seconds)
    promised = ("tasks", "unknown", "baseline", "candidate", "gain", "low", "high", "passed", "reason")
    fields = report.json()
    return {**{name: fields[name] for name in promised}, "bullets": result.playbook_size, "seconds": seconds}


def _tell_story(out: Callable[[str], None], result: "TrainingResult", report: "EvaluationReport", seconds: float) -> None:
    out("\nWhat it learned:")
    for bullet in result.playbook.active:
        out(f"  - {bullet.content}   (shown {bullet.shown}, helpful {bullet.helpful}, harmful {bullet.harmful})")
    turned = _turned(report)
    if turned:
        before, after = turned
        out("\nOne of the held-out tasks:")
        for name, text in (
            ("customer", before.task.question),
            ("without", before.trace.reply),
            ("the API", before.score.evidence.replace("\n", "\n             ")),
            ("with", after.trace.reply),
        ):
            out(f"  {name:>8}   {text}")
    out(f"\nHeld-out tasks, right at the first attempt: {shares(report)}.")
    out(f"{'The gate lets it pass' if report.passed else 'The gate refuses it'}: {report.reason}.")
    out(f"{seconds:.0f} seconds. All of it was measured just now; nothing is scripted.\n")
    out(NEXT.format(playbook=result.playbook_path))


def _turned(report: "EvaluationReport") -> "tuple[Attempt, Attempt] | None":
    """A task that failed without the playbook and passed with it: the one with the most to say."""
    after = {attempt.task.id: attempt for attempt in report.candidate_attempts if attempt.score.total == 1}
    pairs = [(attempt, after[attempt.task.id]) for attempt in report.baseline_attempts if attempt.task.id in after]
    wrong = [(before, now) for before, now in pairs if before.score.total == 0]
    return max(wrong, key=lambda pair: (pair[0].score.evidence.count("\n"), pair[0].task.id), default=None)


def _learn_in_weights(domain: str, model: str, held_out: int, *, compare: bool, quiet: bool) -> dict[str, Any]:
    """Train, prove, export, serve, ask, and compare; the object that `--json` prints."""
    from journeyman.experiments.weights.pipeline import Comparison, TrainingPipeline
    from journeyman.optimizers.weights.config import WeightsTrainingConfig

    started, out = time.monotonic(), _out(quiet=quiet)
    mark_demo(WEIGHTS_FOLDER)
    base = "embedded:base" if model == "embedded" else model
    out(WEIGHTS_INTRODUCTION.format(domain=domain, model=model, held_out=held_out))
    with WeightsScreen(quiet=quiet) as screen:
        watcher = screen.watcher()
        comparison = Comparison(folder=WEIGHTS_FOLDER, domain=domain, base_model=base, held_out=held_out, watcher=watcher)
        config = WeightsTrainingConfig(base_model=base, dataset_name="desk", domain=domain)
        pipeline = TrainingPipeline("", base, "grpo", config=config, settings=comparison.settings, watcher=watcher)
        result = pipeline.run_full_pipeline(deploy_llamacpp=True)
    for line in pipeline_lines(result):
        out(line)
    report = {**result.json(), "seconds": round(time.monotonic() - started, 1)}
    if compare:
        report |= _compared(comparison, result.trained, out)
    out(f"\n{time.monotonic() - started:.0f} seconds. All of it was measured just now; nothing is scripted.")
    return report


def _compared(comparison: "Comparison", grpo: "WeightsResult | None", out: Callable[[str], None]) -> dict[str, Any]:
    from journeyman.experiments.weights.pipeline import TRACES, of_result

    out(COMPARED.format(traces=TRACES))
    methods = _shown(comparison.lines(of_result("GRPO", grpo) if grpo else None), out)
    out("\nTrainings that must go wrong, and what the guards say:\n")
    collapses = _shown(comparison.collapses(), out)
    return {"methods": methods, "collapses": collapses}


def _shown(lines: "Iterable[MethodResult]", out: Callable[[str], None]) -> list[dict[str, Any]]:
    """Each line of the table as soon as it is known."""
    out(f"{'':28}{'right':>8}{'gain':>9}  {'95 % interval':18}{'gate':10}{'CPU':>7}{'wall':>7}")
    results = []
    for line in lines:
        right = "unknown" if line.right is None else f"{line.right:.1%}"
        gain = "" if line.gain is None else f"{line.gain:+.3f}"
        interval = "" if line.low is None else f"{line.low:+.3f} to {line.high:+.3f}"
        gate = "passes" if line.passed else "refused"
        out(f"{line.name:28}{right:>8}{gain:>9}  {interval:18}{gate:10}{line.cpu_seconds:>6.0f}s{line.seconds:>6.0f}s")
        if line.note:
            out(f"    {line.note}")
        results.append(line.json())
    return results
