"""`journeyman train playbook`: learn a playbook from a data set, or from scenarios."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli import train_traces
from journeyman.cli.console import Column, PlaybookScreen, Screen, number, say, table, write
from journeyman.cli.options import options, provided
from journeyman.cli.shared import (
    data_lines,
    emit,
    json_option,
    options_named,
    resume_option,
    settled,
    shares,
    warn_of_few,
    with_dataset,
)
from journeyman.core.errors import InputError, SettingError
from journeyman.core.format import counted
from journeyman.core.release import Stage
from journeyman.core.task import Split
from journeyman.experiments import settings
from journeyman.experiments.playbook.config import (
    SCENARIOS,
    SKILLBOOK,
    DocumentsConfig,
    ScenarioConfig,
    TracesConfig,
    TrainingConfig,
)
from journeyman.io.atomic import write_json
from journeyman.io.files import check_writable

if TYPE_CHECKING:
    from journeyman.agents.attempt import Attempt
    from journeyman.core.playbook import Playbook
    from journeyman.experiments.playbook.scenarios import Row, ScenarioTrainer
    from journeyman.experiments.playbook.training import OfflineTrainer, TrainingResult
    from journeyman.optimizers.playbook.run import PlaybookRun, Progress
    from journeyman.tasks.scenarios import Scenario


@click.command("playbook")
@click.argument("file", required=False)
@options(TrainingConfig, leave_out=("sandbox",))
@click.option("--initial-playbook", type=click.Path(path_type=Path), metavar="FILE", help="Go on from this playbook.")
@resume_option
@click.option("--dry-run", is_flag=True, help="Check the data and price the run; ask no model.")
@click.option("--scenarios", metavar="FILE", help="Train on scenarios instead: things to build, in YAML or JSON.")
@click.option("--examples", is_flag=True, default=None, help="Train on the five scenarios that ship with Journeyman.")
@click.option("--interactive", is_flag=True, default=None, help="Type scenarios in, and train on them.")
@click.option("--from", "learn_from", type=click.Choice(("traces", "documents")), help="Learn from what was recorded.")
@options(TracesConfig, only=train_traces.OWN)
@options(DocumentsConfig, only=train_traces.OF_DOCUMENTS)
@click.option("--skillbook", metavar="FILE", help="Go on from this playbook if it is there, and write to it.")
@click.option("--ptc-url", metavar="URL", help="Run the programs of scenarios, humaneval or mbpp at this code service.")
@click.option("--unsafe-local", is_flag=True, default=None, help="Run them without walls. For code that you trust.")
@options(ScenarioConfig, only=("max_repairs",))
@click.option("--rounds", type=int, hidden=True, help="As it was: the calls for a scenario, the first among them.")
@json_option
def command(
    file: str | None, as_json: bool, dry_run: bool, resume: str | None, initial_playbook: Path | None, **given: Any
) -> None:
    """Learn a playbook from a data set, or from scenarios.

    FILE is a data set of your own, as --input: CSV, JSON lines, JSON or Parquet with a question and an answer in each row.
    Attempts the tasks, reflects on what went wrong, merges the insights after each batch, and at the end compares agent with
    and without the playbook on held-out tasks. A playbook that does not pass stays in shadow.

    \b
    Examples:
      journeyman train playbook --dataset desk --domain oslo --output playbooks/oslo.json
      journeyman train playbook questions.csv --model ollama:qwen3:4b
      journeyman train playbook mails.csv --question body --answer department --model openai:gpt-5-mini --dry-run
      journeyman train playbook --scenarios my_scenarios.yaml --model openai:gpt-5-mini
      journeyman train playbook --from traces --dry-run
      journeyman train playbook --from documents --source devlogs --dry-run
      journeyman train playbook --resume
    """
    typed = provided(given)
    if file is not None:
        if "input_path" in typed:
            raise InputError(f"two files are named, {file} and {typed['input_path']}; leave out one of them")
        if "learn_from" in typed:
            raise InputError(f"--from {typed['learn_from']} learns from what is in the store; leave out {file}")
        typed["input_path"] = file
    if learn_from := typed.pop("learn_from", None):
        if resume is not None or initial_playbook is not None:
            what = "--resume" if resume is not None else "--initial-playbook"
            raise InputError(
                f"{what} is not for --from {learn_from}: run it again, and nothing is paid for twice; it goes on from --output"
            )
        recorded = train_traces.train_from_traces if learn_from == "traces" else train_traces.train_from_documents
        with options_named():
            found = recorded(typed, dry_run=dry_run, quiet=as_json)
        emit(found, as_json=as_json)
        return
    if strange := [name for name in (*train_traces.OWN, *train_traces.OF_DOCUMENTS) if name in typed]:
        of = "traces" if strange[0] in train_traces.OWN else "documents"
        raise InputError(f"--{strange[0].replace('_', '-')} belongs to --from {of}")
    train = _train_on_scenarios if _is_on_scenarios(typed, resume) else _train
    with options_named():
        if (rounds := typed.pop("rounds", None)) is not None:
            if not 1 <= rounds <= 20:
                raise SettingError("rounds", f"{{}} is {rounds}, and must be from 1 to 20")
            typed["max_repairs"] = rounds - 1
        result = train(typed, initial_playbook, resume=resume, dry_run=dry_run, quiet=as_json)
    emit(result, as_json=as_json)


def _train(
    given: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train, resume or only price; the object that `--json` prints."""
    from journeyman.experiments.playbook.training import OfflineTrainer

    walled = {name: value for name, value in given.items() if name not in _WALLS}
    limit = {} if resume is None else _limit_of_its_own(given, initial_playbook)
    config = settled(TrainingConfig, {**limit, **with_dataset(walled), **_walls(given)})
    if resume is not None and dry_run:
        raise InputError("--dry-run prices a new run and --resume goes on with an old one; leave one of them out")
    trainer = OfflineTrainer(config)
    run = None if dry_run else trainer.begin(initial_playbook) if resume is None else trainer.reopen(resume or None)
    held_out = trainer.examined if run else len(trainer.dataset.split(Split.HELD_OUT))
    if not quiet:
        say(*_data_lines(trainer, given, held_out))
    if trainer.config.evaluate:
        warn_of_few(held_out, trainer.config.min_tasks)
    if run is None:
        return _priced(trainer, quiet=quiet)
    with PlaybookScreen(trainer.examples, quiet=quiet) as screen:
        trainer.watcher = screen
        models = " and ".join(dict.fromkeys(trainer.config.models))
        head = f"run {run.folder.name}: {counted(trainer.examples, 'example')}, {models}"
        try:
            result = trainer.finish(run, begun=lambda: screen.say(head))
        except KeyboardInterrupt:
            screen.say(f"interrupted; go on with: journeyman train playbook --resume {run.folder.name}")
            raise
    if not quiet:
        write(*_result_lines(result, begun_with=bool(run.initial.active)), *_next_lines(result, run.journal))
    return result.json()


