"""From recorded traces to a candidate, without a line of code: what `journeyman train playbook --from traces` runs.

The latest requests are kept apart. From the earlier ones evidence is gathered in groups, put into rules and merged into a
playbook; the later ones are asked again with it and without it, by model calls alone. What is found is `refused`, `checked`
(it may begin a canary) or `not examinable` (a person must say so). Only live sessions can say that it is better.
"""

import logging
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from journeyman.agents.replay import AskAgain, CallBudget
from journeyman.core.candidate import BASE, Candidate, Kind
from journeyman.core.errors import InputError, ModelError
from journeyman.core.format import counted
from journeyman.core.playbook import Batch, Playbook, Retire
from journeyman.core.rollout import Slot, SlotKind
from journeyman.core.task import Split
from journeyman.core.trace import OWN, OWN_AGENT, Trace
from journeyman.experiments import settings, wiring
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.evaluator import HeldOutEvaluator
from journeyman.experiments.loop import Finding, Iteration, Unproven, improve
from journeyman.experiments.playbook import examination
from journeyman.experiments.playbook.bullet_examination import trials
from journeyman.experiments.playbook.config import TracesConfig
from journeyman.experiments.playbook.recorded_tasks import DrawnTasks, draw, excluded
from journeyman.experiments.playbook.trace_reflector import connect_reflector, reflector_name
from journeyman.experiments.release_policy import ReleasePolicy
from journeyman.experiments.run import Run
from journeyman.io.files import check_writable, locked
from journeyman.io.http_client import Unreachable, probe
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.playbook import edit, files
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.decay import Decay, changed_at, decayed, stands_in
from journeyman.optimizers.playbook.evidence import EvidenceGroup, GroupKind, evidence_groups
from journeyman.optimizers.playbook.from_traces import (
    GroupOutcome,
    LearnedFromTraces,
    LearnTools,
    ReflectionCache,
    asked_about,
    learn,
)
from journeyman.optimizers.playbook.run import spoken
from journeyman.optimizers.playbook.safeguards import cut_echoes
from journeyman.stores import Store, open_store, open_traces
from journeyman.stores.registry import GateVerdict, GateWord, gate_word
from journeyman.stores.traces.base import Query, TraceStore
from journeyman.tracing.evidence import AttemptEvidence, by_role, evidence_of
from journeyman.tracing.redaction import is_shape
from journeyman.tracing.twins import TwinSplit, split_by_time

log = logging.getLogger(__name__)

NO_TRACES = (
    "there are no traces in that time; journeyman serve records some, journeyman collect brings in files, and "
    "--last or --since looks further back"
)
NO_CONTENT = "traces of which no words were kept"
BEFORE_A_CHANGE = "from before a tool changed what it takes"
OWN_RUNS = "attempts of Journeyman's own runs"


