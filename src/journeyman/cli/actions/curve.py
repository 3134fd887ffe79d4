"""The work behind `journeyman curve`, apart from its options."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from journeyman.cli.shared import console
from journeyman.core.errors import InputError, MissingExtra, boundary
from journeyman.experiments import learning_curve, settings
from journeyman.experiments.learning_curve import Point, changes, of_attempts, read, rows_of
from journeyman.io.files import check_writable
from journeyman.stores import open_store


def run(source: str | None, *, png: Path | None, window: int | None, part: float, alike: bool, quiet: bool) -> dict[str, Any]:
    """Read, measure, draw; the object that `--json` prints."""
    draw = _drawing(png) if png is not None else None
    name, points = _points(source)
    window = window or max(2, min(10, len(points) // 5))
    found = changes(points, part=part, alike=alike)
    if not quiet:
        click.echo(name)
        click.echo("\n".join(learning_curve.lines(points, found, window=window, part=part)))
    if draw is not None and png is not None:
        draw(points, found, png, window=window, title=f"Learning curve of {name}")
        console().print(f"drawn in {png}", markup=False, soft_wrap=True)
    return {
        "source": name,
        "tasks": len(points),
        "window": window,
        "part": part,
        "png": None if png is None else str(png),
        "changes": {change.measure.name: change.json() for change in found},
    }


def _drawing(png: Path) -> Callable[..., None]:
    """What draws, once it is known that it can."""
    check_writable(png)
    try:
        from journeyman.experiments.learning_curve_plot import draw
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        raise MissingExtra(f"{name} is missing: pip install 'journeyman[plot]'") from error
    return draw


def _points(source: str | None) -> tuple[str, tuple[Point, ...]]:
    """What was asked for, by name, and its tasks."""
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
    with open_store(project.store_url, make=False) as store:
        points = of_attempts(store.attempts(run_id=folder.name))
    if not points and folder.parent == runs and not _begun(folder):
        raise InputError(
            f"run {folder.name} has no attempts yet; go on with it: journeyman train playbook --resume {folder.name}"
        )
    if not points:
        raise InputError(
            f"the store of this project holds no attempt of run {folder.name}; "
            "name its store in JOURNEYMAN_STORE, or give a file of results"
        )
    return f"run {folder.name}", points


def _begun(run: Path) -> bool:
    """Whether a batch of attempts was merged."""
    return any((run / "batches").glob("*.json"))


def _results(folder: Path) -> Path | None:
    """The file of results that a run on scenarios keeps, and names in its folder."""
    note = folder / "results.json"
    if not note.exists():
        return None
    with boundary(InputError, f"{note} is not what was written"):
        path = Path(json.loads(note.read_text(encoding="utf-8"))["path"])
    return path if path.is_file() else None


def _newest(runs: Path) -> Path:
    found = max(runs.glob("*/config.json"), key=lambda path: path.stat().st_mtime_ns, default=None)
    if found is None:
        raise InputError(f"there is no run in {runs} yet; name a file of results, or begin one: journeyman train playbook")
    return found.parent