def _data_lines(trainer: "OfflineTrainer", given: Mapping[str, Any], held_out: int) -> Iterator[str]:
    if trainer.config.dataset_name == "desk":
        # It makes as many as it is asked for.
        return
    yield from data_lines(trainer.there_are, trainer.config.gate, held_out=held_out if trainer.config.evaluate else 0)
    wanted, there = given.get("num_examples"), len(trainer.dataset.split(Split.TRAIN))
    if wanted and there < wanted:
        yield (
            f"--num-examples {wanted}: {there} are all there are, as the others are kept apart to prove it on; "
            "more rows give more, or a file of its own for the others (--held-out-input)"
        )


def _walls(given: Mapping[str, Any]) -> dict[str, str]:
    """Where code is run, as a setting, if an option says so."""
    if "ptc_url" in given and "unsafe_local" in given:
        raise InputError("--ptc-url runs code at a service, --unsafe-local here without walls; leave one of them out")
    if "unsafe_local" in given:
        return {"sandbox": "unsafe-local"}
    return {"sandbox": given["ptc_url"]} if "ptc_url" in given else {}


def _limit_of_its_own(given: Mapping[str, Any], *more: object) -> dict[str, Any]:
    """A run that is gone on with has its own limit on cost, whatever the project's is; options may give another.

    Raises:
        InputError: More than the limit and the outputs was given with --resume.
    """
    from journeyman.experiments.playbook.training import OUTPUTS

    if any(more) or set(given) - {"max_cost", *OUTPUTS}:
        raise InputError(
            "--resume goes on under the settings of its run; of the other options only --max-cost and the outputs may be given"
        )
    return {"max_cost": None}


