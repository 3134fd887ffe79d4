"""A playbook learned from recorded traces: groups of evidence are put into words, held against each other, and merged.

The environment or a named person writes rules. A reflector only words what a group says; what several people met alike counts
as many votes as there are people; what is doubtful waits for a person (`Bullet.held`).
"""

import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from journeyman.agents.replay import CallBudget
from journeyman.core.playbook import (
    LAPSED,
    Add,
    Batch,
    Bullet,
    BulletOrigin,
    Delta,
    Evidence,
    Insight,
    InsightVerdict,
    Playbook,
    Retire,
    bullet_id,
    normalised,
)
from journeyman.core.task import fingerprints
from journeyman.io.jsonl import iter_jsonl, json_object
from journeyman.models.base import Model
from journeyman.optimizers.playbook import safeguards
from journeyman.optimizers.playbook.curator import Curator, Origin
from journeyman.optimizers.playbook.decay import comes_back
from journeyman.optimizers.playbook.evidence import ORIGINS, TRACES, EvidenceGroup, GroupKind
from journeyman.optimizers.playbook.group_reflector import (
    MARGIN,
    DraftRule,
    calls_needed,
    instructions,
    reflect_on,
)
from journeyman.optimizers.playbook.journal import delta_to_json
from journeyman.tracing.evidence import AttemptEvidence, ToolDefinition

log = logging.getLogger(__name__)


class Tried(NamedTuple):
    """What a rule did on the evidence that it was drawn from."""

    held: str = ""
    """Why a person must see it; empty where it did what that says, or where that cannot be told."""
    unknown: str = ""
    """Why nobody could look; empty where somebody did."""
    content: str = ""
    """The rule without the clauses that had no part in that; empty where it is as it was."""


class Trial(Protocol):
    """Tries a rule on the evidence that it was drawn from."""

    @property
    def name(self) -> str:
        """Of whoever follows the rule."""

    async def __call__(self, draft: DraftRule) -> Tried: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnTools:
    """What learning needs from outside."""

    reflector: Model | None
    """`None` where there is none: then a template puts the evidence into words."""
    curator: Curator
    budget: CallBudget
    """That the reflector keeps to."""
    cache: "ReflectionCache"
    trial: Trial | None = None
    """`None` where nobody is asked: then what a reflector writes is not tried."""
    least: int = 3
    """People who must have met the same."""
    days: int = 90
    """After which a rule is retired whose evidence was not met again; 0 for never."""
    approve_all: bool = False
    """Whether a person sees every rule."""
    name: str = ""
    """Of the run."""
    stamp: str = ""
    """When, in ISO 8601."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """What became of a group of evidence."""

    group: EvidenceGroup
    drafts: tuple[DraftRule, ...] = ()
    refused: tuple[str, ...] = ()
    """Why rules that were drawn from it may not become bullets. Their words are not kept."""
    left_out: str = ""
    """Why it was not put into words; empty where it was."""
    untried: bool = False
    """Whether there were rules that could not be tried: they are not drawn this time."""
    calls: int = 0

    def json(self) -> dict[str, Any]:
        group = self.group
        return {
            "id": group.id,
            "kind": group.kind.value,
            "tool": group.tool,
            "argument": group.argument if group.is_shared else "",
            "principals": len(group.principals),
            "traces": len(group.traces),
            "repairs": dict(group.repairs),
            "rules": sum(not draft.held for draft in self.drafts),
            "held": [draft.held for draft in self.drafts if draft.held],
            "refused": list(self.refused),
            "left_out": self.left_out,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedFromTraces:
    """What a run learned."""

    batch: Batch
    outcomes: tuple[GroupOutcome, ...]
    unusable: int = 0
    """Groups whose reflections could not be used."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Rules that may not become bullets, by reason."""


SESSIONS = "nobody says on whose behalf these attempts were made, so sessions were counted as people"

_CACHED = {"key", "drafts", "refused", "left_out"}


