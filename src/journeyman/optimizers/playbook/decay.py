"""What was learned from traces does not hold for ever: it is retired when it is no longer met, when it stopped helping, when
its tool has changed, and when the traces behind it were forgotten."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from journeyman.core.format import counted
from journeyman.core.playbook import LAPSED, Bullet, BulletOrigin, Delta, Evidence, Playbook, Retire
from journeyman.optimizers.playbook.evidence import EvidenceGroup
from journeyman.tasks.recorded import FaultKind, named_faults
from journeyman.tracing.evidence import AttemptEvidence, ToolDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class Decay:
    """When a rule goes."""

    least: int = 3
    """People that must have met the same for it to count."""
    days: int = 90
    """Without being met or shown."""


def decayed(
    playbook: Playbook, groups: Sequence[EvidenceGroup], attempts: Sequence[AttemptEvidence], now: datetime, rule: Decay
) -> list[Delta]:
    """The bullets learned from traces that go, and those that stay longer. Locked ones are a person's.

    Args:
        attempts: All of the time that is looked at, examined or not: that a rule is met there is no lesson.
    """
    shown = _shown(attempts)
    newest = _newest_tools(attempts)
    met = {group.id for group in groups}
    found: list[Delta] = []
    for bullet in playbook.bullets:
        if bullet.retired or bullet.locked or not bullet.provenance.evidence:
            continue
        if why := _gone(bullet, newest) or _useless(bullet, groups, attempts, shown, rule.least):
            found.append(Retire(bullet_id=bullet.id, reason=LAPSED + why))
        elif met & set(bullet.provenance.evidence.split()) or shown.get(bullet.id):
            found += _prolonged(bullet, now + timedelta(days=rule.days))
        elif bullet.expires_at and datetime.fromisoformat(bullet.expires_at) < now:
            found.append(Retire(bullet_id=bullet.id, reason=f"{LAPSED}neither met nor shown to anybody for {rule.days} days"))
    return found


def _shown(attempts: Sequence[AttemptEvidence]) -> dict[str, set[str]]:
    """The traces in whose prompts each bullet stood."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for attempt in attempts:
        for id in attempt.trace.shown:
            found[id].add(attempt.trace.id)
    return found


def _newest_tools(attempts: Sequence[AttemptEvidence]) -> dict[str, ToolDefinition]:
    newest: dict[str, ToolDefinition] = {}
    for attempt in sorted(attempts, key=lambda each: each.trace.started_at):
        newest |= attempt.tools
    return newest


def _gone(bullet: Bullet, newest: dict[str, ToolDefinition]) -> str:
    """Whether what it is about is no longer declared."""
    tool, _, argument = bullet.about.partition(".")
    if not argument or tool not in newest or not newest[tool].arguments:
        return ""
    return "" if argument in newest[tool].arguments else f"{tool} no longer declares an argument {argument}"


def _useless(
    bullet: Bullet,
    groups: Sequence[EvidenceGroup],
    attempts: Sequence[AttemptEvidence],
    shown: Mapping[str, set[str]],
    least: int,
) -> str:
    """Whether the same refusal comes as often with it as without it, from the first time on that it came with it: before that
    the house may have had other ways."""
    mine = _bearing_on(bullet, groups)
    first = _first_in_vain(bullet, mine, attempts, least)
    if first is None:
        return ""
    here = shown.get(bullet.id, set())
    failed = {trace for group in mine for trace in group.traces}
    since = {each.trace.id for each in attempts if each.trace.started_at >= first and _concerns(each, mine, failed)}
    told, elsewhere = since & here, since - here
    with_it = len(failed & told) / len(told)
    without = len(failed & elsewhere) / len(elsewhere) if len(elsewhere) >= least else _HALF
    if with_it < min(without, _HALF):
        return ""
    met = f"{len(failed & told)} of {counted(len(told), 'request')} that were shown it"
    return f"{met} were refused for the same all the same, those of {len(_in_vain(bullet, mine))} people"


_WITHOUT = 30
"""Requests in which nobody meets what a rule was drawn from, until it counts as over."""
_HALF = 0.5
"""Where nobody works without it: a rule that does not prevent half of what it is about does not help."""


def _bearing_on(bullet: Bullet, groups: Sequence[EvidenceGroup]) -> list[EvidenceGroup]:
    """The evidence that says whether a rule holds: what it was drawn from, and refusals of the name that it gives a field."""
    ids, words = bullet.provenance.evidence.split(), set(re.findall(r"\w+", bullet.content))
    mine = [group for group in groups if group.id in ids]
    about = {(group.domain, group.tool): group.argument for group in mine}
    for group in groups:
        argument = about.get((group.domain, group.tool))
        if argument and group.argument != argument and group.argument in words and _refuses_the_name(group):
            mine.append(group)
    return mine


def _refuses_the_name(group: EvidenceGroup) -> bool:
    """Whether a tool does not know its argument: what should stand in it is another matter."""
    member = group.members[0]
    faults = named_faults(member.said, group.tool, member.call.arguments if member.call else None)
    return any(each.argument == group.argument and each.problem in _OF_NAMES for each in faults)


_OF_NAMES = (FaultKind.RENAMED, FaultKind.UNKNOWN)


def _in_vain(bullet: Bullet, mine: Sequence[EvidenceGroup]) -> set[str]:
    """The people who met what it was drawn from although they were shown it."""
    return {m.principal for group in mine for m in group.members if m.call and bullet.id in m.call.shown}