def _priced(trainer: "OfflineTrainer", *, quiet: bool) -> dict[str, Any]:
    """About what the run will take, shown and as an object."""
    from journeyman.experiments.playbook import cost_estimate

    hindrances = trainer.hindrances()
    estimate = {**cost_estimate.report(trainer.work()), "hindrances": list(hindrances)}
    if quiet:
        return estimate
    columns = [
        Column(name="role", words=True),
        Column(name="model", words=True, wraps=True),
        *(Column(name=name) for name in ("calls", "input tokens", "output tokens", "cost")),
    ]
    counts = ("calls", "input_tokens", "output_tokens")
    rows = [
        (part["role"], part["model"], *(number(part[name], ",") for name in counts), _money(part["cost"]))
        for part in estimate["parts"]
    ]
    table(columns, rows, title="About what this run will take")
    total = "unknown: a model has no known price" if estimate["cost"] is None else f"about ${estimate['cost']:.4f}"
    if trainer.config.optimizer != "playbook":
        total = f"unknown: what {trainer.config.optimizer} asks of models is not known before it does; --max-cost limits it"
    write(f"In all {total}. Nothing was sent.")
    say(*(f"before it can run: {each}" for each in hindrances))
    return estimate


def _result_lines(result: "TrainingResult", *, begun_with: bool) -> Iterator[str]:
    """The end of a run, in words."""
    size = counted(result.playbook_size, "bullet")
    yield f"{size} in {result.playbook_path} ({result.stage.value}); metrics in {result.metrics_path}"
    yield from _unused(result.metrics.progress.unusable)
    if result.evaluation is None:
        yield result.reason
        return
    yield f"held-out tasks: {shares(result.evaluation, begun_with=begun_with)}"
    yield f"{'passed' if result.evaluation.passed else 'not passed'}: {result.reason}"
    if result.evaluation.passed and result.stage is Stage.SHADOW:
        yield "It stays in shadow; --target-stage production lets what passes go there."


def _next_lines(result: "TrainingResult", journal: Path) -> Iterator[str]:
    """What can be done after any run."""
    yield f"Every change is in its journal: journeyman playbook log {shlex.quote(str(journal))}"
    if not result.finished:
        yield f"Go on with: journeyman train playbook --resume {result.run_id} --max-cost <more, or inf>"


def _unused(reflections: int) -> list[str]:
    """Why there is less learned than was attempted, where replies of the reflector were of no use."""
    if not reflections:
        return []
    counted = "1 reflection" if reflections == 1 else f"{reflections} reflections"
    return [f"{counted} could not be used: no reply of the reflector came, or none that could be read"]


# The same on scenarios: each attempt as it goes on stderr, the summary at the end on stdout.

_SOURCES = ("scenarios", "examples", "interactive")
_WALLS = ("ptc_url", "unsafe_local")
_OWN = (*_SOURCES, *_WALLS, "skillbook", "max_repairs", "rounds")
_EVERY = 10
"""Scenarios between two counts of what was learned."""


