"""The work behind `journeyman train playbook --scenarios`, `--examples` and `--interactive`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from journeyman import config, models
from journeyman.app import PROGRAMMING
from journeyman.cli import _interactive, _training
from journeyman.cli._scenario_screen import ScenarioScreen, tell
from journeyman.errors import InputError
from journeyman.learn.playbook.runs import newest_unfinished
from journeyman.offline import OUTPUTS
from journeyman.scenarios import DATASET, SKILLBOOK, ScenarioConfig, ScenarioTrainer
from journeyman.tasks.scenarios import read

_SOURCES = ("scenarios", "examples", "interactive")
_WALLS = ("ptc_url", "unsafe_local")
_OWN = (*_SOURCES, *_WALLS, "skillbook", "rounds")


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
    return isinstance(found, dict) and found.get("dataset_name") == DATASET


def run(
    options: Mapping[str, Any], initial_playbook: Path | None, *, resume: str | None, dry_run: bool, quiet: bool
) -> dict[str, Any]:
    """Train on scenarios, resume, or only price it; the object that `--json` prints."""
    out = Console(stderr=True, quiet=quiet, markup=False, highlight=False, soft_wrap=True)
    if resume is not None:
        if initial_playbook or dry_run or set(options) - {"max_cost", *OUTPUTS}:
            raise InputError(
                "--resume goes on under the settings of its run; of the other options only --max-cost and the outputs may be "
                "given"
            )
        trainer = ScenarioTrainer(ScenarioConfig(**_training.settings_of({**_kept(options), "batch_merge_size": 1})))
        return _trained(trainer, trainer.reopen(resume or None), out, quiet=quiet)
    settings, initial = _configured(options, initial_playbook)
    trainer = ScenarioTrainer(settings)
    _warn(trainer, out)
    if dry_run:
        return _training.priced(trainer, quiet=quiet)
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
    walls = _training.walls(options)
    if "skillbook" in options and (initial or "output_playbook_path" in options):
        raise InputError("--skillbook is where a run goes on from and writes to; leave out --initial-playbook and --output")
    skillbook = Path(options.get("skillbook", options.get("output_playbook_path", SKILLBOOK)))
    kept = {
        "batch_merge_size": 1,
        **_kept(options),
        "input_path": str(options.get("scenarios", "")),
        "output_playbook_path": str(skillbook),
    }
    if options.get("interactive"):
        kept["input_path"] = str(_interactive.enter(config.load().folder))
    if "evaluate" not in options:
        kept["evaluate"] = "held_out_path" in options
    return ScenarioConfig(**_training.settings_of({**kept, **walls})), initial or (skillbook if skillbook.exists() else None)


def _kept(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that any training run has, and the rounds."""
    return {name: value for name, value in options.items() if name not in {*_OWN, "dataset_name"} or name == "rounds"}


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
        _training.warn_of_few(sum(task.split == "held_out" for task in trainer.dataset.tasks), trainer.config.least_tasks)