def _first_in_vain(
    bullet: Bullet, mine: Sequence[EvidenceGroup], attempts: Sequence[AttemptEvidence], least: int
) -> datetime | None:
    """When the first of them did; `None` where they are too few."""
    if len(_in_vain(bullet, mine)) < least:
        return None
    traces = {m.trace_id for group in mine for m in group.members if m.call and bullet.id in m.call.shown}
    return min((each.trace.started_at for each in attempts if each.trace.id in traces), default=None)


def _concerns(attempt: AttemptEvidence, mine: Sequence[EvidenceGroup], failed: Collection[str]) -> bool:
    """Whether the same could have been refused there."""
    return attempt.trace.id in failed or any(
        call.tool == group.tool and (not group.argument or group.argument in (call.arguments or {}))
        for group in mine
        for call in attempt.calls
    )


def changed_at(
    playbook: Playbook, groups: Sequence[EvidenceGroup], attempts: Sequence[AttemptEvidence], rule: Decay
) -> datetime | None:
    """When a tool last changed its ways: the first time that a rule was followed in vain which was drawn from the same refusal.
    What was taken and what was refused before is no evidence of the new ones. `None` where no tool did."""
    shown = _shown(attempts)
    found = []
    for bullet in playbook.bullets:
        if bullet.provenance.evidence and not bullet.locked and _useless(bullet, groups, attempts, shown, rule.least):
            found.append(_first_in_vain(bullet, _bearing_on(bullet, groups), attempts, rule.least))
    return max((at for at in found if at is not None), default=None)


def comes_back(bullet: Bullet, group: EvidenceGroup, attempts: Sequence[AttemptEvidence], least: int) -> bool:
    """Whether a rule that lapsed may be learned again from evidence that says the same: the house does what it did before.

    Where the same was refused all along, the rule lapsed as it did not help, and stays where it is.

    Args:
        attempts: All of the time that is looked at.
        least: People that must have met the same for it to count.
    """
    if not bullet.retired.startswith(LAPSED) or not bullet.updated_at:
        return False
    since = datetime.fromisoformat(bullet.updated_at)
    began = {each.trace.id: each.trace.started_at for each in attempts}
    anew = [member for member in group.members if began.get(member.trace_id, since) > since]
    if len({member.principal for member in anew}) < least:
        return False
    first = min(began[member.trace_id] for member in anew)
    between = [each for each in attempts if since < each.trace.started_at < first]
    return sum(any(call.tool == group.tool for call in each.calls) for each in between) >= _WITHOUT


def stands_in(playbook: Playbook, served: Playbook) -> bool:
    """Whether all that a playbook has beyond what is served is about what served bullets were that it has no longer."""
    ours, theirs = ({bullet.id: bullet for bullet in each.active} for each in (playbook, served))
    gone = {(bullet.domain, bullet.about) for id, bullet in theirs.items() if id not in ours and bullet.about}
    new = [bullet for id, bullet in ours.items() if id not in theirs]
    return bool(gone) and all((bullet.domain, bullet.about) in gone for bullet in new)


def _prolonged(bullet: Bullet, until: datetime) -> Iterator[Evidence]:
    if bullet.expires_at and datetime.fromisoformat(bullet.expires_at).date() < until.date():
        told = bullet.provenance
        yield Evidence(
            bullet_id=bullet.id, traces=told.traces, trace_count=told.trace_count, principals=told.principals,
            expires_at=until.isoformat(),
        )  # fmt: skip


def forgotten(playbook: Playbook, before: Sequence[EvidenceGroup], after: Sequence[EvidenceGroup], least: int) -> list[Delta]:
    """What becomes of the bullets when traces are forgotten: their counts fall, and those behind which too few people are left
    are retired.

    What was learned from and is no longer kept, as it was old, goes on counting. To forget twice is to forget once, and to
    forget one after the other is to forget both at once.

    Args:
        before: The evidence with these traces.
        after: The evidence without them.
    """
    old, new = ({group.id: group for group in groups} for groups in (before, after))
    found: list[Delta] = []
    for bullet in playbook.bullets:
        ids = bullet.provenance.evidence.split()
        was, left = [old[id] for id in ids if id in old], [new[id] for id in ids if id in new]
        gone = _traces(was) - _traces(left)
        if bullet.retired or not gone:
            continue
        told = bullet.provenance
        principals = _fallen(told.principals, _people(was), _people(left))
        found.append(
            Evidence(
                bullet_id=bullet.id,
                traces=tuple(trace for trace in told.traces if trace not in gone),
                trace_count=_fallen(told.trace_count, _traces(was), _traces(left)),
                principals=principals,
                expires_at=bullet.expires_at,
            )
        )
        # What a person says needs nobody beside, as long as it is known of what it was said.
        needed = 1 if told.origin == BulletOrigin.PERSON else least
        if principals < needed and not bullet.locked:
            people = "person is" if principals == 1 else "people are"
            why = f"of what is behind it {counted(len(gone), 'trace')} went: {principals} {people} left, and {needed} needed"
            found.append(Retire(bullet_id=bullet.id, reason=why))
    return found


def _traces(groups: Sequence[EvidenceGroup]) -> set[str]:
    return {trace for group in groups for trace in group.traces}


def _people(groups: Sequence[EvidenceGroup]) -> set[str]:
    return {person for group in groups for person in group.principals}


def _fallen(count: int, before: set[str], after: set[str]) -> int:
    """A count without what went; what came since it was taken makes up for that, and for no more."""
    return min(count, max(count - len(before - after), len(after)))
