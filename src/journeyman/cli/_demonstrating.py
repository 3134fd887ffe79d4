"""The work behind `journeyman demo`: what it runs, and the story it tells."""

import time
from pathlib import Path
from typing import Any

from rich.console import Console

from journeyman.cli._screen import Screen
from journeyman.cli._training import shares
from journeyman.errors import JourneymanError
from journeyman.examination import Report
from journeyman.offline import OfflineTrainer
from journeyman.release import Stage
from journeyman.rollout import Attempt
from journeyman.training import TrainingConfig, TrainingResult

FOLDER = Path(".journeyman/demo")
INTRODUCTION = """\
The order desk of {domain}: customers write, and {model} turns each sentence into a tool call. It can read, but
nobody has told it the house's conventions. (embedded is a language model of a few million parameters that
ships with this package.) It now tries {examples} tasks, learns from the API's error messages, and is then
examined on {held_out} new ones.
"""
NEXT = """\
What next:
  journeyman playbook show {playbook}
  journeyman demo --domain cairo
  journeyman evaluate --playbook {playbook} --dataset desk --domain lima --any-domain    (a placebo)

With a real model and your own questions, JSON with "question" and "answer":
  export OPENAI_API_KEY=...
  journeyman train playbook --dataset custom --input my_dataset.json --model openai:gpt-5-mini --dry-run
or a local one: --model ollama:qwen3:4b"""


def run(domain: str, model: str, num_examples: int, held_out: int, *, quiet: bool) -> dict[str, Any]:
    """Train on one shop, evaluate, and tell the story; the object that `--json` prints."""
    started = time.monotonic()
    console = Console(highlight=False, soft_wrap=True, quiet=quiet)
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
    console.print(INTRODUCTION.format(domain=domain, model=model, examples=num_examples, held_out=held_out))
    opened = trainer.begin()
    with Screen(trainer.examples, quiet=quiet) as screen:
        trainer.watcher = screen
        result = trainer.finish(opened)
    report = result.evaluation
    if report is None:
        raise JourneymanError(f"the demo learned nothing: {result.reason}; see {result.metrics_path}")
    seconds = round(time.monotonic() - started, 1)
    _tell(console, result, report, seconds)
    promised = ("tasks", "unknown", "baseline", "candidate", "gain", "low", "high", "passed", "reason")
    found = report.json()
    return {**{name: found[name] for name in promised}, "bullets": result.playbook_size, "seconds": seconds}


def _tell(console: Console, result: TrainingResult, report: Report, seconds: float) -> None:
    console.print("\nWhat it learned:")
    for bullet in result.playbook.active:
        console.print(
            f"  - {bullet.content}   (shown {bullet.shown}, helpful {bullet.helpful}, harmful {bullet.harmful})", markup=False
        )
    turned = _turned(report)
    if turned:
        before, after = turned
        console.print("\nOne of the held-out tasks:")
        for name, text in (
            ("customer", before.task.question),
            ("without", before.trace.reply),
            ("the API", before.score.evidence.replace("\n", "\n             ")),
            ("with", after.trace.reply),
        ):
            console.print(f"  {name:>8}   {text}", markup=False)
    console.print(f"\nHeld-out tasks, right at the first attempt: {shares(report)}.")
    console.print(f"{'The gate lets it pass' if report.passed else 'The gate refuses it'}: {report.reason}.")
    console.print(f"{seconds:.0f} seconds. All of it was measured just now; nothing is scripted.\n")
    console.print(NEXT.format(playbook=result.playbook_path), markup=False)


def _turned(report: Report) -> tuple[Attempt, Attempt] | None:
    """A task that failed without the playbook and passed with it: the one with the most to say."""
    after = {attempt.task.id: attempt for attempt in report.candidate_attempts if attempt.score.total == 1}
    pairs = [(attempt, after[attempt.task.id]) for attempt in report.baseline_attempts if attempt.task.id in after]
    wrong = [(before, now) for before, now in pairs if before.score.total == 0]
    return max(wrong, key=lambda pair: (pair[0].score.evidence.count("\n"), pair[0].task.id), default=None)
