"""The work behind `journeyman train playbook --scenarios`, `--examples` and `--interactive`."""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from journeyman import models
from journeyman.agents.attempt import Attempt
from journeyman.cli.actions import train_playbook
from journeyman.cli.actions.train_playbook import unused
from journeyman.core.errors import InputError
from journeyman.core.playbook import Playbook
from journeyman.experiments import settings as config
from journeyman.experiments import wiring
from journeyman.experiments.playbook.config import SCENARIOS, SKILLBOOK, ScenarioConfig
from journeyman.experiments.playbook.scenarios import Results, Row, ScenarioTrainer
from journeyman.experiments.playbook.training import TrainingResult
from journeyman.experiments.wiring import PROGRAMMING
from journeyman.io.atomic import write_json, write_text
from journeyman.io.files import check_writable
from journeyman.optimizers.playbook.run import PlaybookRun, Progress, newest_unfinished
from journeyman.tasks.scenarios import Notice, Scenario, builtin, load, read

# What a run on scenarios shows: each attempt as it goes on stderr, the summary at the end on stdout.

_EVERY = 10
"""Scenarios between two counts of what was learned."""
_QUARTERS = 4


class ScenarioScreen:
    """Watches a run. Implements `scenarios.ScenarioWatcher`."""

    def __init__(self, trainer: ScenarioTrainer, out: Console) -> None:
        self._trainer = trainer
        self._out = out
        self._together = trainer.config.batch_size * trainer.config.attempts > 1
        """Then attempts end in any order, and each is told of as a whole when it ends."""
        self._counted = 0
        self._quarter = 0

    def begin(self, run: PlaybookRun) -> None:
        config = self._trainer.config
        self._out.print(f"Starting training with {self._trainer.planned} scenarios ({', '.join(dict.fromkeys(config.models))})")
        self._out.print(f"Initial skills: {len(run.playbook.active)}\n")
        self._counted = run.progress.attempts.attempts // _EVERY

    def started(self, scenario: Scenario) -> None:
        if not self._together:
            done = len(self._trainer.results.rows) if self._trainer.results else 0
            self._head(min(done + 1, self._trainer.planned), scenario.name, scenario.goal, scenario.category)

    def attempted(self, attempt: Attempt) -> None:
        pass

    def scored(self, row: Row, done: int) -> None:
        if self._together:
            self._head(done, row["scenario"]["name"], row["scenario"]["goal"], row["scenario"]["category"])
        score, cost = row["metadata"]["performance_score"], row["metadata"]["cost_usd"]
        self._say(f"   {_ended(row)}")
        self._say(f"   Score: {'unknown' if score is None else f'{score:.2f}'}")
        self._say(f"   Cost: {money(cost)}\n")

    def merged(self, playbook: Playbook, progress: Progress, tasks: int) -> None:
        if tasks // _EVERY > self._counted:
            self._counted = tasks // _EVERY
            self._say(f"Skills learned: {len(playbook.active)}\n")

    def evaluated(self, done: int, total: int) -> None:
        if _QUARTERS * done // total > self._quarter:
            self._quarter = _QUARTERS * done // total
            self._say(f"{done}/{total} attempts at held-out scenarios")

    def _head(self, number: int, name: str, goal: str, category: str) -> None:
        self._say(f"[{number}/{self._trainer.planned}]")
        self._say(f"Running: {name}")
        self._say(f"   Goal: {_short(goal)}")
        self._say(f"   Category: {category}")

    def _say(self, text: str) -> None:
        self._out.print(text)


def tell(result: TrainingResult, results: Results, journal: Path) -> None:
    """The end of a run, in words."""
    out = Console(highlight=False, soft_wrap=True, markup=False)
    for line in (*_summary(results.json(), result.metrics.progress.unusable), f"Results saved to: {results.path}"):
        out.print(line)
    out.print(f"Skillbook: {result.playbook_path} ({result.stage.value}); {result.reason}")
    out.print(f"Every change is in its journal: journeyman playbook log {shlex.quote(str(journal))}")
    if not result.finished:
        out.print(f"Go on with: journeyman train playbook --resume {result.run_id} --max-cost <more, or inf>")


