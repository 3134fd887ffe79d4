"""Pages of what was run, learned and proven: runs, their comparison, evaluations, and playbooks."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import SequenceMatcher
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.comparison import ComparisonVerdict
from journeyman.core.errors import InputError, JourneymanError, PlaybookError
from journeyman.core.evaluation import Pair
from journeyman.core.format import noun, value_text
from journeyman.core.playbook import Bullet, Lock, Playbook, Retire
from journeyman.experiments.pipeline import stages
from journeyman.experiments.place import FOLDER
from journeyman.experiments.settings import AlertSettings
from journeyman.io.http_server import known_token
from journeyman.serving.dashboard.charts import Whisker, whiskers
from journeyman.serving.dashboard.figures import ROWS, TablePart, VersionedCache, needed
from journeyman.serving.dashboard.layout import PageRefused, PageRenderer, id_of, local, one_line
from journeyman.stores.base import AttemptRecord, EvaluationRecord, RunRecord
from journeyman.stores.registry import EvaluationDetails, GateVerdict, Registry, comparison_of, gate_word, verdict_of
from journeyman.stores.urls import is_demo

if TYPE_CHECKING:
    from journeyman.core.rollout import LiveReleases, Rollout
    from journeyman.serving.ingest.base import Health
    from journeyman.stores.alerts import AlertStore
    from journeyman.stores.base import Store
    from journeyman.stores.documents import DocumentStore
    from journeyman.stores.rollouts import RolloutStore
    from journeyman.stores.turns import TurnStore

NOT_ADMITTED = "Only who has the token of serve.release_token_env may change what is released or shown."
CHOICES = 200
"""Playbooks that another one can be laid beside by a choice; the address takes any."""
TASKS = 50
"""Tasks that the page of an evaluation shows side by side."""
MOST_KEPT = 1000
"""Evaluations that are kept in memory: each has its pairs with it."""
_Found = TypeVar("_Found")


class ProjectStores:
    """What a store knows beside traces, opened when a page first asks for it. Each is used by several threads."""

    def __init__(
        self,
        url: str | Path,
        *,
        release_tokens: Sequence[str] = (),
        folder: Path = Path(),
        alerts: AlertSettings | None = None,
        health: "Callable[[], Health] | None" = None,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            release_tokens: Who has one may change on a page what is released or shown; without any, nobody may there.
            folder: Of the project, where the paths that its runs wrote begin.
            health: How the way into the store is, where this process records.
            fixed: The playbook that this server puts into every request, as `/health` says it, in place of what is released.
        """
        self._url, self.folder = url, folder
        self.is_demo, self.fixed = is_demo(url, folder), fixed
        self.alert_settings, self.health = alerts or AlertSettings(), health
        self.release_tokens = tuple(release_tokens)
        self._evaluations = VersionedCache[Sequence[EvaluationRecord]]()
        self._live, self._rollouts = VersionedCache["LiveReleases"](), VersionedCache["Sequence[Rollout]"]()

    def admits(self, fields: Mapping[str, str]) -> bool:
        """Whether a form carries one of the tokens."""
        return known_token(fields.get("key", "").encode(errors="replace"), self.release_tokens) is not None

    def playbook_file(self, run: RunRecord) -> Path | None:
        """The file that a run wrote what it learned to, where it still lies there."""
        told = (run.result or {}).get("playbook_path")
        path = self.folder / told if isinstance(told, str) and told else None
        return path if path is not None and path.is_file() else None

    def task_files(self) -> Mapping[str, Path]:
        """Files of tasks by how they are called here: those made in the project's folder, and those that runs were given."""
        made = (path.with_name(path.name.replace(".stats.json", ".jsonl")) for path in self.folder.glob("*.stats.json"))
        given = (
            self.folder / str(run.config[name])
            for run in self.registry.runs()
            if run.kind == "evaluate agent" or run.config.get("dataset_name") == "repository"
            for name in ("tasks", "input_path", "held_out_path")
            if run.config.get(name)
        )
        found = dict.fromkeys(path for path in (*sorted(made), *given) if path.is_file())
        here = self.folder
        return {(path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)): path for path in found}

    def is_of(self, run_id: str, path: Path) -> bool:
        """Whether a run's tasks were those of a file."""
        run = self.registry.run_record(run_id)
        return bool(run.config.get("tasks")) and self.folder / str(run.config["tasks"]) == path

    @property
    def views_file(self) -> Path:
        """Where lists of traces are kept that somebody gave a name."""
        return self.folder / FOLDER / "views.json"

    @property
    def pipelines(self) -> Path:
        """Where runs of pipelines are kept."""
        return self.folder / FOLDER / stages.FOLDER

    @cached_property
    def store(self) -> "Store":
        from journeyman.stores import open_store

        return open_store(self._url)

    @cached_property
    def registry(self) -> Registry:
        return Registry(self.store)

    @cached_property
    def rollouts(self) -> "RolloutStore":
        from journeyman.stores.rollouts import open_rollouts

        return open_rollouts(self._url)

    @cached_property
    def turns(self) -> "TurnStore":
        from journeyman.stores.turns import open_turns

        return open_turns(self._url)

    @cached_property
    def alerts(self) -> "AlertStore":
        from journeyman.stores.alerts import open_alerts

        return open_alerts(self._url)

    @cached_property
    def documents(self) -> "DocumentStore":
        from journeyman.stores.documents import open_documents

        return open_documents(self._url)

    def live(self) -> "LiveReleases":
        """What is in production and under way now; read again when something has happened to it."""
        return self._live.get("", self.rollouts.version(), self.rollouts.live)

    def all_rollouts(self) -> "Sequence[Rollout]":
        """Oldest first, those that are over too; read again when something has happened to one."""
        return self._rollouts.get("", self.rollouts.version(), self.rollouts.rollouts)

    def evaluations_version(self) -> tuple[int, tuple[object, ...]]:
        """Another one whenever an evaluation came or went: what came is the newest, and what went makes them fewer."""
        newest = self.registry.evaluations(limit=1)
        return self.registry.count("evaluations"), tuple((each.id, each.at) for each in newest)

    def evaluations(self) -> Sequence[EvaluationRecord]:
        """All of them, the newest first; read again when one came or went, and each time where they are many."""
        version = self.evaluations_version()
        if version[0] > MOST_KEPT:
            return self.registry.evaluations()
        return self._evaluations.get("", version, self.registry.evaluations)

    def counts(self) -> Mapping[str, int]:
        """How many there are behind each address."""
        registry = self.registry
        return {
            "/documents": sum(self.documents.document_counts().values()),
            "/runs": registry.count("runs"),
            "/evaluations": registry.count("evaluations"),
            "/playbooks": registry.count("candidates", kind=Kind.PLAYBOOK),
            "/releases": len(self.live().production),
            "/alerts": len(self.alerts.firing()),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """An evaluation as lists show it."""

    evaluation: EvaluationRecord
    found: ComparisonVerdict
    verdict: GateVerdict
    """The gate's word."""
    whisker: Whisker | None
    """Of the gain, on the scale of all rows of the list."""


def compared_rows(evaluations: Sequence[EvaluationRecord]) -> list[ComparedRow]:
    """Evaluations with what they came to."""
    found = [comparison_of(each) for each in evaluations]
    known = {at: (each.low, each.gain, each.high) for at, each in enumerate(found) if None not in (each.low, each.gain)}
    drawn = dict(zip(known, whiskers(list(known.values())), strict=True))  # type: ignore[arg-type]
    return [
        ComparedRow(evaluation=one, found=each, verdict=verdict_of(one), whisker=drawn.get(at))
        for at, (one, each) in enumerate(zip(evaluations, found, strict=True))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    run: RunRecord
    compared: ComparedRow | None
    """Its last evaluation."""


_FUNNEL = (
    ("documents", "document read", "documents read"), ("telling", "tells of a mistake", "tell of a mistake"),
    ("traces", "trace read", "traces read"), ("learned_from", "learned from", "learned from"),
    ("with_evidence", "with evidence", "with evidence"), ("groups", "group of evidence", "groups of evidence"),
    ("groups_worded", "put into words", "put into words"), ("rules", "rule", "rules"),
    ("shown", "shown to the agent", "shown to the agent"), ("held", "held for a person", "held for a person"),
)  # fmt: skip
"""What a run that learned from traces or documents says of how much became how little, and what the page calls one
and several of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRow:
    """What was last learned from a slot's traces."""

    run: RunRecord
    told: Mapping[str, Any]
    funnel: tuple[tuple[str, int], ...]
    evidence: tuple[Mapping[str, Any], ...]
    """What each group of evidence came to."""
    rollout: "Rollout | None"
    """The last one that brought it to live traffic."""
    held: tuple[Bullet, ...]
    """What waits for a person, in the file that it was written to."""
    path: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task of an evaluation, before and after side by side."""

    pair: Pair
    asked: str
    before: tuple[tuple[str, str], ...]
    """The baseline's words: "same", "gone" or "new", and the text. Empty where no attempt was kept."""
    after: tuple[tuple[str, str], ...]


class ExperimentPages:
    """The handlers of these pages."""

    def __init__(self, stores: ProjectStores, frame: PageRenderer, who: Callable[[Request], str]) -> None:
        self._stores, self._frame, self._who = stores, frame, who

    # Runs.

    def runs(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What ran, what came out, what it took."""
        kind, after = fields.get("kind", ""), fields.get("after", "")
        part = TablePart.of(self._stores.registry.runs(kind=kind or None, limit=needed(after)), after)
        rows = self._run_rows(part.rows)
        pipelines = len(stages.run_files(self._stores.pipelines))
        return self._frame.page("runs.html", title="Runs", rows=rows, part=part, kind=kind, pipelines=pipelines)

    def _run_rows(self, runs: Sequence[RunRecord]) -> list[RunRow]:
        latest: dict[str, EvaluationRecord] = {}
        for each in self._stores.evaluations():
            latest.setdefault(each.run_id, each)
        compared = {each.evaluation.run_id: each for each in compared_rows([latest[r.id] for r in runs if r.id in latest])}
        return [RunRow(run=each, compared=compared.get(each.id)) for each in runs]

    def run(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What a run learned, and whether it helped."""
        registry = self._stores.registry
        found = self._known(registry.run, request)
        rows = compared_rows(found.evaluations)
        before = next((each for each in registry.runs(kind=found.run.kind) if each.started_at < found.run.started_at), None)
        changes = registry.diff_runs(before.id, found.run.id) if before else []
        return self._frame.page(
            "run.html",
            title=f"{rows[-1].found.title} · {found.run.id}" if rows else found.run.id,
            here="Runs",
            details=found,
            rows=rows,
            before=before,
            changes=[each for each in changes if each.name.startswith("config.")],
            config=[(name, value_text(value)) for name, value in found.run.config.items() if value not in (None, "", [], {})],
            plain=value_text,
        )

    def compare(self, request: Request, fields: Mapping[str, str]) -> Response:
        """In what two runs differ."""
        registry, ids = self._stores.registry, (fields.get("a", ""), fields.get("b", ""))
        if not all(ids):
            raise InputError("tick a run under A and another under B")
        try:
            changes = registry.diff_runs(*ids)
            sides = self._run_rows([registry.run_record(id) for id in ids])
        except InputError as error:
            raise PageRefused(HTTPStatus.NOT_FOUND, str(error)) from None
        return self._frame.page(
            "compare.html", title="Compare runs", here="Runs", sides=sides, changes=changes, plain=value_text
        )

    # What live traffic taught.

    def learn(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What became of each slot's traces, and of documents: how much became how little, and why."""
        found: dict[tuple[str, str], LearnedRow] = {}
        rollouts = self._stores.all_rollouts()
        for run in self._stores.registry.runs(kind="train playbook"):
            told = run.result or {}
            if "groups_worded" in told:
                slot = (str(told.get("agent") or "any"), str(told.get("domain") or "any"))
                if slot not in found:
                    found[slot] = self._learned(run, told, rollouts)
            if len(found) == ROWS:
                break
        is_open = bool(self._stores.release_tokens)
        # Those that nobody asked for, the newest first.
        turns = tuple(reversed(self._stores.turns.turns(limit=TASKS)))
        return self._frame.page("learn.html", title="Learning", here="Learning", rows=found, is_open=is_open, turns=turns)

    def _learned(self, run: RunRecord, told: Mapping[str, Any], rollouts: "Sequence[Rollout]") -> LearnedRow:
        candidate, path = told.get("candidate"), self._stores.playbook_file(run)
        brought = [each for each in rollouts if candidate in {arm.candidate_id for arm in each.arms}]
        return LearnedRow(
            run=run,
            told=told,
            funnel=tuple((noun(told[key], *said), told[key]) for key, *said in _FUNNEL if isinstance(told.get(key), int)),
            evidence=tuple(told.get("evidence") or ()),
            rollout=brought[-1] if brought else None,
            held=tuple(each for each in _by_id(path).values() if each.held and not each.retired) if path else (),
            path=path,
        )

    def decide(self, request: Request, fields: Mapping[str, str]) -> Response:
        """A person's word on a bullet: kept in the file that a run wrote, and in its journal, as the command does it."""
        from journeyman.optimizers.playbook import edit

        run = self._known(self._stores.registry.run, request, fields.get("run", "")).run
        path, bullet, why = self._stores.playbook_file(run), fields.get("bullet", ""), fields.get("reason", "").strip()
        if not self._stores.admits(fields):
            raise PageRefused(HTTPStatus.FORBIDDEN, NOT_ADMITTED)
        if path is None:
            raise PageRefused(HTTPStatus.NOT_FOUND, f"What {run.id} wrote does not lie where it was written.")
        if not why:
            raise InputError("reason: write why, for those who come later")
        at, said = datetime.now(UTC).isoformat(timespec="seconds"), {"by": self._who(request), "why": why}
        match fields.get("what"):
            case "approve":
                edit.approve(path, [bullet], **said, at=at)
            case "reject":
                edit.reject(path, [bullet], **said, at=at)
            case "lock" | "unlock" as verb:
                edit.one(path, bullet, verb, Lock(bullet_id=bullet, locked=verb == "lock"), at)
            case "retire":
                edit.one(path, bullet, "retire", Retire(bullet_id=bullet, reason=f"{why} ({self._who(request)})"), at)
            case _:
                raise InputError("what: one of approve, reject, lock, unlock, retire")
        return RedirectResponse(local(fields.get("back", "/learn")), status_code=HTTPStatus.SEE_OTHER)

    def pipelines(self, request: Request, fields: Mapping[str, str]) -> Response:
        """How far pipelines are: the newest run, or the one that is asked for, stage by stage, and those before it."""
        home = self._stores.pipelines
        found = stages.runs_in(home)
        wanted = fields.get("run")
        run = next((each for each in found if wanted in (None, "", each.id)), None)
        if run is None and wanted:
            raise PageRefused(HTTPStatus.NOT_FOUND, "There is no such run of a pipeline here.")
        records = run.records(home) if run else {}
        anew = "/pipelines" if run and run.state == "running" else ""
        return self._frame.page(
            "pipelines.html",
            title="Pipelines",
            here="Runs",
            run=run,
            records=records,
            part=TablePart.of(found, fields.get("after", ""), total=len(found)),
            anew=anew,
        )

    # Evaluations.

    def evaluations(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Which candidates are better than what they would replace."""
        candidate = fields.get("candidate") or None
        found = self._stores.registry.evaluations(candidate_id=candidate)
        if fields.get("gate") == "passed":
            found = [each for each in found if verdict_of(each).may_start]
        typed = {key: fields[key] for key in ("candidate", "gate") if fields.get(key)}
        part = TablePart.of(found, fields.get("after", ""), total=len(found))
        rows = compared_rows(part.rows)
        return self._frame.page("evaluations.html", title="Evaluations", rows=rows, part=part, typed=typed, looks=_looks)

    def evaluation(self, request: Request, fields: Mapping[str, str]) -> Response:
        """On which tasks the candidate is better, and on which worse; the lost ones first."""
        found = self._known(self._stores.registry.evaluation, request)
        sets = {"lost": found.lost, "won": found.won, "same": found.same, "all": found.pairs}
        shown = fields.get("show") if fields.get("show") in sets else next((name for name in sets if sets[name]), "all")
        (row,) = compared_rows([found.evaluation])
        return self._frame.page(
            "evaluation.html",
            title=f"{row.found.title} · {found.evaluation.candidate_id}",
            here="Evaluations",
            row=row,
            sets={name: len(pairs) for name, pairs in sets.items()},
            shown=shown,
            tasks=self._tasks(found, sets[str(shown)][:TASKS]),
            most=TASKS,
            looks=_looks(found.evaluation),
        )

    def _tasks(self, found: EvaluationDetails, pairs: Sequence[Pair]) -> list[TaskRow]:
        one = found.evaluation
        answers = self._stores.registry.answers(one.id, {each.task_id for each in pairs})
        rows = []
        for each in pairs:
            of = answers.get(each.task_id, {})
            before, after = marked(*(_reply(of.get(side)) for side in (one.baseline_id, one.candidate_id)))
            known = next(iter(of.values()), None)
            rows.append(TaskRow(pair=each, asked=known.trace.query if known else "", before=before, after=after))
        return rows

    # Playbooks.

    def playbooks(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Every playbook that was learned, the newest first."""
        registry, after = self._stores.registry, fields.get("after", "")
        count = registry.count("candidates", kind=Kind.PLAYBOOK)
        part = TablePart.of(registry.candidates(kind=Kind.PLAYBOOK, limit=needed(after)), after, total=count)
        stages = {release.candidate_id: release.stage.value for release in registry.releases()}
        of_candidate = defaultdict[str, list[EvaluationRecord]](list)
        for one in reversed(self._stores.evaluations()):
            of_candidate[one.candidate_id].append(one)
        rows = [(each, _bullets(each), stages.get(each.id, ""), gate_word(of_candidate[each.id])) for each in part.rows]
        return self._frame.page("playbooks.html", title="Playbooks", rows=rows, part=part)

    def playbook(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What the agent is told, and whether each line is worth its place."""
        registry = self._stores.registry
        details = self._known(registry.candidate, request)
        if details.candidate.kind is not Kind.PLAYBOOK:
            raise PageRefused(HTTPStatus.NOT_FOUND, f"{details.candidate.id} is a {details.candidate.kind}, and no playbook.")
        playbook = playbook_of(details.candidate)
        parent = self._parent(details.candidate)
        runs = (
            each
            for each in registry.runs(kind="train playbook")
            if (each.result or {}).get("candidate") == details.candidate.id
        )
        run = next((each for each in runs if self._stores.playbook_file(each)), None)
        beside = fields.get("beside", "")
        other = self._known(registry.candidate, request, beside).candidate if beside else None
        known = {bullet.content for bullet in parent.active} if parent else set()
        now = {bullet.content for bullet in playbook.active}
        return self._frame.page(
            "playbook.html",
            title=f"Playbook {details.candidate.id}",
            here="Playbooks",
            details=details,
            word=registry.gate_word(details.candidate.id),
            playbook=playbook,
            retired=[bullet for bullet in playbook.bullets if bullet.retired],
            added=now - known if parent else set(),
            gone=sorted(known - now),
            rows=compared_rows(details.evaluations),
            worth=_worth,
            run=run,
            path=(path := self._stores.playbook_file(run) if run else None),
            now_in_file=_by_id(path) if path else {},
            is_open=bool(self._stores.release_tokens),
            others=[
                each.id for each in registry.candidates(kind=Kind.PLAYBOOK, limit=CHOICES) if each.id != details.candidate.id
            ],
            beside=other.id if other else "",
            differences=_differences(playbook_of(other), playbook) if other else [],
        )

    def _parent(self, candidate: Candidate) -> Playbook | None:
        for id in candidate.parents:
            try:
                found = self._stores.registry.candidate(id).candidate
            except InputError:
                continue
            if found.kind is Kind.PLAYBOOK:
                return playbook_of(found)
        return None

    def _known(self, get: Callable[[str], _Found], request: Request, id: str = "") -> _Found:
        try:
            return get(id or id_of(request.path_params.get("name", "")))
        except InputError as error:
            raise PageRefused(HTTPStatus.NOT_FOUND, str(error)) from None


def _looks(evaluation: EvaluationRecord) -> int:
    """Which look at its held-out tasks it was, from 1."""
    told = evaluation.report.get("report") or evaluation.report
    return int(told.get("looks") or 0) + 1


def _reply(attempt: AttemptRecord | None) -> str:
    return "" if attempt is None else attempt.trace.error or attempt.trace.reply


_WORD = re.compile(r"\s+|\w+|[^\w\s]")
COMPARED = 2_000
"""Characters of an answer that are compared word by word."""
Marked = tuple[tuple[str, str], ...]


def marked(before: str, after: str) -> tuple[Marked, Marked]:
    """Two texts with the words marked that only one of them has."""
    if not before or not after:
        return tuple(((("same", one_line(text, COMPARED)),) if text else ()) for text in (before, after))  # type: ignore[return-value]
    old, new = (_WORD.findall(text[:COMPARED]) for text in (before, after))
    left, right = list[tuple[str, str]](), list[tuple[str, str]]()
    for what, i, j, k, m in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if i < j:
            left.append(("same" if what == "equal" else "gone", "".join(old[i:j])))
        if k < m:
            right.append(("same" if what == "equal" else "new", "".join(new[k:m])))
    return tuple(left), tuple(right)


def playbook_of(candidate: Candidate) -> Playbook:
    """
    Raises:
        InputError: It cannot be read.
    """
    from journeyman.optimizers.playbook import files

    try:
        return files.loads(candidate.body, candidate.id)
    except PlaybookError as error:
        raise InputError(str(error)) from error


def _by_id(path: Path) -> Mapping[str, Bullet]:
    """What a file holds by now; nothing where it cannot be read."""
    from journeyman.optimizers.playbook import edit

    try:
        return {bullet.id: bullet for bullet in edit.editable(path).bullets}
    except JourneymanError:
        return {}


def _differences(before: Playbook, after: Playbook) -> list[str]:
    from journeyman.optimizers.playbook import edit

    return edit.describe(before, after)


def _bullets(candidate: Candidate) -> int | None:
    try:
        return len(playbook_of(candidate).active)
    except InputError:
        return None


def _worth(bullet: Bullet) -> str:
    """How often a bullet helped where it was cited; unknown where it never was."""
    judged = bullet.helpful + bullet.harmful
    return f"{bullet.helpful} of {judged}" if judged else "unknown"