class ReflectionCache:
    """What was drawn from a group is not asked for again: a run without news, or one that was killed, pays for nothing twice.

    One JSON object a line. What personal data or a copy kept from being learned is not in it.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Mapping[str, Any]] = {}
        if path is not None and path.exists():
            # A last line without its end, or one that was damaged, is asked for again.
            for line in iter_jsonl(path, json_object, bad=lambda _, __: None, unfinished=False):
                if set(line.value) == _CACHED:
                    self._known[line.value["key"]] = line.value

    def get(self, key: str, group: EvidenceGroup) -> GroupOutcome | None:
        row = self._known.get(key)
        if row is None:
            return None
        drafts = (DraftRule(insight=Insight(**each["insight"]), group=group, held=each["held"]) for each in row["drafts"])
        return GroupOutcome(group=group, drafts=tuple(drafts), refused=tuple(row["refused"]), left_out=row["left_out"])

    def put(self, key: str, outcome: GroupOutcome) -> None:
        """Keep it; on disk when this returns."""
        told = ("content", "section", "domain", "about")
        drafts = [
            {"insight": {name: getattr(draft.insight, name) for name in told}, "held": draft.held} for draft in outcome.drafts
        ]
        row = {"key": key, "drafts": drafts, "refused": list(outcome.refused), "left_out": outcome.left_out}
        self._known[key] = row
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab+") as file:
                # Behind half a line, which a crash has left, it would be half of another one.
                whole = not file.tell() or (file.seek(-1, os.SEEK_END), file.read(1))[1] == b"\n"
                file.write((b"" if whole else b"\n") + json.dumps(row).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def asked_about(group: EvidenceGroup, least: int) -> str:
    """Why a group is not put into words; empty where it is."""
    if group.is_flake:
        again = (
            f"{group.flakes} of {len(group.members)} were taken when they were made again"
            if group.flakes
            else "a service was down"
        )
        return f"a flake, and no rule: {again}"
    if group.kind in (GroupKind.SAID, GroupKind.DOCUMENT):
        return ""
    if len(group.principals) < least:
        met = len(group.principals)
        return f"{met} {'person has' if met == 1 else 'people have'} met it, and {least} are needed"
    return ""


async def learn(
    groups: Sequence[EvidenceGroup],
    playbook: Playbook,
    tools: LearnTools,
    *,
    decay: Sequence[Delta] = (),
    attempts: Sequence[AttemptEvidence] = (),
) -> LearnedFromTraces:
    """Put groups into words, and into deltas on a playbook.

    Args:
        groups: Those that most people met first: where a limit ends the asking, they were asked about.
        decay: What becomes of bullets that are there, beside it.
        attempts: All of the time that is looked at, whatever the groups are made of: by it a rule that lapsed may come back.
    """
    declared = _declared_by(groups)
    known = {bullet.id for bullet in playbook.bullets if not bullet.retired.startswith(LAPSED)}
    outcomes = [await _outcome(group, tools, declared, known) for group in groups]
    drafts = _settled([draft for outcome in outcomes for draft in outcome.drafts])
    if tools.approve_all:
        drafts = [replace(draft, held=draft.held or "every rule is to be seen by a person") for draft in drafts]
    batch, rejected = _merged(drafts, playbook, groups, tools, decay, _returning(playbook, drafts, attempts, tools.least))
    refused = Counter(reason for outcome in outcomes for reason in outcome.refused)
    refused.update(rejected)
    return LearnedFromTraces(batch=batch, outcomes=tuple(outcomes), refused=refused)


def _declared_by(groups: Sequence[EvidenceGroup]) -> Mapping[str, ToolDefinition]:
    """The tools that calls of all evidence were made of, by name."""
    calls = [member.call for group in groups for member in group.members if member.call is not None]
    return {tool.name: tool for tool in safeguards.tools_of(calls)}


async def _outcome(
    group: EvidenceGroup, tools: LearnTools, declared: Mapping[str, ToolDefinition], known: set[str]
) -> GroupOutcome:
    if why := asked_about(group, tools.least):
        return GroupOutcome(group=group, left_out=why)
    if tools.reflector is None:
        return _safe(group, _templated(group, tools.least), tools.least, declared)
    key = _key(tools.reflector, group, tools)
    if (cached := tools.cache.get(key, group)) is not None:
        known |= {_bullet_id(draft) for draft in cached.drafts if not draft.held}
        return cached
    needed = calls_needed(group, terse=tools.reflector.dialect == "terse")
    if not needed:
        return GroupOutcome(group=group, left_out="the embedded model reads error messages alone")
    if tools.budget.left is not None and tools.budget.left < needed:
        return GroupOutcome(group=group, left_out="the limit on calls was reached; raise --max-calls")
    found = await reflect_on(tools.reflector, group, tools.curator.embedder, least=tools.least)
    if found.unusable:
        return GroupOutcome(group=group, left_out=f"not put into words: {found.unusable}", calls=len(found.calls))
    outcome = replace(_safe(group, found.drafts, tools.least, declared), calls=len(found.calls))
    if tools.trial is not None:
        outcome = await _tried(outcome, tools.trial, known)
    if not outcome.left_out:
        tools.cache.put(key, outcome)
    return outcome


async def _tried(outcome: GroupOutcome, trial: Trial, known: set[str]) -> GroupOutcome:
    """What a tool refused says what is right: a rule from it by which the agent does not do that waits for a person.

    One that could not be tried is not drawn this time.

    Args:
        known: The bullets that are there already, and those of rules that did; they are not tried again.
    """
    kept = []
    for draft in outcome.drafts:
        if not draft.held and _bullet_id(draft) not in known:
            found = await trial(draft)
            if found.unknown:
                why = f"its rules could not be tried on it: {found.unknown}"
                return replace(outcome, drafts=(), left_out=why, untried=True)
            said = replace(draft.insight, content=found.content or draft.insight.content)
            draft = replace(draft, held=found.held, insight=said)
            known |= set() if found.held else {_bullet_id(draft)}
        kept.append(draft)
    return replace(outcome, drafts=tuple(kept))


def _bullet_id(draft: DraftRule) -> str:
    return bullet_id(draft.insight.domain, draft.insight.content)


def _key(model: Model, group: EvidenceGroup, tools: LearnTools) -> str:
    tried = f"\x1f{tools.trial.name}" if tools.trial else ""
    said = f"{model.name}\x1f{model.dialect}\x1f{instructions(group)}\x1f{tools.least}\x1f{group.digest}{tried}"
    return blake2b(said.encode(errors="surrogatepass"), digest_size=16).hexdigest()


def _templated(group: EvidenceGroup, least: int) -> tuple[DraftRule, ...]:
    """The rule that needs no model: what a tool refuses, and what to look at before it is called."""
    if group.kind is not GroupKind.REJECTED:
        return ()
    look = f"check {group.argument} before the call" if group.argument else "see that this does not hold before the call"
    insight = Insight(
        content=f'{group.tool} is refused with "{group.wording(least)}": {look}.',
        section=InsightVerdict.NEUTRAL,
        domain=group.domain,
    )
    # Who says it himself is no witness that the tool does.
    others = tuple(member for member in group.members if not safeguards.says_after(insight.content, member.words))
    enough = len({member.principal for member in others}) >= least
    return (DraftRule(insight=insight, group=group, seen=others if enough else ()),)


def _safe(
    group: EvidenceGroup, drafts: Iterable[DraftRule], least: int, declared: Mapping[str, ToolDefinition]
) -> GroupOutcome:
    """Without what may not become a bullet; what names a power, or another tool's business, waits for a person."""
    calls = [call for member in group.members for call in (member.call, member.accepted) if call is not None]
    named: dict[str, dict[str, str]] = {text: {} for text in group.constants(least)}
    # What a tool's errors call a field is declared by them.
    tools = (*safeguards.tools_of(calls), ToolDefinition(name=group.tool, parameters={"properties": named}))
    unknown = "" if len(group.known_principals) >= least or group.kind is not GroupKind.REJECTED else SESSIONS
    kept, refused = [], []
    for draft in drafts:
        # Of those that it was drawn from: else anybody could keep a rule from being learned by saying it.
        words = [text for member in draft.witnesses for text in member.words]
        persons = safeguards.persons_of(member.call for member in draft.witnesses if member.call is not None)
        if group.kind is GroupKind.DOCUMENT:
            persons |= {member.principal for member in draft.witnesses if member.known}
        found = safeguards.judge(draft.insight.content, tools=tools, words=words, known=named, known_persons=persons)
        if found.refused:
            refused.append(found.refused)
            continue
        held = draft.held or found.held or unknown or _of_others(draft.insight.content, group, tools, declared)
        if group.kind is GroupKind.CONTRAST:
            held = held or "it rests on how attempts differ, and their customers' words had a part in that"
        kept.append(replace(draft, held=held))
    return GroupOutcome(group=group, drafts=tuple(kept), refused=tuple(refused))


