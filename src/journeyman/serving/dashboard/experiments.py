"""Pages of what was run, learned and proven: runs, their comparison, evaluations, and playbooks."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.comparison import ComparisonVerdict
from journeyman.core.errors import InputError, PlaybookError
from journeyman.core.evaluation import Pair
from journeyman.core.format import value_text
from journeyman.core.playbook import Bullet, Playbook
from journeyman.serving.dashboard.charts import Whisker, whiskers
from journeyman.serving.dashboard.layout import PageRefused, PageRenderer, id_of, one_line
from journeyman.stores.base import AttemptRecord, EvaluationRecord, RunRecord
from journeyman.stores.registry import EvaluationDetails, GateVerdict, Registry, comparison_of, verdict_of

if TYPE_CHECKING:
    from journeyman.stores.rollouts import RolloutStore

MOST_ROWS = 200
"""Of a list of runs, evaluations or playbooks."""
TASKS = 50
"""Tasks that the page of an evaluation shows side by side."""
_Found = TypeVar("_Found")


class ProjectStores:
    """What a store knows beside traces, opened when a page first asks for it. Each is used by several threads."""

    def __init__(self, url: str | Path, *, release_tokens: Sequence[str] = ()) -> None:
        """With one of the tokens, who uses a page may change what is released; without any, nobody may there."""
        self._url = url
        self.release_tokens = tuple(release_tokens)

    @cached_property
    def registry(self) -> Registry:
        from journeyman.stores import open_store

        return Registry(open_store(self._url))

    @cached_property
    def rollouts(self) -> "RolloutStore":
        from journeyman.stores.rollouts import open_rollouts

        return open_rollouts(self._url)


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

    def __init__(self, stores: ProjectStores, frame: PageRenderer) -> None:
        self._stores, self._frame = stores, frame

    # Runs.

    def runs(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What ran, what came out, what it took."""
        found = self._stores.registry.runs(kind=fields.get("kind") or None, limit=MOST_ROWS)
        rows = self._run_rows(found)
        return self._frame.page("runs.html", title="Runs", rows=rows, kind=fields.get("kind", ""))

    def _run_rows(self, runs: Sequence[RunRecord]) -> list[RunRow]:
        latest: dict[str, EvaluationRecord] = {}
        for each in self._stores.registry.evaluations():
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
            one, other = (self._run_rows([registry.run(id).run])[0] for id in ids)
        except InputError as error:
            raise PageRefused(HTTPStatus.NOT_FOUND, str(error)) from None
        return self._frame.page(
            "compare.html", title="Compare runs", here="Runs", sides=(one, other), changes=changes, plain=value_text
        )

    # Evaluations.

    def evaluations(self, request: Request, fields: Mapping[str, str]) -> Response:
        """Which candidates are better than what they would replace."""
        candidate = fields.get("candidate") or None
        found = self._stores.registry.evaluations(candidate_id=candidate, limit=MOST_ROWS)
        return self._frame.page(
            "evaluations.html", title="Evaluations", rows=compared_rows(found), candidate=candidate or "", looks=_looks
        )

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
        registry = self._stores.registry
        found = registry.candidates(kind=Kind.PLAYBOOK, limit=MOST_ROWS)
        stages = {release.candidate_id: release.stage.value for release in registry.releases()}
        rows = [(each, _bullets(each), stages.get(each.id, ""), registry.gate_word(each.id)) for each in found]
        return self._frame.page("playbooks.html", title="Playbooks", rows=rows)

    def playbook(self, request: Request, fields: Mapping[str, str]) -> Response:
        """What the agent is told, and whether each line is worth its place."""
        registry = self._stores.registry
        details = self._known(registry.candidate, request)
        if details.candidate.kind is not Kind.PLAYBOOK:
            raise PageRefused(HTTPStatus.NOT_FOUND, f"{details.candidate.id} is a {details.candidate.kind}, and no playbook.")
        playbook = _playbook(details.candidate)
        parent = self._parent(details.candidate)
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
        )

    def _parent(self, candidate: Candidate) -> Playbook | None:
        for id in candidate.parents:
            try:
                found = self._stores.registry.candidate(id).candidate
            except InputError:
                continue
            if found.kind is Kind.PLAYBOOK:
                return _playbook(found)
        return None

    def _known(self, get: Callable[[str], _Found], request: Request) -> _Found:
        try:
            return get(id_of(request.path_params["name"]))
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


def _playbook(candidate: Candidate) -> Playbook:
    from journeyman.optimizers.playbook import files

    try:
        return files.loads(candidate.body, candidate.id)
    except PlaybookError as error:
        raise InputError(str(error)) from error


def _bullets(candidate: Candidate) -> int | None:
    try:
        return len(_playbook(candidate).active)
    except InputError:
        return None


def _worth(bullet: Bullet) -> str:
    """How often a bullet helped where it was cited; unknown where it never was."""
    judged = bullet.helpful + bullet.harmful
    return f"{bullet.helpful} of {judged}" if judged else "unknown"