def _summary(found: dict[str, Any], unusable: int) -> list[str]:
    total, skills = found["total_scenarios"], found["skills"]
    tokens = found["total_tokens"]
    optional = {
        "unverified": "Not verified: {} (no checks: read, not run)",
        "unknown": "Unknown: {} (broke off, or could not be checked)",
    }
    return [
        f"Final skills: {skills['final']}",
        f"Skills gained: {skills['final'] - skills['initial']}",
        *unused(unusable),
        "",
        "=" * 60,
        "TRAINING SUMMARY",
        "=" * 60,
        f"Total scenarios: {total}",
        f"Successful: {found['successful']} ({_share(found['successful'], total)})",
        f"Failed: {found['failed']} ({_share(found['failed'], total)})",
        *(text.format(found[name]) for name, text in optional.items() if found[name]),
        "",
        "By Category:",
        *(
            f"  {name}: {of['successful']}/{of['total']} ({_share(of['successful'], of['total'])})"
            for name, of in found["by_category"].items()
        ),
        "",
        f"Total Cost: {money(found['total_cost_usd'])}",
        f"Total Tokens: {'unknown' if tokens is None else f'{tokens:,}'}",
        f"Avg Cost/Scenario: {money(found['avg_cost_usd'])}",
        "",
    ]


def money(cost: float | None) -> str:
    """US dollars, or that nobody knows."""
    return "unknown" if cost is None else f"${cost:.4f}"


def _ended(row: Row) -> str:
    why = _short(str(row["evidence"]).partition("\n")[0])
    if row["success"] is None:
        return f"{'Unknown' if row['scored_by'] == 'checks' else 'Not verified'}: {why}"
    return "Success" if row["success"] else f"Failed: {why}"


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:157]}..."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


# Scenarios typed in. Every answer is on the disk before the next question, so that an interruption loses none.

DONE = "done"
_DRAFT = "interactive.json"
_CATEGORIES = "micro_saas, automation, ai_agent, custom"


def enter(project: Path) -> Path:
    """Ask for scenarios until "done"; the file that they are in.

    Raises:
        InputError: None was typed in, or there is no place to keep it; that is said before anything is asked.
    """
    draft, path = project / _DRAFT, Path("scenarios") / f"interactive_{wiring.now():%Y%m%d_%H%M%S}.json"
    for file in (draft, path):
        check_writable(file)
    scenarios, begun = _kept_interactive(draft)

    def keep() -> None:
        write_json(draft, {"scenarios": scenarios, "begun": begun})

    _say(f"Type {DONE} as a name when all scenarios are entered. Every answer is kept in {draft} at once.")
    while _entered(scenarios, begun, keep):
        scenarios.append(dict(begun))
        begun.clear()
        keep()
    if not scenarios:
        draft.unlink(missing_ok=True)
        raise InputError("no scenario was entered; there is nothing to train on")
    write_json(path, {"scenarios": scenarios})
    load(path)
    draft.unlink(missing_ok=True)
    _say(f"{len(scenarios)} in {path}. There you can give them checks, and train on them again with --scenarios.")
    return path


