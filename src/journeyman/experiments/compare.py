"""Is the candidate better than the baseline? Both attempt the same tasks, and a gate decides.

report = evaluate(candidate, baseline, held_out_tasks, verifier)
print(report.reason, report.gain, report["gain"])
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from journeyman.agents.attempt import Agent, Attempt, attempt_all, together
from journeyman.core.errors import InputError
from journeyman.core.evaluation import METRICS, Decision, Evaluation, Guarded, Pair, Result, Totals, pair
from journeyman.core.format import html_table, money
from journeyman.core.gate import BetterOnHeldOut, Gate, interval_of
from journeyman.core.task import Task, is_name
from journeyman.core.trace import Trace, total
from journeyman.experiments.settings import AttemptSettings
from journeyman.io.config import config
from journeyman.io.event_loop import waited
from journeyman.tasks import rows
from journeyman.tasks.base import Verifier

_GATE = BetterOnHeldOut()


@config
class EvaluateConfig(AttemptSettings):
    """How thoroughly to look."""

    looks: int = 0
    """How often these held-out tasks were looked at before, by other candidates."""
    contaminated: tuple[str, ...] = ()
    """Held-out tasks that were left out, as one of the two was trained on them."""
    prefix: str = "evaluation"
    """What the trace ids begin with."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    done: Callable[[Attempt], None] = lambda _: None
    """Called after each attempt of either side, for a progress bar."""


@dataclass(frozen=True, kw_only=True)
class EvaluationReport:
    """An evaluation and what the gate made of it. Read it as attributes, or by the names of the documented JSON."""

    evaluation: Evaluation
    decision: Decision
    baseline_attempts: tuple[Attempt, ...] = ()
    candidate_attempts: tuple[Attempt, ...] = ()
    shown: frozenset[str] = frozenset()
    """Ids of the bullets that stood in a prompt of the candidate's: what was examined of a playbook."""

    @property
    def tasks(self) -> int:
        return self.evaluation.tasks

    @property
    def unknown(self) -> int:
        return self.evaluation.unknown

    @property
    def baseline(self) -> float | None:
        return self.evaluation.baseline

    @property
    def candidate(self) -> float | None:
        return self.evaluation.candidate

    @property
    def gain(self) -> float | None:
        return self.evaluation.gain

    @property
    def gain_shrunk(self) -> float | None:
        return self.evaluation.gain_shrunk

    @property
    def low(self) -> float | None:
        return self._interval[0]

    @property
    def high(self) -> float | None:
        return self._interval[1]

    @property
    def passed(self) -> bool:
        return self.decision.passed

    @property
    def reason(self) -> str:
        return self.decision.reason

    @cached_property
    def _interval(self) -> tuple[float | None, float | None]:
        """The 95 % one, whichever gate decided; its own level is in its sentence."""
        return interval_of(self.evaluation) if self.evaluation.pairs else (None, None)

    def json(self) -> dict[str, Any]:
        """`{tasks, unknown, baseline, candidate, gain, low, high, passed, reason}`, and beyond it counts, broken tasks, cost.

        Means, gain and the 95 % interval are null when no task was compared.
        """
        found = self.evaluation
        low, high = self._interval
        return {
            "tasks": self.tasks,
            "unknown": self.unknown,
            "baseline": self.baseline,
            "candidate": self.candidate,
            "gain": self.gain,
            "low": low,
            "high": high,
            "passed": self.passed,
            "reason": self.reason,
            "wins": found.wins,
            "losses": found.losses,
            "broken": list(found.broken),
            "looks": found.looks,
            "only_baseline": len(found.only_baseline),
            "only_candidate": len(found.only_candidate),
            "unknown_attempts": found.unknown_attempts,
            "decided_low": self.decision.low,
            "decided_high": self.decision.high,
            "level": self.decision.level,
            "chosen_among": found.looks + 1,
            "gain_shrunk": self.gain_shrunk,
            "contaminated": list(found.contaminated),
            "clusters": len(set(found.clusters)) or None,
            "guardrails": [each.json() for each in self.decision.guarded],
            "planned_tasks": self.decision.planned_tasks,
            "spent": {"baseline": _json(found.spent_baseline), "candidate": _json(found.spent_candidate)},
        }

    def record(self) -> dict[str, Any]:
        """As it is kept: beyond the documented JSON also each task's scores, so that `restored` gives the same report again."""
        only = {name: list(getattr(self.evaluation, name)) for name in ("only_baseline", "only_candidate")}
        return {**self.json(), "pairs": self.evaluation.pairs_json(), "only": only, "shown": sorted(self.shown)}

    @classmethod
    def restored(cls, record: Mapping[str, Any]) -> "EvaluationReport":
        """The report that `record` made, but for its attempts."""
        evaluation = Evaluation(
            pairs=tuple(Pair(**pair) for pair in record["pairs"]),
            unknown=record["unknown"],
            # Evaluations of before knew no task with some of its verdicts.
            unknown_attempts=record.get("unknown_attempts", 0),
            looks=record["looks"],
            spent_baseline=Totals(**record["spent"]["baseline"]),
            spent_candidate=Totals(**record["spent"]["candidate"]),
            contaminated=tuple(record["contaminated"]),
            **{name: tuple(ids) for name, ids in record["only"].items()},
        )
        low, high, level = (record[name] for name in ("decided_low", "decided_high", "level"))
        # Evaluations of before knew no guardrails.
        guarded = tuple(Guarded(**{n: v for n, v in each.items() if n != "change"}) for each in record.get("guardrails", ()))
        decision = Decision(
            record["passed"],
            record["reason"],
            low=low,
            high=high,
            level=level,
            guarded=guarded,
            planned_tasks=record.get("planned_tasks"),
        )
        return cls(evaluation=evaluation, decision=decision, shown=frozenset(record["shown"]))

    def __getitem__(self, key: str) -> Any:
        return self.json()[key]

    def __repr__(self) -> str:
        passed = "passed" if self.passed else "not passed"
        return f"EvaluationReport({passed}: {_share(self.baseline)} → {_share(self.candidate)} on {self.tasks} tasks)"

    def _repr_html_(self) -> str:
        """A table, where a notebook shows it."""
        return html_table(("", "Baseline", "Candidate"), self._rows(), title=self._verdict)

    @property
    def _verdict(self) -> str:
        return f"{'Passed' if self.passed else 'Not passed'}: {self.reason}"

    def _rows(self) -> list[tuple[str, ...]]:
        before, after = self.evaluation.spent_baseline, self.evaluation.spent_candidate
        unknown = [("Tasks without a verdict", f"{self.unknown}", "")] if self.unknown else []
        gain = "unknown" if self.gain is None else f"{self.gain:+.1%}"
        low, high = self._interval
        between = "" if low is None or high is None else f"95 %: {low:+.1%} to {high:+.1%}"
        return [
            ("Right", _share(self.baseline), _share(self.candidate)),
            ("Gain", gain, between),
            ("Tasks", f"{self.tasks}", f"{self.evaluation.wins} better, {self.evaluation.losses} worse"),
            *unknown,
            ("Input tokens", *(_least(each.input_tokens, each.calls_without_usage) for each in (before, after))),
            ("Output tokens", *(_least(each.output_tokens, each.calls_without_usage) for each in (before, after))),
            ("Cost", *(_least(each.cost, each.calls_without_price, money) for each in (before, after))),
        ]

    def keys(self) -> Iterable[str]:
        """With `[]`, this makes `dict(report)` the documented JSON."""
        return self.json().keys()


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1%}"