class ScenarioScreen(Screen):
    """Shows a training on scenarios. Implements `scenarios.ScenarioWatcher`."""

    def __init__(self, trainer: "ScenarioTrainer", *, quiet: bool) -> None:
        super().__init__("scenarios", quiet=quiet)
        self._trainer = trainer
        self._together = trainer.config.batch_size * trainer.config.attempts > 1
        """Then attempts end in any order, and each is told of as a whole when it ends."""
        self._counted = 0

    def start(self, run: "PlaybookRun") -> None:
        models = ", ".join(dict.fromkeys(self._trainer.config.models))
        self.say(f"Starting training with {self._trainer.planned} scenarios ({models})")
        self.say(f"Initial skills: {len(run.playbook.active)}\n")
        self._counted = run.progress.attempts.attempts // _EVERY

    def started(self, scenario: "Scenario") -> None:
        if not self._together:
            done = len(self._trainer.results.rows) if self._trainer.results else 0
            self._head(min(done + 1, self._trainer.planned), scenario.name, scenario.goal, scenario.category)

    def attempted(self, attempt: "Attempt") -> None:
        pass

    def scored(self, row: "Row", done: int) -> None:
        if self._together:
            self._head(done, row["scenario"]["name"], row["scenario"]["goal"], row["scenario"]["category"])
        score, cost = row["metadata"]["performance_score"], row["metadata"]["cost_usd"]
        self.say(f"   {_ended(row)}")
        self.say(f"   Score: {number(score, '.2f')}")
        self.say(f"   Cost: {_money(cost)}\n")

    def merged(self, playbook: "Playbook", progress: "Progress", tasks: int) -> None:
        if tasks // _EVERY > self._counted:
            self._counted = tasks // _EVERY
            self.say(f"Skills learned: {len(playbook.active)}\n")

    def evaluated(self, done: int, total: int, what: str = "attempts at held-out scenarios") -> None:
        super().evaluated(done, total, what)

    def _head(self, number: int, name: str, goal: str, category: str) -> None:
        self.say(f"[{number}/{self._trainer.planned}]")
        self.say(f"Running: {name}")
        self.say(f"   Goal: {_shortened(goal)}")
        self.say(f"   Category: {category}")


def _is_on_scenarios(given: Mapping[str, Any], resume: str | None) -> bool:
    """Whether the options are of a run on scenarios, or the run to go on with is one."""
    if resume is None:
        from journeyman.experiments.wiring import PROGRAMMING

        # Programs of a data set are run as well.
        shared = _WALLS if given.get("dataset_name") in PROGRAMMING else ()
        return bool(set(given) & (set(_OWN) - set(shared)))
    from journeyman.optimizers.playbook.run import newest_unfinished

    runs = settings.load().folder / "runs"
    folder = runs / resume if resume else newest_unfinished(runs)
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        # What is wrong with the run is said by whoever opens it.
        return False
    return isinstance(config, dict) and config.get("dataset_name") == SCENARIOS


