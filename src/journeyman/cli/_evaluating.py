"""The work behind `journeyman evaluate`, apart from its options."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from journeyman import app, embed
from journeyman.cli._screen import Screen
from journeyman.cli._shared import console
from journeyman.cli._training import configured, warn_of_few
from journeyman.errors import InputError
from journeyman.examination import Report, result_lines, results
from journeyman.experiments.agents import AgentEvaluation
from journeyman.experiments.evaluator import HeldOutEvaluator, untrained
from journeyman.learn.playbook import files
from journeyman.playbook import Playbook
from journeyman.stores import open_store
from journeyman.task import Split
from journeyman.tasks.base import Dataset
from journeyman.training import TrainingConfig
from journeyman.weights.keeping import read_trained_on

NONE = "none"
_FILES = ("baseline.jsonl", "candidate.jsonl")
"""Each side's results."""


def run(options: Mapping[str, Any], *, quiet: bool) -> Report:
    """Examine a playbook; what is said on the way goes to stderr, the table to stdout."""
    options = dict(options)
    playbook, against = _load(options.pop("playbook")), _load(options.pop("against"))
    output, rival, anywhere = (options.pop(name, None) for name in ("output", "baseline_model", "any_domain"))
    config = configured(options)
    for name in _FILES if output else ():
        files.check_writable(Path(output) / name)
    if "sandbox" in options and config.dataset_name not in app.PROGRAMMING:
        raise InputError(f"no program of {config.dataset_name} is run: leave out --sandbox, or name humaneval or mbpp")
    dataset = app.load_dataset(config)
    app.try_walls(dataset)
    if anywhere:
        playbook, against = _anywhere(dataset, playbook), _anywhere(dataset, against)
    for name, side in (("--playbook", playbook), ("--against", against)):
        _warn(name, side, dataset)
    report = asyncio.run(_examine(config, dataset, playbook, against, rival or "", quiet=quiet))
    if output:
        _write(report, Path(output))
    if not quiet:
        tell(report)
    return report


async def _examine(
    config: TrainingConfig, dataset: Dataset, playbook: Playbook, against: Playbook, rival: str, *, quiet: bool
) -> Report:
    examined = replace(dataset, tasks=dataset.split(Split.HELD_OUT)[: config.held_out])
    if not examined.tasks:
        raise InputError(
            f"the data set {config.dataset_name!r} has no held-out tasks to examine on; name some: --held-out-input"
        )
    name = config.models[0]
    trained_on = frozenset[str]().union(*(_trained_on(each) for each in (name, rival)))
    clean, _ = untrained(examined.tasks, playbook.trained_on | against.trained_on | trained_on)
    warn_of_few(len(clean), config.least_tasks)
    models = [
        app.connect(n, concurrency=config.concurrency, base_url=config.base_url, key_env=config.key_env)
        for n in ([name, rival] if rival else [name])
    ]
    try:
        with open_store(config.store) as store, Screen(2 * config.trials * len(clean), quiet=quiet) as screen:
            evaluation = AgentEvaluation(
                evaluator=HeldOutEvaluator(store=store),
                model=models[0],
                rival=models[1] if rival else None,
                dataset=examined,
                embedder=embed.load(config.embedder),
                gate=config.gate,
                trials=config.trials,
                token_budget=config.token_budget,
                trained_on=trained_on,
            )
            return await evaluation.evaluate(playbook, against, id="evaluate", done=screen.evaluated)
    finally:
        for model in models:
            await model.close()


def _trained_on(model: str) -> frozenset[str]:
    """What the adapter was trained on that a model's name holds behind a plus."""
    _, _, adapter = model.rpartition("+")
    return read_trained_on(Path(adapter)) if adapter != model and adapter else frozenset()


def _load(name: str) -> Playbook:
    return Playbook() if name == NONE else files.load(name)


def _anywhere(dataset: Dataset, playbook: Playbook) -> Playbook:
    """The playbook with all bullets in the domain of the tasks, which must have one alone."""
    domains = {task.domain for task in dataset.split(Split.HELD_OUT)}
    if len(domains) != 1:
        raise InputError(f"--any-domain needs tasks of one domain, and these have {len(domains)}; name one with --domain")
    (domain,) = domains
    return replace(playbook, bullets=tuple(replace(bullet, domain=domain) for bullet in playbook.bullets))


def _warn(name: str, playbook: Playbook, dataset: Dataset) -> None:
    """Say so when none of a playbook's bullets can be shown: bullets are shown to tasks of their own domain."""
    domains = {task.domain for task in dataset.split(Split.HELD_OUT)}
    bullets = playbook.active
    if bullets and not any(bullet.domain in domains for bullet in bullets):
        here, there = (", ".join(sorted(found)) for found in (domains, {bullet.domain for bullet in bullets}))
        console().print(
            f"{name}: its {len(bullets)} bullets are of domain {there} and the tasks of {here}, so none is shown; "
            "--any-domain shows them",
            markup=False,
            soft_wrap=True,
        )


def _write(report: Report, folder: Path) -> None:
    """Each side's results, as `journeyman compare` reads them."""
    for name, attempts in zip(_FILES, (report.baseline_attempts, report.candidate_attempts), strict=True):
        files.write_text(folder / name, "".join(f"{line}\n" for line in result_lines(results(attempts))))


def tell(report: Report) -> None:
    """The report, for people."""
    out = Console(highlight=False, soft_wrap=True, markup=False)
    table = Table("", "baseline", "candidate")
    for name, was, now in _rows(report):
        table.add_row(name, was, now)
    out.print(table)
    out.print(f"{'passed' if report.passed else 'not passed'}: {report.reason}")


def _rows(report: Report) -> list[tuple[str, str, str]]:
    before, after = report.evaluation.spent_baseline, report.evaluation.spent_candidate
    tokens = [
        "unknown" if t.input_tokens is None or t.output_tokens is None else f"{t.input_tokens:,} in, {t.output_tokens:,} out"
        for t in (before, after)
    ]
    costs = ["unknown" if t.cost is None else f"${t.cost:.4f}" for t in (before, after)]
    shares = ["unknown" if share is None else f"{share:.1%}" for share in (report.baseline, report.candidate)]
    return [("right", shares[0], shares[1]), ("tokens", tokens[0], tokens[1]), ("cost", costs[0], costs[1])]