def _least(value: float | None, left_out: int, shown: Callable[[float], str] = "{:,.0f}".format) -> str:
    """A sum, of which it is said where calls are not in it."""
    return "?" if value is None else f"{'at least ' if left_out else ''}{shown(value)}"


def _json(totals: Totals) -> dict[str, Any]:
    left_out = {name: count for name in ("calls_without_usage", "calls_without_price") if (count := getattr(totals, name))}
    told = {name: getattr(totals, name) for name in ("attempts", "input_tokens", "output_tokens", "cost", "seconds")}
    return {**told, **left_out}


def evaluate(
    candidate: Agent,
    baseline: Agent,
    tasks: Sequence[Task],
    verifier: Verifier,
    *,
    gate: Gate = _GATE,
    config: EvaluateConfig | None = None,
) -> EvaluationReport:
    """Let both attempt the tasks, and ask the gate. Who is within an event loop had better await `evaluate_agents`.

    A failed or unverified attempt stops nothing: it is bounded by 0 and 1, and its task unknown where it was the only one.
    """
    return waited(evaluate_agents(candidate, baseline, tasks, verifier, gate=gate, config=config))


async def evaluate_agents(
    candidate: Agent,
    baseline: Agent,
    tasks: Sequence[Task],
    verifier: Verifier,
    *,
    gate: Gate = _GATE,
    config: EvaluateConfig | None = None,
) -> EvaluationReport:
    """`evaluate`, awaited."""
    config = config or EvaluateConfig()
    sides = {"baseline": baseline, "candidate": candidate}
    before, after = await together(_trials(agent, tasks, verifier, side, config) for side, agent in sides.items())
    evaluation = replace(
        pair(results(before), results(after), looks=config.looks),
        spent_baseline=_totals(before),
        spent_candidate=_totals(after),
        contaminated=config.contaminated,
    )
    return EvaluationReport(
        evaluation=evaluation,
        decision=gate.decide(evaluation),
        baseline_attempts=before,
        candidate_attempts=after,
        shown=frozenset(id for attempt in after for id in attempt.trace.shown),
    )


async def _trials(
    agent: Agent, tasks: Sequence[Task], verifier: Verifier, side: str, config: EvaluateConfig
) -> tuple[Attempt, ...]:
    """All attempts of one side; the trace ids say which trial they were, `prefix/side/trial/task id`."""
    rounds = [
        attempt_all(agent, tasks, verifier, prefix=f"{config.prefix}/{side}/{trial}", clock=config.clock, done=config.done)
        for trial in range(config.attempts_per_task)
    ]
    return tuple(attempt for attempts in await together(rounds) for attempt in attempts)