def _train_on_scenarios(
    given: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train on scenarios, resume, or only price it; the object that `--json` prints."""
    from journeyman.experiments.playbook.scenarios import ScenarioTrainer

    if resume is not None:
        limit = _limit_of_its_own(given, initial_playbook, dry_run)
        trainer = ScenarioTrainer(settled(ScenarioConfig, {**limit, **_of_any_run(given), "batch_size": 1}))
        return _trained(trainer, trainer.reopen(resume or None), quiet=quiet)
    config, initial = _configured(given, initial_playbook)
    trainer = ScenarioTrainer(config)
    if not quiet:
        say(*(f"warning: {warning}" for warning in _warnings(trainer)))
    if trainer.config.evaluate:
        warn_of_few(sum(task.split == "held_out" for task in trainer.dataset.tasks), trainer.config.min_tasks)
    if dry_run:
        return _priced(trainer, quiet=quiet)
    return _trained(trainer, trainer.begin(initial), quiet=quiet)


def _trained(trainer: "ScenarioTrainer", run: "PlaybookRun", *, quiet: bool) -> dict[str, Any]:
    """The run, from where it is to its end."""
    with ScenarioScreen(trainer, quiet=quiet) as screen:
        trainer.seen = screen
        try:
            result = trainer.finish(run, begun=lambda: screen.start(run))
        except KeyboardInterrupt:
            written = trainer.results.path if trainer.results and trainer.results.rows else None
            screen.say(
                f"interrupted; {f'results up to now are in {written}; ' if written else ''}"
                f"go on with: journeyman train playbook --resume {run.folder.name}"
            )
            raise
    assert trainer.results is not None
    summary = trainer.results.json()
    if not quiet:
        write(
            *_summary(summary, result.metrics.progress.unusable),
            f"Results saved to: {trainer.results.path}",
            f"Skillbook: {result.playbook_path} ({result.stage.value}); {result.reason}",
            *_next_lines(result, run.journal),
        )
    del summary["results"]
    return {**result.json(), "results_path": str(trainer.results.path), "summary": summary}


def _configured(given: Mapping[str, Any], initial: Path | None) -> tuple[ScenarioConfig, Path | None]:
    """The settings of a new run, and the playbook that it goes on from."""
    sources = [name for name in _SOURCES if given.get(name)]
    if len(sources) != 1:
        named = ", ".join(f"--{name}" for name in sources) or "none"
        raise InputError(
            f"a run on scenarios needs one of --scenarios FILE, --examples and --interactive, and there is {named}"
        )
    if "dataset_name" in given or "input_path" in given:
        raise InputError("scenarios are a data set of their own: leave out --dataset and --input")
    walls = _walls(given)
    if "skillbook" in given and (initial or "output_playbook_path" in given):
        raise InputError("--skillbook is where a run goes on from and writes to; leave out --initial-playbook and --output")
    skillbook = Path(given.get("skillbook", given.get("output_playbook_path", SKILLBOOK)))
    config = {
        "batch_size": 1,
        "evaluate": "held_out_path" in given,
        **_of_any_run(given),
        "input_path": str(given.get("scenarios", "")),
        "output_playbook_path": str(skillbook),
    }
    if given.get("interactive"):
        config["input_path"] = str(enter(settings.load().folder))
    return settled(ScenarioConfig, {**config, **walls}), initial or (skillbook if skillbook.exists() else None)


def _of_any_run(given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that any training run has, and how often it repairs."""
    return {name: value for name, value in given.items() if name not in {*_OWN, "dataset_name"} or name == "max_repairs"}


def _warnings(trainer: "ScenarioTrainer") -> Iterator[str]:
    """What will come to nothing, before money is spent on it."""
    from journeyman import models
    from journeyman.tasks.scenarios import read

    for path in filter(None, (trainer.config.input_path, trainer.config.held_out_path)):
        yield from map(str, read(path).warnings)
    if models.parse(trainer.config.models[0]).kind == "embedded":
        yield (
            "the embedded model knows the order desk alone and cannot write code, so that no scenario will succeed; "
            "name a real one, as in --model openai:gpt-5-mini"
        )


def _summary(summary: Mapping[str, Any], unusable: int) -> list[str]:
    total, skills, tokens = summary["total_scenarios"], summary["skills"], summary["total_tokens"]
    optional = {
        "unverified": "Not verified: {} (no checks: read, not run)",
        "unknown": "Unknown: {} (broke off, or could not be checked)",
    }
    return [
        f"Final skills: {skills['final']}",
        f"Skills gained: {skills['final'] - skills['initial']}",
        *_unused(unusable),
        "",
        "=" * 60,
        "TRAINING SUMMARY",
        "=" * 60,
        f"Total scenarios: {total}",
        f"Successful: {summary['successful']} ({_share(summary['successful'], total)})",
        f"Failed: {summary['failed']} ({_share(summary['failed'], total)})",
        *(text.format(summary[name]) for name, text in optional.items() if summary[name]),
        "",
        "By Category:",
        *(
            f"  {name}: {of['successful']}/{of['total']} ({_share(of['successful'], of['total'])})"
            for name, of in summary["by_category"].items()
        ),
        "",
        f"Total Cost: {_money(summary['total_cost_usd'])}",
        f"Total Tokens: {number(tokens, ',')}",
        f"Avg Cost/Scenario: {_money(summary['avg_cost_usd'])}",
        "",
    ]


def _ended(row: "Row") -> str:
    why = _shortened(str(row["evidence"]).partition("\n")[0])
    if row["success"] is None:
        return f"{'Unknown' if row['scored_by'] == 'checks' else 'Not verified'}: {why}"
    return "Success" if row["success"] else f"Failed: {why}"


def _money(cost: float | None) -> str:
    """US dollars, or that nobody knows."""
    return "unknown" if cost is None else f"${cost:.4f}"


def _shortened(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:157]}..."


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