class TrafficSlot(NamedTuple):
    """Whose traces are learned from together: another agent or domain is another job."""

    agent: str | None
    domain: str

    def __str__(self) -> str:
        return f"{self.agent or 'any agent'}/{self.domain}"

    @property
    def slot(self) -> Slot:
        """Where what is learned would be served."""
        return Slot(SlotKind.CONTEXT, self.agent or "*", self.domain)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """The traces of one slot, as far as anything can be learned from them."""

    slot: TrafficSlot
    attempts: tuple[AttemptEvidence, ...]
    """Oldest first."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """How many traces are not among them, by why."""

    @property
    def read(self) -> int:
        return len(self.attempts) + sum(self.left_out.values())


def gather(traces: Iterator[Trace]) -> list[Gathered]:
    """Traces by the slot that they belong to, those with most first."""
    kept: defaultdict[TrafficSlot, list[AttemptEvidence]] = defaultdict(list)
    left_out: defaultdict[TrafficSlot, Counter[str]] = defaultdict(Counter)
    for trace in traces:
        slot = TrafficSlot(trace.agent, trace.domain)
        if why := _left_out(trace):
            left_out[slot][why] += 1
        else:
            kept[slot].append(evidence_of(trace))
    slots = sorted(kept.keys() | left_out.keys(), key=lambda slot: (-len(kept[slot]), str(slot)))
    return [Gathered(slot=each, attempts=tuple(kept[each]), left_out=dict(left_out[each].most_common())) for each in slots]


def _left_out(trace: Trace) -> str:
    if trace.source == OWN or trace.agent == OWN_AGENT:
        return OWN_RUNS
    if trace.raw.get("split") in (Split.HELD_OUT, Split.VALIDATION):
        return "attempts at tasks that are to be examined on"
    return NO_CONTENT if is_shape(trace) else excluded(trace)


def support_without(
    traces: Iterator[Trace], gone: Container[str], slots: Container[TrafficSlot]
) -> tuple[list[EvidenceGroup], list[EvidenceGroup]]:
    """The evidence in traces of some slots, and what is left of it without those that are gone."""
    before: list[EvidenceGroup] = []
    after: list[EvidenceGroup] = []
    for found in gather(each for each in traces if TrafficSlot(each.agent, each.domain) in slots):
        if not found.attempts:
            continue
        twins = split_by_time(found.attempts).groups
        stay = [place for place, attempt in enumerate(found.attempts) if attempt.trace.id not in gone]
        before += evidence_groups(found.attempts, cut=cut_echoes, twins=twins)
        after += evidence_groups([found.attempts[at] for at in stay], cut=cut_echoes, twins=[twins[at] for at in stay])
    return before, after


# What is known before anything is asked.


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What there is to learn from, and what to examine on."""

    gathered: Gathered
    split: TwinSplit
    groups: tuple[EvidenceGroup, ...]
    """Of what is learned from; those that most people met first."""
    tasks: DrawnTasks
    """To examine on."""
    learned: tuple[AttemptEvidence, ...] = ()
    """Those that are learned from."""

    def asked(self, least: int) -> list[EvidenceGroup]:
        """The groups that are put into words."""
        return [group for group in self.groups if not asked_about(group, least)]


def prepare(gathered: Gathered, config: TracesConfig) -> Prepared:
    """Split the attempts by time, group the evidence of the earlier, and make tasks of the later. Asks no model."""
    attempts = gathered.attempts
    split = split_by_time(attempts, held_out=config.held_out_share, cut=config.twin_cut)
    # Where nothing can be examined, all of it can be learned from.
    learned = [attempts[place] for place in (split.learn if split.examine else range(len(attempts)))]
    twins = [split.groups[place] for place in (split.learn if split.examine else range(len(attempts)))]
    examined = [attempts[place] for place in split.examine]
    far = {place for place, is_far in enumerate(split.far) if is_far}
    return Prepared(
        gathered=gathered,
        split=split,
        groups=tuple(evidence_groups(learned, cut=cut_echoes, twins=twins)),
        tasks=draw(examined, clusters=split.clusters, far=far),
        learned=tuple(learned),
    )