def _of_others(text: str, group: EvidenceGroup, own: Sequence[ToolDefinition], declared: Mapping[str, ToolDefinition]) -> str:
    """What a tool refuses says nothing of other tools: who writes pages that one of them reads could teach all the others."""
    names = safeguards.arguments_of(declared.values()) - safeguards.arguments_of(own)
    others = ToolDefinition(name="", parameters={"properties": {name: {} for name in names}})
    named = bool(group.tool) and safeguards.names_declared(text, [others])
    return "it speaks of what another tool is told than the one that refused" if named else ""


def _settled(drafts: Sequence[DraftRule]) -> list[DraftRule]:
    """Rules that fix one thing differently: the one with twice as many people behind it holds, the others are dropped; where
    none has, all of them wait for a person."""
    by_about: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for draft in drafts:
        # What waits for a person has no vote: else whoever brings a rule that is held has its rival held as well.
        if draft.insight.about and not draft.held:
            by_about[draft.insight.domain, draft.insight.about][draft.insight.content] |= draft.group.principals
    found = []
    for draft in drafts:
        behind = by_about.get((draft.insight.domain, draft.insight.about), {}) if not draft.held else {}
        own = len(behind.get(draft.insight.content, ()))
        rival = max((len(people) for content, people in behind.items() if content != draft.insight.content), default=0)
        if rival >= MARGIN * own and rival:
            continue
        disagree = rival and own < MARGIN * rival
        found.append(replace(draft, held="people's traces disagree on it") if disagree else draft)
    return found