def _kept_interactive(draft: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What an interrupted session had entered, if it is wanted: whole scenarios, and the answers to one that was begun."""
    try:
        found = json.loads(draft.read_text(encoding="utf-8"))
        scenarios, begun = list(found["scenarios"]), dict(found["begun"])
    except FileNotFoundError:
        return [], {}
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{draft} is not what was written; mend it, or delete it to begin anew") from None
    names = ", ".join(entry["name"] for entry in [*scenarios, begun] if "name" in entry)
    wanted = names and click.confirm(f"Entered before: {names}. Go on with that?", default=True, err=True)
    return (scenarios, begun) if wanted else ([], {})


def _entered(scenarios: list[dict[str, Any]], begun: dict[str, Any], keep: Callable[[], None]) -> bool:
    """Ask for what is missing of one scenario; whether there was one."""
    if "name" not in begun:
        taken = {entry["name"].casefold() for entry in scenarios}
        name = _ask("Scenario name", lambda text: text and text.casefold() not in taken, "give it a name that none has yet")
        if name.casefold() == DONE:
            return False
        begun["name"] = name
        keep()
    if "goal" not in begun:
        begun["goal"] = _ask("Goal", bool, "say what is to be built")
        keep()
    wanted = begun.setdefault("requirements", [])
    while "category" not in begun:
        text = _ask(f"Requirement {len(wanted) + 1} (empty: no more)", lambda _: True, "")
        if not text:
            begun["category"] = ""
        else:
            wanted.append(text)
        keep()
    begun["category"] = begun["category"] or _ask(f"Category ({_CATEGORIES})", lambda _: True, "") or "custom"
    begun["task_type"] = "CODE_INTERPRET"
    return True


def _ask(question: str, fine: Callable[[str], Any], otherwise: str) -> str:
    while True:
        answer: str = click.prompt(question, default="", show_default=False, err=True).strip()
        if fine(answer):
            return answer
        _say(otherwise)


def _say(text: str) -> None:
    click.echo(text, err=True)


_SOURCES = ("scenarios", "examples", "interactive")
_WALLS = ("ptc_url", "unsafe_local")
_OWN = (*_SOURCES, *_WALLS, "skillbook", "max_repairs", "rounds")


def asked(options: Mapping[str, Any], resume: str | None) -> bool:
    """Whether the options are of a run on scenarios, or the run to go on with is one."""
    if resume is None:
        # Programs of a data set are run as well.
        shared = _WALLS if options.get("dataset_name") in PROGRAMMING else ()
        return bool(set(options) & (set(_OWN) - set(shared)))
    runs = config.load().folder / "runs"
    folder = runs / resume if resume else newest_unfinished(runs)
    try:
        found = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        # What is wrong with the run is said by whoever opens it.
        return False
    return isinstance(found, dict) and found.get("dataset_name") == SCENARIOS


def run(
    options: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train on scenarios, resume, or only price it; the object that `--json` prints."""
    out = Console(stderr=True, quiet=quiet, markup=False, highlight=False, soft_wrap=True)
    if resume is not None:
        limit = train_playbook.limit_of_its_own(options, initial_playbook, dry_run)
        trainer = ScenarioTrainer(train_playbook.settled(ScenarioConfig, {**limit, **_kept(options), "batch_size": 1}))
        return _trained(trainer, trainer.reopen(resume or None), out, quiet=quiet)
    settings, initial = _configured(options, initial_playbook)
    trainer = ScenarioTrainer(settings)
    _warn(trainer, out)
    if dry_run:
        return train_playbook.priced(trainer, quiet=quiet)
    return _trained(trainer, trainer.begin(initial), out, quiet=quiet)


def _trained(trainer: ScenarioTrainer, opened: Any, out: Console, *, quiet: bool) -> dict[str, Any]:
    """The run, from where it is to its end."""
    screen = ScenarioScreen(trainer, out)
    trainer.seen = screen
    try:
        result = trainer.finish(opened, begun=lambda: screen.begin(opened))
    except KeyboardInterrupt:
        kept = trainer.results.path if trainer.results and trainer.results.rows else None
        out.print(
            f"interrupted; {f'results up to now are in {kept}; ' if kept else ''}"
            f"go on with: journeyman train playbook --resume {opened.folder.name}"
        )
        raise
    assert trainer.results is not None
    if not quiet:
        tell(result, trainer.results, opened.journal)
    found = trainer.results.json()
    del found["results"]
    return {**result.json(), "results_path": str(trainer.results.path), "summary": found}


def _configured(options: Mapping[str, Any], initial: Path | None) -> tuple[ScenarioConfig, Path | None]:
    """The settings of a new run, and the playbook that it goes on from."""
    sources = [name for name in _SOURCES if options.get(name)]
    if len(sources) != 1:
        given = ", ".join(f"--{name}" for name in sources) or "none"
        raise InputError(
            f"a run on scenarios needs one of --scenarios FILE, --examples and --interactive, and there is {given}"
        )
    if "dataset_name" in options or "input_path" in options:
        raise InputError("scenarios are a data set of their own: leave out --dataset and --input")
    walls = train_playbook.walls(options)
    if "skillbook" in options and (initial or "output_playbook_path" in options):
        raise InputError("--skillbook is where a run goes on from and writes to; leave out --initial-playbook and --output")
    skillbook = Path(options.get("skillbook", options.get("output_playbook_path", SKILLBOOK)))
    kept = {
        "batch_size": 1,
        **_kept(options),
        "input_path": str(options.get("scenarios", "")),
        "output_playbook_path": str(skillbook),
    }
    if options.get("interactive"):
        kept["input_path"] = str(enter(config.load().folder))
    if "evaluate" not in options:
        kept["evaluate"] = "held_out_path" in options
    settings = train_playbook.settled(ScenarioConfig, {**kept, **walls})
    return settings, initial or (skillbook if skillbook.exists() else None)


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that any training run has, and how often it repairs."""
    return {name: value for name, value in options.items() if name not in {*_OWN, "dataset_name"} or name == "max_repairs"}


def _warn(trainer: ScenarioTrainer, out: Console) -> None:
    """Say before money is spent what will come to nothing."""
    for path in filter(None, (trainer.config.input_path, trainer.config.held_out_path)):
        for warning in read(path).warnings:
            out.print(f"warning: {warning}")
    if models.parse(trainer.config.models[0]).kind == "embedded":
        out.print(
            "warning: the embedded model knows the order desk alone and cannot write code, so that no scenario will succeed; "
            "name a real one, as in --model openai:gpt-5-mini"
        )
    if trainer.config.evaluate:
        train_playbook.warn_of_few(sum(task.split == "held_out" for task in trainer.dataset.tasks), trainer.config.min_tasks)


# The work behind `journeyman scenarios`.


def template(kind: str, output: Path | None) -> str:
    """The template; written to a file where one is named, which must not be there yet."""
    text = builtin.template("json" if kind == "json" else "yaml")
    if output is not None:
        check_writable(output)
        write_text(output, text)
    return text


def validated(path: Path) -> tuple[dict[str, Any], list[str]]:
    """What is wrong with a file and what is vague in it, as an object and in words."""
    found = read(path)
    verified = sum(bool(scenario.checks) for scenario in found.scenarios)
    words = [f"{notice}" for notice in _sorted(found.faults)] + [f"{notice} (warning)" for notice in _sorted(found.warnings)]
    words.append(
        f"{path}: {_counted(len(found.scenarios), 'scenario')} can be used, {verified} with checks; "
        f"{_counted(len(found.faults), 'fault')}, {_counted(len(found.warnings), 'warning')}"
    )
    return {
        "valid": not found.faults,
        "scenarios": len(found.scenarios),
        "with_checks": verified,
        "faults": [asdict(notice) for notice in _sorted(found.faults)],
        "warnings": [asdict(notice) for notice in _sorted(found.warnings)],
    }, words


def examples() -> list[dict[str, Any]]:
    """The built-in scenarios, as they stand in a file, without their checks."""
    return [
        {
            "name": scenario.name,
            "goal": scenario.goal,
            "requirements": list(scenario.requirements),
            "task_type": str(scenario.task_type),
            "category": scenario.category,
            "checks": [check.name for check in scenario.checks],
        }
        for scenario in builtin.examples()
    ]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _sorted(notices: tuple[Notice, ...]) -> list[Notice]:
    return sorted(notices, key=lambda notice: notice.line)