def _totals(attempts: Sequence[Attempt]) -> Totals:
    traces = [attempt.trace for attempt in attempts]
    calls = [call for trace in traces for call in trace.calls]
    counted = [call for call in calls if call.input_tokens is not None and call.output_tokens is not None]
    priced = [call.cost for call in calls if call.cost is not None]
    return Totals(
        attempts=len(traces),
        input_tokens=total(call.input_tokens for call in counted) if counted or not calls else None,
        output_tokens=total(call.output_tokens for call in counted) if counted or not calls else None,
        cost=sum(priced) if priced or not calls else None,
        calls_without_usage=len(calls) - len(counted),
        calls_without_price=len(calls) - len(priced),
        seconds=total(call.seconds for trace in traces for call in trace.calls),
    )


def results(attempts: Iterable[Attempt]) -> list[Result]:
    """What a file of results holds. Attempts at one task are numbered in their order."""
    seen: dict[str, int] = {}
    found = []
    for attempt in attempts:
        trial = seen[attempt.task.id] = seen.get(attempt.task.id, -1) + 1
        found.append(
            Result(
                task_id=attempt.task.id,
                score=attempt.score.total,
                trial=str(trial),
                cluster=attempt.task.cluster,
                metrics=_metrics(attempt.trace),
            )
        )
    return found


def _metrics(trace: Trace) -> dict[str, float]:
    """What is known of what an attempt took."""
    taken = {
        "cost": trace.cost,
        "seconds": total(call.seconds for call in trace.calls),
        "tokens": total((trace.input_tokens, trace.output_tokens)),
    }
    # Where no call was recorded, nobody knows what was called.
    return {name: float(value) for name, value in taken.items() if value is not None and trace.calls}


def compare(baseline: Iterable[Result], candidate: Iterable[Result], *, gate: Gate = _GATE, looks: int = 0) -> EvaluationReport:
    """The same verdict on results that somebody else has recorded."""
    evaluation = pair(baseline, candidate, looks=looks)
    return EvaluationReport(evaluation=evaluation, decision=gate.decide(evaluation))


def result_lines(found: Iterable[Result]) -> Iterator[str]:
    """The lines of a file of results, without their ends."""
    for r in found:
        more = {"cluster": r.cluster} if r.cluster else {}
        yield json.dumps({"task_id": r.task_id, "score": r.score, "trial": r.trial, **more, **r.metrics}, ensure_ascii=False)


def read_results(path: Path | str) -> list[Result]:
    """The results in a file, one JSON object a line, gzipped or not: `{"task_id": …, "score": 0 to 1 or null[, "trial": …]}`.

    A row may also name the task's cluster, and what the attempt took. True and false count as 1 and 0. Others are ignored.

    Raises:
        InputError: Some rows cannot be used, or stand twice; the message names all of them by file and line.
    """
    bad = rows.Complaints(f'{path} holds rows that cannot be used; a row is {{"task_id": …, "score": 0 to 1 or null}}')
    found: dict[tuple[str, str], tuple[str, Result]] = {}
    for row in rows.read(path, bad):
        result = _result(row, bad)
        if result is None:
            continue
        key = (result.task_id, result.trial)
        first, _ = found.setdefault(key, (row.where, result))
        if first != row.where:
            bad.add(row.where, f"task {key[0]!r}, trial {key[1]!r} stands at {first} already")
    bad.check()
    if not found:
        raise InputError(f"{path} holds no results: it is empty")
    return [result for _, result in found.values()]


def _result(row: rows.FileRow, bad: rows.Complaints) -> Result | None:
    task_id, trial, score = row.value.get("task_id"), row.value.get("trial", 0), row.value.get("score", "missing")
    cluster = row.value.get("cluster")
    metrics = {name: value for name in METRICS if (value := row.value.get(name)) is not None}
    strange = next((name for name, value in metrics.items() if not _is_amount(value)), None)
    if not is_name(task_id):
        bad.add(row.where, "no task_id" if task_id in (None, "") else f"task_id is {task_id!r}, and must be a text or a number")
    elif not is_name(trial):
        bad.add(row.where, f"trial is {trial!r}, and must be a text or a number")
    elif cluster is not None and not is_name(cluster):
        bad.add(row.where, f"cluster is {cluster!r}, and must be a text or a number")
    elif strange:
        bad.add(row.where, f"{strange} is {metrics[strange]!r}, and must be a number from 0 on, or null")
    elif score is not None and (not isinstance(score, int | float) or not 0 <= score <= 1):
        bad.add(row.where, "no score" if score == "missing" else f"score is {score!r}, and must be between 0 and 1, or null")
    else:
        return Result(
            task_id=str(task_id),
            score=None if score is None else float(score),
            trial=str(trial),
            cluster="" if cluster is None else str(cluster),
            metrics=metrics,
        )
    return None


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
