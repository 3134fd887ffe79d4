"""`journeyman curve`: did the tasks of a run get better and cheaper?"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say, write
from journeyman.cli.options import options, provided
from journeyman.cli.shared import emit, json_option, options_named, read_store_url
from journeyman.core.errors import InputError, boundary
from journeyman.experiments import settings
from journeyman.experiments.place import FOLDER
from journeyman.experiments.settings import CurveSettings
from journeyman.io.files import check_writable
from journeyman.stores import open_store
from journeyman.stores.urls import is_nowhere, noted, redacted

if TYPE_CHECKING:
    from journeyman.experiments.learning_curve import Point


@click.command()
@click.argument("source", required=False, metavar="[RUN|RESULTS.json|ROWS.jsonl]")
@click.option("--png", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw it in a picture, too.")
@options(CurveSettings)
@json_option
def command(source: str | None, png: Path | None, as_json: bool, **given: Any) -> None:
    """Show how success, score, tokens and cost went from task to task.

    The first part of the run is compared with the last, each category with itself, with a 95 % interval. SOURCE is a run of
    this project (the newest when none is named), a file training_results_*.json, or one JSON object a line: {"task_id": …,
    "score": 0 to 1 or null, "tokens": …, "cost": …, "category": …}.

    \b
    Example:
      journeyman curve results/training_results_20260101_120000.json --png curve.png
    """
    with options_named():
        config = settings.configured(CurveSettings, provided(given))
    emit(_curve(source, png, config, quiet=as_json), as_json=as_json)


def _curve(source: str | None, png: Path | None, config: CurveSettings, *, quiet: bool) -> dict[str, Any]:
    """Read, measure, draw; the object that `--json` prints."""
    from journeyman.experiments import learning_curve

    if png is not None:
        check_writable(png)
        learning_curve.check_drawable()
    name, points = _points(source)
    window, part = config.window or max(2, min(10, len(points) // 5)), config.part
    changes = learning_curve.changes(points, part=part, alike=config.alike)
    if not quiet:
        write(name, *learning_curve.lines(points, changes, window=window, part=part))
    if png is not None:
        learning_curve.draw(points, changes, png, window=window, title=f"Learning curve of {name}")
        say(f"drawn in {png}")
    return {
        "source": name,
        "tasks": len(points),
        "window": window,
        "part": part,
        "png": None if png is None else str(png),
        "changes": {change.measure.name: change.json() for change in changes},
    }


def _points(source: str | None) -> "tuple[str, tuple[Point, ...]]":
    """What was asked for, by name, and its tasks."""
    from journeyman.experiments.learning_curve import of_attempts, read, rows_of

    if source is not None and Path(source).is_file():
        return Path(source).name, read(Path(source))
    project = settings.load()
    runs = project.folder / "runs"
    folder = _newest(runs) if source is None else Path(source) if Path(source).is_dir() else runs / source
    if not (folder / "config.json").exists():
        known = ", ".join(sorted(path.parent.name for path in runs.glob("*/config.json"))) or "none"
        raise InputError(f"{source} is neither a file nor a run; there are: {known}")
    results = _results(folder)
    if results and rows_of(results) != []:
        return f"run {folder.name}", read(results)
    with open_store(_store_of(folder) or read_store_url(None), make=False) as store:
        points = of_attempts(store.attempts(run_id=folder.name))
    # Whether a batch of attempts was merged.
    begun = any((folder / "batches").glob("*.json"))
    if not points and folder.parent == runs and not begun:
        raise InputError(
            f"run {folder.name} has no attempts yet; go on with it: journeyman train playbook --resume {folder.name}"
        )
    if not points:
        raise InputError(
            f"the store of run {folder.name} holds none of its attempts; name it in JOURNEYMAN_STORE, or give a file of results"
        )
    return f"run {folder.name}", points


def _store_of(folder: Path) -> str | None:
    """Where the attempts of a run are: where its folder says, else in the store of the project that it lies in. `None` where
    neither is known."""
    own = settings.load().store_url
    if (url := noted(folder)) is not None:
        # What the folder says has no password in it.
        return own if redacted(own) == url else url
    runs = folder.resolve().parent
    if (runs.parent.name, runs.name) != (FOLDER, "runs"):
        return None
    there = settings.load(runs.parents[1]).store_url
    return None if is_nowhere(there) else there


def _results(folder: Path) -> Path | None:
    """The file of results that a run on scenarios keeps, and names in its folder."""
    note = folder / "results.json"
    if not note.exists():
        return None
    with boundary(InputError, f"{note} is not what was written"):
        path = Path(json.loads(note.read_text(encoding="utf-8"))["path"])
    return path if path.is_file() else None


def _newest(runs: Path) -> Path:
    newest = max(runs.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if newest is None:
        raise InputError(f"there is no run in {runs} yet; name a file of results, or begin one: journeyman train playbook")
    return newest.parent