# Into the playbook.


def _merged(
    drafts: Sequence[DraftRule],
    playbook: Playbook,
    groups: Sequence[EvidenceGroup],
    tools: LearnTools,
    decay: Sequence[Delta],
    returning: frozenset[str],
) -> tuple[Batch, Sequence[str]]:
    """The deltas, and why the curator would not take others."""
    model = tools.reflector.name if tools.reflector else BulletOrigin.TEMPLATE.value
    questions = tuple(dict.fromkeys(member.words[0] for group in groups for member in group.members if member.words))
    # What is a copy was judged by those whom a rule was drawn from; by all customers, anybody could forbid one by saying it.
    origin = Origin(batch_id="", at=tools.stamp, run=tools.name, model=model, returning=returning)
    insights = {draft.insight.content: draft.insight for draft in drafts}
    batch, report = tools.curator.curate(playbook, insights.values(), origin)
    behind: defaultdict[str, list[DraftRule]] = defaultdict(list)
    for draft in drafts:
        behind[_bullet_id(draft)].append(draft)
    born = [each.bullet for each in batch.deltas if isinstance(each, Add)]
    # One that comes back has an id of its own.
    deltas: list[Delta] = [
        Add(bullet=_born(bullet, behind[bullet_id(bullet.domain, bullet.content)], tools)) for bullet in born
    ]
    deltas += _counted_anew(playbook, groups, tools)
    deltas += [*_outvoted(playbook, drafts, tools.least), *decay]
    if all(isinstance(delta, Evidence) for delta in deltas):
        # More of the same makes no other candidate, which would have to be examined anew.
        deltas = []
    said = json.dumps([delta_to_json(delta) for delta in deltas], default=str)
    id = f"{tools.name}/{blake2b(said.encode(errors='surrogatepass'), digest_size=8).hexdigest()}"
    return replace(batch, id=id, deltas=tuple(deltas), trained_on=fingerprints(questions)), [
        each.reason for each in report.rejected
    ]


