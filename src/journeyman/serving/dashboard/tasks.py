"""Pages of what agents learn from and are examined on: files of tasks, and data sets of questions."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from journeyman.core.errors import InputError, JourneymanError
from journeyman.core.gate import PlannedEvaluation
from journeyman.core.task import Split, Task, fingerprints
from journeyman.experiments.evaluator import looks_taken, untrained
from journeyman.serving.dashboard.charts import Whisker, whiskers
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.figures import SharedCache, TablePart
from journeyman.serving.dashboard.layout import PageRefused, PageRenderer, id_of
from journeyman.stores.base import EvaluationRecord, RunRecord
from journeyman.tasks import repository
from journeyman.tasks.repository import RepositoryTask

if TYPE_CHECKING:
    from journeyman.experiments.playbook.config import TrainingConfig


class TaskPages:
    """Tasks made of repositories: what there is of each category, how much of what was tried became one, and who is good at
    them. What decides about a task is shown to whoever asks for it, and what is right to nobody."""

    def __init__(self, project: ProjectStores, frame: PageRenderer) -> None:
        self._project, self._frame = project, frame
        self._read = SharedCache[tuple[RepositoryTask, ...]]()

    def sets(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Files of tasks."""
        rows = []
        for name, path in self._project.task_files().items():
            tasks, problem = self._tasks(path)
            rows.append((name, tasks, sorted({each.category for each in tasks}), problem))
        return self._frame.page("tasks.html", title="Tasks", rows=rows)

    def one(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What is in a file, or one task of it."""
        name = id_of(request.path_params["name"])
        path = self._project.task_files().get(name)
        if path is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such file of tasks here, and no run was given one.")
        tasks, problem = self._tasks(path)
        if problem:
            raise InputError(problem)
        if id := fields.get("task"):
            task = next((each for each in tasks if each.id == id), None)
            if task is None:
                raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such task in this file.")
            asked = fields.get("show") == "tests"
            return self._frame.page("task.html", title=f"{id} · Tasks", here="Tasks", set=name, task=task, tests=asked)
        wanted = fields.get("category", "")
        listed = [each for each in tasks if wanted in ("", each.category)]
        part = TablePart.of(listed, fields.get("after", ""), total=len(listed))
        return self._frame.page(
            "task_set.html",
            title=f"{name} · Tasks",
            here="Tasks",
            set=name,
            typed={"category": wanted} if wanted else {},
            kinds=repository.counts(tasks),
            made=repository.made_of(path).get("categories", {}),
            part=part,
            evaluations=self._evaluations(path),
        )

    def _tasks(self, path: Path) -> tuple[tuple[RepositoryTask, ...], str]:
        """The tasks of a file, as it is now; or why it cannot be read."""
        try:
            stat = path.stat()
            return self._read.get(f"{path} {stat.st_mtime_ns} {stat.st_size}", lambda: repository.read(path)).value, ""
        except (InputError, OSError) as error:
            return (), str(error)

    def _evaluations(self, path: Path) -> list[tuple[EvaluationRecord, list[tuple[Mapping[str, Any], Whisker | None]]]]:
        """The latest of these tasks, each by category with the interval of the gain."""
        found = []
        for each in self._project.evaluations():
            rows = each.report.get("categories")
            if not isinstance(rows, list) or not self._project.is_of(each.run_id, path):
                continue
            known = {at: (row["low"], row["gain"], row["high"]) for at, row in enumerate(rows) if row["low"] is not None}
            drawn = dict(zip(known, whiskers(list(known.values())), strict=True))
            found.append((each, [(row, drawn.get(at)) for at, row in enumerate(rows)]))
            if len(found) == _LATEST:
                break
        return found


_LATEST = 5
"""Evaluations of a file of tasks that its page shows."""


# Data sets of questions.

_IDENTITY = ("dataset_name", "input_path", "held_out_path", "domain", "question_column", "answer_column", "domain_column")
"""Settings of a run that say which data set it had."""
_COUNTED = ("custom", "gsm8k", "desk")
"""Those that are read for these pages; others are downloaded, or take long."""
_CHANGED = (0.1, 0.25, 0.5)
"""Shares of tasks that may change, by which it is said what can be seen."""
_LISTED = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRow:
    """A data set that runs of this project had."""

    name: str
    runs: tuple[RunRecord, ...]
    """The newest first."""
    tasks: tuple[Task, ...] | None = field(default=None, hash=False)
    """`None` where it was not read."""
    problem: str = ""
    """Why it cannot be read."""
    examined: tuple[Task, ...] = ()
    """The held-out tasks that an examination of the newest run would take, without those that were trained on."""
    contaminated: tuple[Task, ...] = ()
    """Held-out tasks that something here was trained on, or that stand among the training tasks of another data set here."""
    looks: int = 0
    """How often its held-out tasks were looked at."""
    plan: PlannedEvaluation | None = None

    @property
    def splits(self) -> Mapping[Split, int]:
        counts = Counter(task.split for task in self.tasks or ())
        return {split: counts[split] for split in Split}

    def least_gain(self, changed: float = 0.5) -> float | None:
        """The least gain that its held-out tasks show four times in five; `None` where they show none."""
        return None if self.plan is None else replace(self.plan, changed=changed).least_gain(len(self.examined))


class DatasetPages:
    """Whether what candidates are examined on is fair, and large enough."""

    def __init__(self, project: ProjectStores, frame: PageRenderer) -> None:
        self._project, self._frame = project, frame
        self._read = SharedCache[tuple[Task, ...]]()

    def datasets(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Each with its splits, what was trained on of its held-out tasks, and the least gain that they show."""
        return self._frame.page("datasets.html", title="Datasets", rows=self._rows())

    def dataset(self, request: Request, fields: Mapping[str, str]) -> Response:
        """One: what can be seen with it, which held-out tasks prove nothing, and where it was used."""
        named = id_of(request.path_params["name"])
        row = next((each for each in self._rows() if each.name == named), None)
        if row is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, "No run here had such a data set.")
        part = TablePart.of(row.runs, fields.get("after", ""), total=len(row.runs))
        seen = [(changed, row.least_gain(changed)) for changed in _CHANGED]
        return self._frame.page(
            "dataset.html", title=f"{row.name} · Datasets", here="Datasets", row=row, part=part, seen=seen, most=_LISTED
        )

    def _rows(self) -> list[DatasetRow]:
        found: dict[tuple[str, ...], list[RunRecord]] = {}
        for run in self._project.registry.runs():
            if run.config.get("dataset_name"):
                found.setdefault(tuple(str(run.config.get(name) or "") for name in _IDENTITY), []).append(run)
        rows = [self._row(runs) for runs in found.values()]
        learned = self._trained_on(run for runs in found.values() for run in runs)
        train = [fingerprints(task.question for task in row.tasks or () if task.split is Split.TRAIN) for row in rows]
        # What stands among its own training tasks is refused when it is read.
        elsewhere = (learned.union(*(each for other, each in enumerate(train) if other != at)) for at in range(len(rows)))
        return [self._judged(row, trained_on) for row, trained_on in zip(rows, elsewhere, strict=True)]

    def _row(self, runs: Sequence[RunRecord]) -> DatasetRow:
        given = runs[0].config
        about = [given.get("held_out_path"), given.get("domain")]
        name = " · ".join(str(each) for each in (given.get("input_path") or given["dataset_name"], *about) if each)
        row = DatasetRow(name=name, runs=tuple(runs))
        if given["dataset_name"] not in _COUNTED or (given["dataset_name"] == "gsm8k" and not given.get("input_path")):
            return row
        # What loads data sets is for who looks at them.
        from journeyman.experiments import wiring

        try:
            config = self._config(runs[0])
            return replace(row, tasks=self._read.get(_stamp(config), lambda: wiring.load_dataset(config).tasks).value)
        except (JourneymanError, OSError) as error:
            return replace(row, problem=str(error))

    def _config(self, run: RunRecord) -> "TrainingConfig":
        """As the run had it, with paths from the project's folder."""
        from journeyman.experiments.playbook.config import TrainingConfig

        known = TrainingConfig.known(run.config)
        paths = {name: str(self._project.folder / known[name]) for name in ("input_path", "held_out_path") if known.get(name)}
        return TrainingConfig(**{**known, **paths})

    def _judged(self, row: DatasetRow, trained_on: Collection[str]) -> DatasetRow:
        if row.tasks is None:
            return row
        config = self._config(row.runs[0])
        held_out = tuple(task for task in row.tasks if task.split is Split.HELD_OUT)
        try:
            clean, spoiled = untrained(held_out, trained_on)
        except InputError:
            # All of them were.
            clean, spoiled = (), tuple(task.id for task in held_out)
        examined = clean[: config.held_out]
        looks = looks_taken(self._project.store, examined)
        sizes = Counter(task.cluster for task in examined if task.cluster)
        shares = tuple(size / len(examined) for size in sizes.values())
        plan = PlannedEvaluation(changed=0.5, gate=config.gate, looks=looks, clusters=shares)
        marked = set(spoiled)
        return replace(
            row,
            examined=examined,
            contaminated=tuple(task for task in held_out if task.id in marked),
            looks=looks,
            plan=plan,
        )

    def _trained_on(self, runs: Iterator[RunRecord]) -> frozenset[str]:
        """What playbooks that lie where runs wrote them were learned from."""
        from journeyman.optimizers.playbook import edit

        files = {path for run in runs if (path := self._project.playbook_file(run)) is not None}
        found: frozenset[str] = frozenset()
        for path in files:
            try:
                found |= edit.editable(path).trained_on
            except JourneymanError:
                continue
        return found


def _stamp(config: "TrainingConfig") -> str:
    """Another one whenever what is read changes."""
    files = [Path(path) for path in (config.input_path, config.held_out_path) if path]
    stats = [path.stat() for path in files]
    about = [getattr(config, name) for name in (*_IDENTITY, "num_examples", "held_out", "seed", "min_tasks")]
    return repr((about, [(each.st_mtime_ns, each.st_size) for each in stats]))