# Scenarios typed in. Every answer is on the disk before the next question, so that an interruption loses none.

DONE = "done"
_DRAFT = "interactive.json"
TASK_TYPES = {"code": "CODE_INTERPRET", "text": "TEXT_GENERATION", "review": "CODE_REVIEW"}
_KINDS = f"write one of {', '.join(TASK_TYPES)}"
_CATEGORIES = "micro_saas, automation, ai_agent, custom"


def enter(project: Path) -> Path:
    """Ask for scenarios until "done"; the file that they are in.

    Raises:
        InputError: None was typed in, or there is no place to keep it; that is said before anything is asked.
    """
    from journeyman.experiments import wiring
    from journeyman.tasks.scenarios import load

    draft, path = project / _DRAFT, Path("scenarios") / f"interactive_{wiring.now():%Y%m%d_%H%M%S}.json"
    for file in (draft, path):
        check_writable(file)
    scenarios, begun = _entered_before(draft)

    def keep() -> None:
        write_json(draft, {"scenarios": scenarios, "begun": begun})

    say(f"Type {DONE} as a name when all scenarios are entered. Every answer is kept in {draft} at once.")
    while _entered(scenarios, begun, keep):
        scenarios.append({name: value for name, value in begun.items() if name != "checked"})
        begun.clear()
        keep()
    if not scenarios:
        draft.unlink(missing_ok=True)
        raise InputError("no scenario was entered; there is nothing to train on")
    write_json(path, {"scenarios": scenarios})
    load(path)
    draft.unlink(missing_ok=True)
    say(
        f"{counted(len(scenarios), 'scenario')} in {path}. There you can change them, and train on them again with --scenarios."
    )
    return path


def _entered_before(draft: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """What an interrupted session had entered, if it is wanted: whole scenarios, and the answers to one that was begun."""
    try:
        answers = json.loads(draft.read_text(encoding="utf-8"))
        scenarios, begun = list(answers["scenarios"]), dict(answers["begun"])
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
    if not begun["category"]:
        begun["category"] = _ask(f"Category ({_CATEGORIES})", lambda _: True, "") or "custom"
        keep()
    if "task_type" not in begun:
        kind = _ask(f"Kind of work ({', '.join(TASK_TYPES)}) [code]", lambda text: text.casefold() in ("", *TASK_TYPES), _KINDS)
        begun["task_type"] = TASK_TYPES[kind.casefold() or "code"]
        keep()
    _checked(begun, keep)
    return True


def _checked(begun: dict[str, Any], keep: Callable[[], None]) -> None:
    """Ask for what shows that the work is right, until there is no more."""
    checks = begun.setdefault("checks", [])
    while "checked" not in begun:
        what = "a shell line that ends with 0 when the work is right; empty: no more"
        if text := _ask(f"Check {len(checks) + 1} ({what})", lambda _: True, ""):
            checks.append(text)
        else:
            begun["checked"] = True
            if not checks:
                say("without a check nobody can tell whether it went well: it is read, and its success stays unknown")
        keep()


def _ask(question: str, fine: Callable[[str], Any], otherwise: str) -> str:
    while True:
        answer: str = click.prompt(question, default="", show_default=False, err=True).strip()
        if fine(answer):
            return answer
        say(otherwise)