# The run.


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotResult:
    """What became of one slot."""

    prepared: Prepared
    playbook: Playbook
    path: str
    candidate: str | None
    """The id of what was learned; `None` where nothing was."""
    verdict: str
    """refused, checked or not examinable; unexamined where nobody looked."""
    reason: str
    """One sentence."""
    outcomes: tuple[GroupOutcome, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    examination: Mapping[str, Any] | None = None
    run_id: str = ""
    calls: int = 0
    cost: float | None = 0.0

    @property
    def funnel(self) -> dict[str, int]:
        """How much became how little."""
        groups = self.prepared.groups
        drafts = [draft for outcome in self.outcomes for draft in outcome.drafts]
        return {
            "traces": self.prepared.gathered.read,
            "learned_from": len(self.prepared.split.learn),
            "with_evidence": len({trace for group in groups for trace in group.traces}),
            "groups": len(groups),
            "groups_worded": sum(not outcome.left_out for outcome in self.outcomes),
            "rules": len({draft.insight.content for draft in drafts}),
            "shown": len(self.playbook.active),
            "held": len(self.playbook.held),
        }

    def json(self) -> dict[str, Any]:
        gathered = self.prepared.gathered
        return {
            "agent": gathered.slot.agent,
            "domain": gathered.slot.domain,
            "run_id": self.run_id,
            **self.funnel,
            "left_out": dict(gathered.left_out),
            "evidence": [outcome.json() for outcome in self.outcomes],
            "refused": dict(self.refused),
            "examined": _examined(self.prepared),
            "calls": self.calls,
            "cost": self.cost,
            "playbook_path": self.path,
            "candidate": self.candidate,
            "verdict": self.verdict,
            "reason": self.reason,
            "examination": self.examination,
        }


def _examined(prepared: Prepared) -> dict[str, Any]:
    """What there is to examine on, in numbers."""
    split = prepared.split
    return {"attempts": len(split.examine), "dropped": split.dropped, "leak": split.leak, **prepared.tasks.kinds}


class LearningWatcher(Protocol):
    """Is told how far it is."""

    def stage(self, said: str) -> None:
        """What is done now."""

    def examined(self, calls: int) -> None:
        """How many calls were made."""


class Unseen:
    """Nobody is told. Implements `LearningWatcher`."""

    def stage(self, said: str) -> None:
        pass

    def examined(self, calls: int) -> None:
        pass


class TracesTrainer:
    """Learns from recorded traces, slot by slot."""

    def __init__(self, config: TracesConfig, query: Query, *, watcher: LearningWatcher | None = None) -> None:
        self.config, self.query = config, query
        self.watcher = watcher or Unseen()

    def gathered(self) -> list[Gathered]:
        """The traces that are meant.

        Raises:
            InputError: There are none, or nothing can be learned from any.
        """
        with open_traces(self.config.store, make=False) as store:
            found = gather(self._meant(store))
        if not found:
            raise InputError(NO_TRACES)
        usable = [each for each in found if each.attempts]
        if not usable:
            left_out = sum((Counter(each.left_out) for each in found), Counter[str]())
            if left_out.keys() == {NO_CONTENT}:
                raise InputError(
                    f"no words were kept of {counted(left_out.total(), 'trace')}: nothing can be learned from them; record "
                    "with words from now on: without --no-content, and with content = true in [record]"
                )
            why = ", ".join(f"{count} {why}" for why, count in left_out.items())
            raise InputError(f"nothing can be learned from these traces: {why}")
        return usable

    def _meant(self, store: TraceStore) -> Iterator[Trace]:
        """The traces; of episodes of several agents what each did, where that is wanted."""
        if not self.config.by_role:
            return store.traces(self.query)
        # An agent that was handed work is named by the work, and not by the trace.
        parts = (part for trace in store.traces(replace(self.query, agent=None)) for part in by_role(trace))
        return (part for part in parts if self.query.agent in (None, part.agent))

    async def train(self, gathered: Gathered) -> SlotResult:
        """Learn, examine, and write down what came of it.

        Raises:
            InputError: The playbook cannot be written, or a model is none.
            PlaybookError: Another process learns for this slot.
        """
        with self._alone(gathered.slot), open_store(self.config.store) as store:
            return await _SlotTraining(self.config, gathered, store, self.watcher).result()

    @contextmanager
    def _alone(self, slot: TrafficSlot) -> Iterator[None]:
        lease = Path(self.config.project) / "learn" / _name(slot)
        busy = f"another process learns from the traces of {slot} just now; wait for it"
        with locked(lease, patience=0, busy=busy):
            yield


def playbook_path(slot: TrafficSlot) -> str:
    """Where what is learned for a slot is written, unless somebody names another file."""
    return f"playbooks/{_name(slot)}.json"


def _name(slot: TrafficSlot) -> str:
    return f"{spoken(slot.agent or 'any')}-{spoken(slot.domain)}"


class _SlotTraining:
    """Goes round the loop once for a slot. Implements `experiments.loop.Optimizer`."""

    name = "playbook"

    def __init__(self, config: TracesConfig, gathered: Gathered, store: Store, watcher: LearningWatcher) -> None:
        self.config, self.gathered, self.store, self.watcher = config, gathered, store, watcher
        self.path = Path(config.output_playbook_path or playbook_path(gathered.slot))
        # Before anything is paid for: what it holds can be gone on with, and what is learned can be written.
        begun = edit.editable(self.path) if self.path.exists() else None
        check_writable(self.path)
        self.budget = CallBudget(config.max_calls, config.max_cost)
        self.embedder = Cached(embedders.load(config.embedder))
        self.baseline = production_playbook(store, config.store, gathered.slot)
        self.playbook = begun or self.baseline
        self.learned: LearnedFromTraces | None = None
        self.report: examination.ExaminationReport | None = None
        self.verdict = "unexamined"
        newest = max(attempt.trace.started_at for attempt in gathered.attempts)
        self.stamp = min(newest, wiring.now()).astimezone(UTC).isoformat(timespec="seconds")
        """As of when it is learned: of the newest trace, so that the same traces teach the same on any day."""

    async def result(self) -> SlotResult:
        self.watcher.stage("looking for what recurs")
        self.prepared = prepare(self._since_a_change(), self.config)
        self.learned_as = _learned_as(self.gathered.slot, self.prepared.groups, self.config)
        run = Run.new(f"traces-{_name(self.gathered.slot)}", kind="train playbook", config=_told(self.config), store=self.store)
        self.run = run
        written: list[SlotResult] = []

        def settle(iteration: Iteration) -> None:
            written.append(self._written(iteration))

        with run.tracked():
            await improve(
                self,
                baseline=candidate_of(self.baseline),
                run=run,
                evaluate=self.evaluate,
                releases=ReleasePolicy(),
                settle=settle,
            )
            (result,) = written
            run.end(result.json())
        return result

    def _since_a_change(self) -> Gathered:
        """What is learned from. Rules that no longer hold are found by all that is there: that needs no later requests."""
        attempts = self.gathered.attempts
        rule = Decay(least=self.config.min_principals, days=self.config.bullet_days)
        everything = evidence_groups(attempts, cut=cut_echoes)
        self.decay = decayed(self.playbook, everything, attempts, datetime.fromisoformat(self.stamp), rule)
        self.changed_at = at = changed_at(self.playbook, everything, attempts, rule)
        since = attempts if at is None else tuple(each for each in attempts if each.trace.started_at >= at)
        if len(since) == len(attempts):
            return self.gathered
        left_out = {**self.gathered.left_out, BEFORE_A_CHANGE: len(attempts) - len(since)}
        return replace(self.gathered, attempts=since, left_out=left_out)

    async def optimize(self, baseline: Candidate | None, run: Run) -> Candidate | None:
        """Put the evidence into words, and merge it into the playbook's file."""
        asked = self.prepared.asked(self.config.min_principals)
        groups = counted(len(self.prepared.groups), "group")
        self.watcher.stage(f"{len(asked)} of {groups} of evidence {'is' if len(asked) == 1 else 'are'} put into words")
        reflector = connect_reflector(self.config, self.budget)
        ask = self._asker() if reflector is not None and self.config.evaluate else None
        try:
            tools = LearnTools(
                reflector=reflector,
                curator=Curator(self.embedder),
                budget=self.budget,
                cache=ReflectionCache(Path(self.config.project) / "learn" / "reflections.jsonl"),
                trial=None if ask is None else trials(ask, self.baseline, self.prepared.learned),
                least=self.config.min_principals,
                days=self.config.bullet_days,
                approve_all=self.config.approve == "all",
                name=self.learned_as,
                stamp=self.stamp,
            )
            self.learned = await learn(
                self.prepared.groups, self.playbook, tools, decay=self.decay, attempts=self.gathered.attempts
            )
        finally:
            for client in (reflector, ask):
                if client is not None:
                    await client.close()
        batch = self.learned.batch
        if batch.deltas or not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            begun = replace(self.playbook, created_at=self.playbook.created_at or self.stamp)
            self.playbook = edit.merge(self.path, lambda _: batch, new=begun).playbook
        return candidate_of(self.playbook)

    def _asker(self) -> AskAgain:
        """Who answers recorded requests anew."""
        return examination.asker(settings.load().settings, model=self.config.generator_model, budget=self.budget)

    async def evaluate(self, candidate: Candidate, baseline: Candidate | None) -> Finding:
        """Ask the later requests again, with what was learned and without it."""
        if not self.config.evaluate:
            return Unproven("not examined")
        word = gate_word(tuple(self.store.evaluations(candidate_id=candidate.id)))
        if word.verdict is not GateVerdict.UNEXAMINED and not self._may_tell_now(word):
            self.verdict = word.verdict.value
            return Unproven(f"nothing is new since {word.evaluation_id}: {word.reason}")
        later = counted(len(self.prepared.tasks.tasks), "later request")
        _check_answered(self.prepared.tasks, self.config, self.path)
        self.watcher.stage(f"asking {later} again, as they were and with what was learned")
        ask = self._asker()
        try:
            looking = examination.Examination(
                evaluator=HeldOutEvaluator(store=self.store),
                ask=ask,
                budget=self.budget,
                config=examination.ExaminationConfig(
                    trials=self.config.attempts_per_task,
                    min_groups=self._least_groups(),
                    leave_one_out=self.config.leave_one_out,
                ),
                done=self.watcher.examined,
            )
            self.report = await looking.examine(self.prepared.tasks, self.playbook, self.baseline, id=self.run.id)
        finally:
            await ask.close()
        self.verdict = self.report.verdict.value
        if self.report.dropped:
            self._without(self.report)
        return self.report

    def _least_groups(self) -> int:
        """Of requests to examine on: fewer where what is served fails by what tools say now, and only that is replaced.

        Whoever waits there goes on failing, and the interval that decides holds of ten as of thirty.
        """
        replaces = self.changed_at is not None and stands_in(self.playbook, self.baseline)
        return min(self.config.min_groups, _TO_REPLACE) if replaces else self.config.min_groups

    def _may_tell_now(self, word: GateWord) -> bool:
        """Whether a candidate of which nothing could be told has other requests to be examined on by now."""
        evaluation = self.store.evaluation(word.evaluation_id or "")
        if word.verdict is not GateVerdict.NOT_EXAMINABLE or evaluation is None:
            return False
        run = self.store.run(evaluation.run_id)
        return run is None or (run.result or {}).get("examined") != _examined(self.prepared)

    def _without(self, report: examination.ExaminationReport) -> None:
        """Retire what the examination found to do harm."""
        deltas = tuple(Retire(bullet_id=each.bullet_id, reason=each.reason) for each in report.dropped)
        told = blake2b(repr(deltas).encode(errors="surrogatepass"), digest_size=8).hexdigest()
        batch = Batch(id=f"{self.learned_as}/examination/{told}", deltas=deltas, at=self.stamp)
        self.playbook = edit.merge(self.path, lambda _: batch).playbook

    def _untried(self) -> str:
        """Why rules were not drawn that there may be, where that is so."""
        why = next((each.left_out for each in self.learned.outcomes if each.untried), "") if self.learned else ""
        return f"nothing was learned: {why}" if why else ""

    def _written(self, iteration: Iteration) -> SlotResult:
        learned = self.learned
        outcomes = learned.outcomes if learned else ()
        return SlotResult(
            prepared=self.prepared,
            playbook=self.playbook,
            path=str(self.path),
            candidate=found.id if (found := candidate_of(self.playbook)) else None,
            verdict=self.verdict,
            reason=self._untried() or _nothing(self.prepared, self.config, outcomes)
            if iteration.finding is None
            else iteration.reason,
            outcomes=outcomes,
            refused=learned.refused if learned else {},
            examination=self.report.json() if self.report else None,
            run_id=self.run.id,
            calls=self.budget.calls,
            cost=None if self.budget.unpriced else self.budget.cost,
        )


def _check_answered(tasks: DrawnTasks, config: TracesConfig, path: Path) -> None:
    """Find out whether anybody is there to answer requests again, before all of them are asked in vain.

    Raises:
        ModelError: Nobody is: another model would be another examination, and has to be named.
    """
    if config.generator_model:
        wiring.check(config.generator_model)
        return
    gone = dict[str, str]()
    for url, model in {each.request.base_url: each.request.model for each in tasks.tasks}.items():
        try:
            if url:
                probe(url)
                return
            gone[url] = "it is not recorded who answered these requests"
        except Unreachable as error:
            gone[url] = f"nobody listens at {url} ({error}), where {model} answered these requests"
    if gone:
        raise ModelError(
            f"{next(iter(gone.values()))}; start it, name a model with --model, or do without an examination (--no-evaluate). "
            f"What was learned is in {path}, and is not asked for again"
        )


def _learned_as(slot: TrafficSlot, groups: Sequence[EvidenceGroup], config: TracesConfig) -> str:
    """What is learned is called by what it is learned from: whoever was killed and begins anew learns the same."""
    how = (config.min_principals, config.bullet_days, config.approve, config.embedder, reflector_name(config))
    said = repr((how, sorted(group.digest for group in groups)))
    return f"traces-{_name(slot)}-{blake2b(said.encode(errors='surrogatepass'), digest_size=6).hexdigest()}"


def _nothing(prepared: Prepared, config: TracesConfig, outcomes: Sequence[GroupOutcome]) -> str:
    """Why nothing new was learned, in one sentence."""
    groups, attempts = prepared.groups, prepared.gathered.attempts
    if not groups:
        return "nothing was learned: no tool refused a call, and no person corrected an answer"
    if asked := {group.id for group in prepared.asked(config.min_principals)}:
        why = [each.left_out for each in outcomes if each.group.id in asked and each.left_out]
        if len(why) == len(asked):
            return f"nothing was learned: {why[0]}"
        drafts = [draft for each in outcomes for draft in each.drafts]
        if drafts and all(draft.held for draft in drafts):
            return "nothing may be shown before a person has approved it: every rule that was drawn is held"
        drawn = drafts or any(each.refused for each in outcomes)
        return f"nothing was learned: {'no rule is new' if drawn else 'the reflector drew no rule from what is there'}"
    refused = [member for group in groups if group.kind is GroupKind.REJECTED for member in group.members]
    if refused and all(group.is_flake for group in groups):
        again = sum(member.is_flake for member in refused)
        return f"nothing to learn: {again / len(refused):.0%} of {len(refused)} refused calls were repaired by asking again"
    people = len({attempt.principal for attempt in attempts})
    if people >= config.min_principals:
        return f"nothing was learned: nothing was met by {config.min_principals} people, as a rule needs"
    named = "" if any(attempt.principal_known for attempt in attempts) else (
        "; name the customer in each request (user, safety_identifier or metadata.user_id), or give each a session of its own"
    )  # fmt: skip
    one = "is of one principal" if people == 1 else f"is of {people} principals"
    return f"nothing was learned: all of it {one}, and a rule needs {config.min_principals}{named}"


def _told(config: TracesConfig) -> dict[str, Any]:
    """The settings as a run keeps them: everything but where its store is."""
    return {name: value for name, value in asdict(config).items() if name != "store"}


def production_playbook(store: Store, url: str, slot: TrafficSlot) -> Playbook:
    """What is served in a slot now; an empty playbook where nothing is."""
    from journeyman.stores.rollouts import open_rollouts

    with open_rollouts(url, make=False) as kept:
        served = kept.live().baseline(slot.slot).candidate_id
    candidate = None if served == BASE else store.candidate(served)
    if candidate is None or candidate.kind is not Kind.PLAYBOOK:
        return Playbook()
    return files.loads(candidate.body, f"the playbook in production of {slot}")


_TO_REPLACE = 10
"""Requests by which it can be shown that a rule holds in place of one that is served and fails."""