def _returning(
    playbook: Playbook, drafts: Sequence[DraftRule], attempts: Sequence[AttemptEvidence], least: int
) -> frozenset[str]:
    """The bullets that lapsed and are drawn again, as what they are about is again as it was."""
    drawn: defaultdict[tuple[str, str], list[DraftRule]] = defaultdict(list)
    for draft in drafts:
        if not draft.held:
            drawn[draft.insight.domain, normalised(draft.insight.content)].append(draft)
    return frozenset(
        bullet.id
        for bullet in playbook.bullets
        if any(
            comes_back(bullet, draft.group, attempts, least)
            for draft in drawn.get((bullet.domain, normalised(bullet.content)), ())
        )
    )


def _born(bullet: Bullet, drafts: Sequence[DraftRule], tools: LearnTools) -> Bullet:
    groups = [draft.group for draft in drafts]
    free = any(not draft.held for draft in drafts)
    kind = groups[0].kind if groups else GroupKind.REJECTED
    origin = BulletOrigin.TEMPLATE if tools.reflector is None else ORIGINS[kind]
    provenance = replace(bullet.provenance, origin=origin.value, **_evidence(groups), evidence=" ".join(g.id for g in groups))
    return replace(
        bullet,
        provenance=provenance,
        support=max(1, provenance.principals),
        held="" if free or not drafts else drafts[0].held,
        expires_at=_expiry(tools),
    )


def _evidence(groups: Sequence[EvidenceGroup]) -> dict[str, Any]:
    traces = tuple(dict.fromkeys(trace for group in groups for trace in group.traces))
    principals = frozenset(person for group in groups for person in group.principals)
    return {"traces": traces[:TRACES], "trace_count": len(traces), "principals": len(principals)}


def _expiry(tools: LearnTools) -> str:
    return (datetime.fromisoformat(tools.stamp) + timedelta(days=tools.days)).isoformat() if tools.stamp and tools.days else ""


def _counted_anew(playbook: Playbook, groups: Sequence[EvidenceGroup], tools: LearnTools) -> Iterator[Evidence]:
    """What stands behind the bullets that are there already, where their evidence was met again."""
    by_id = {group.id: group for group in groups}
    for bullet in playbook.bullets:
        met = [by_id[id] for id in bullet.provenance.evidence.split() if id in by_id]
        if met and not bullet.retired:
            told = _evidence(met)
            if told["trace_count"] > bullet.provenance.trace_count:
                yield Evidence(bullet_id=bullet.id, **told, expires_at=_expiry(tools))


def _outvoted(playbook: Playbook, drafts: Sequence[DraftRule], least: int) -> Iterator[Retire]:
    """The bullets that were shown where a tool refused, and that say otherwise than what was learned there: the house has
    changed its ways."""
    known = {bullet.id: bullet for bullet in playbook.active if bullet.provenance.origin and not bullet.locked}
    for draft in drafts:
        if draft.held or not draft.insight.about:
            continue
        shown: defaultdict[str, set[str]] = defaultdict(set)
        for member in draft.group.members:
            for id in member.call.shown if member.call else ():
                shown[id].add(member.principal)
        for id, people in sorted(shown.items()):
            old = known.get(id)
            if old is None or old.about != draft.insight.about or old.content == draft.insight.content:
                continue
            if old.domain == draft.insight.domain and len(people) >= least:
                why = f"{len(people)} people who were shown it met a refusal that says otherwise: {draft.insight.content}"
                yield Retire(bullet_id=id, reason=LAPSED + why)
