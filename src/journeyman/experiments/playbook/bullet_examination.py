"""Which of a candidate's new bullets do harm: what becomes of the answers without each, and what each does by itself.

Leaving one out names what does harm where it stands. Beside a true rule a false one may be overlooked by the model: it costs
nothing there, and is false all the same. By itself it shows what it makes of requests whose record says what would be right. So
of two that cannot both hold each is judged by itself first, and in the end each whose absence told nothing.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from journeyman.agents.attempt import Attempt
from journeyman.agents.replay import AskAgain
from journeyman.core.errors import ModelError
from journeyman.core.evaluation import pair
from journeyman.core.format import counted
from journeyman.core.gate import interval_of
from journeyman.core.playbook import Batch, Bullet, Insight, Playbook, Retire, bullet_id
from journeyman.core.task import Task
from journeyman.core.trace import ToolCall
from journeyman.experiments.compare import results
from journeyman.experiments.playbook.recorded_tasks import RecordedTask, draw
from journeyman.optimizers.playbook.conflict import contradicts
from journeyman.optimizers.playbook.evidence import MEMBERS, GroupKind
from journeyman.optimizers.playbook.from_traces import Tried
from journeyman.optimizers.playbook.group_reflector import MARGIN, DraftRule
from journeyman.stats import bootstrap_interval, cluster_interval
from journeyman.tasks.recorded import AskedCall, RecordedAnswer, TaskKind, calls_of, effect
from journeyman.tracing.evidence import AttemptEvidence

_FEWEST_OF_ARGUMENT = 20
"""Requests with an argument, below which a bullet on it is judged by all of its tool."""
GENERAL = "general"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByItself:
    """What a bullet makes of the answers beside what is served, and none else, held against what was recorded."""

    tasks: int
    better: int
    """Requests of which it mends more fields than it spoils."""
    worse: int
    low: float
    """Of the share of better ones less that of worse ones."""
    high: float

    @property
    def gain(self) -> float:
        return (self.better - self.worse) / self.tasks if self.tasks else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What became of the answers when one bullet was taken away."""

    bullet_id: str
    content: str
    tasks: int
    gain: float
    """Of leaving it out."""
    low: float
    high: float
    by_itself: ByItself | None = None
    """`None` where leaving it out told enough, or no calls were left."""
    reason: str = ""
    """Why it goes; empty where it stays."""

    @property
    def dropped(self) -> bool:
        return bool(self.reason)

    @property
    def helps(self) -> bool:
        """Whether something is lost without it."""
        return self.high < 0


class RepliesOnce(Protocol):
    """Who answers recorded requests anew, each once, in all trials."""

    async def of(self, playbook: Playbook, tasks: Sequence[RecordedTask]) -> list[Attempt]: ...


@dataclass(kw_only=True)
class BulletExamination:
    """Judges each new bullet of a playbook by some of the requests; what remains is to be judged by others."""

    playbook: Playbook
    baseline: Playbook
    tasks: Sequence[RecordedTask]
    answers: RepliesOnce
    trials: int = 1
    most: int = 60
    """Requests by which one is judged."""
    least_gain: float = 0.02
    """What must be gained without it for it to go."""
    alpha: float = 0.05
    left: int | None = None
    """Calls that may be made; `None` for any number."""
    spared: list[str] = field(default_factory=list)
    """Ids of bullets for which no calls were left."""
    _told: dict[str, LeftOut] = field(default_factory=dict, init=False)
    _signs: dict[str, dict[str, int]] = field(default_factory=dict, init=False)
    """By bullet and request: whether it makes the answer better or worse by itself."""

    async def found(self) -> tuple[LeftOut, ...]:
        """What was found of each bullet that the baseline does not have."""
        known = {bullet.id for bullet in self.baseline.active}
        new = [bullet for bullet in self.playbook.active if bullet.id not in known]
        if len(self.playbook.active) > 1:
            lost = await self._lost(new)
            await self._leave_out([bullet for bullet in new if bullet.id not in lost], without(self.playbook, lost))
            self._told |= lost
            await self._by_themselves(new)
        return tuple(self._told.values())

    # Those that cannot both hold.

    async def _lost(self, new: Sequence[Bullet]) -> dict[str, LeftOut]:
        """Those that by themselves do not do what was recorded, where a rule that cannot hold beside them is nearer to it."""
        lost: dict[str, LeftOut] = {}
        for bullet in new:
            rivals = [each for each in self.playbook.active if each.id not in lost and each.id != bullet.id]
            for rival in (each for each in rivals if contradicts(each, bullet)):
                alone, other = await self._alone(bullet), await self._alone(rival)
                if alone and other and alone.low <= 0 and self._ahead(rival, bullet) > 0:
                    reason = (
                        f"by itself it does not do what was recorded: {_counts(alone)}; "
                        f'"{rival.content}", which cannot hold beside it, is nearer to that: {_counts(other)}'
                    )
                    lost[bullet.id] = _unseen(bullet, alone, reason)
                    break
        return lost

    def _ahead(self, one: Bullet, other: Bullet) -> float:
        """How much more one does by itself of what was recorded than another, at least."""
        ours, theirs = self._signs[one.id], self._signs[other.id]
        common = [each for each in self.tasks if each.task.id in ours.keys() & theirs.keys()]
        ahead = [max(-1, min(1, ours[each.task.id] - theirs[each.task.id])) for each in common]
        return _interval(ahead, common, self.alpha)[0]

    # The rest without it.

    async def _leave_out(self, new: Sequence[Bullet], playbook: Playbook) -> None:
        # What says the same harm twice is not told by leaving out one of the two.
        arms = [(bullet,) for bullet in new] + [tuple(each) for each in alike(new)]
        found = dict[tuple[str, ...], list[LeftOut]]()
        for arm in arms:
            meant = self._meant(arm[0])
            if self._may(len(meant)):
                found[_ids(arm)] = await self._without(arm, playbook, meant)
            else:
                self.spared += [bullet.id for bullet in arm if bullet.id not in self.spared]
        # Beside a bullet that does harm another one may seem to: once the worst is gone, the others are looked at again.
        rest, gone = playbook, set[str]()
        harmful = [arm for arm in arms if (each := found.get(_ids(arm))) and each[0].dropped]
        for arm in sorted(harmful, key=lambda arm: -found[_ids(arm)][0].gain):
            kept, ids = tuple(bullet for bullet in arm if bullet.id not in gone), _ids(arm)
            if gone and kept:
                meant = self._meant(kept[0])
                if not self._may(2 * len(meant)):
                    found[ids] = [replace(each, reason="") for each in found[ids]]
                    continue
                found[ids] = await self._without(kept, rest, meant)
            if kept and found[ids][0].dropped:
                gone |= {bullet.id for bullet in kept}
                rest = without(playbook, gone)
        self._told = {each.bullet_id: each for arm, several in found.items() if len(arm) == 1 for each in several}
        self._told |= {each.bullet_id: each for several in found.values() for each in several if each.dropped}

    async def _without(self, arm: Sequence[Bullet], playbook: Playbook, tasks: Sequence[RecordedTask]) -> list[LeftOut]:
        """What becomes of the answers without some bullets of a playbook."""
        whole = await self.answers.of(playbook, tasks)
        rest = await self.answers.of(without(playbook, _ids(arm)), tasks)
        evaluation = pair(results(whole), results(rest))
        # Not widened for the number of bullets: one that helps hardly goes by chance; one that does nothing may.
        low, high = interval_of(evaluation, self.alpha) if evaluation.pairs else (-1.0, 1.0)
        gain, about = evaluation.gain or 0.0, counted(evaluation.tasks, "recorded request")
        harmful = gain >= self.least_gain and low > 0
        reason = f"without it {gain:+.3f} on {about}, {low:+.3f} to {high:+.3f}" if harmful else ""
        numbers: dict[str, Any] = {"tasks": evaluation.tasks, "gain": gain, "low": low, "high": high, "reason": reason}
        return [LeftOut(bullet_id=bullet.id, content=bullet.content, **numbers) for bullet in arm]

    def _meant(self, bullet: Bullet) -> list[RecordedTask]:
        return concerned(bullet, self.playbook, self.tasks)[: self.most]

    def _may(self, requests: int) -> bool:
        """Whether calls are left for so many requests; they are then taken."""
        calls = requests * self.trials
        if self.left is not None:
            if calls > self.left:
                return False
            self.left -= calls
        return True

    # The bullet by itself.

    async def _by_themselves(self, new: Sequence[Bullet]) -> None:
        """Judge by themselves those whose absence told nothing."""
        open_ones = [each for each in new if (told := self._told.get(each.id)) and not told.dropped and not told.helps]
        for bullet in open_ones:
            told = self._told[bullet.id]
            alone = await self._alone(bullet)
            contrary = alone is not None and alone.high < 0 and alone.gain <= -self.least_gain
            reason = f"by itself it does other than what was recorded: {_counts(alone)}" if alone and contrary else ""
            self._told[bullet.id] = replace(told, by_itself=alone, reason=reason)

    async def _alone(self, bullet: Bullet) -> ByItself | None:
        """What it makes of the requests that it concerns; `None` where no calls are left for that."""
        meant = self._meant(bullet)
        if bullet.id not in self._signs:
            beside = beside_which(bullet, self.baseline.active, self.playbook)
            # What the baseline answers is part of the whole.
            if not self._may(len(meant) * (1 if beside == self.baseline.active else 2)):
                return None
            before = await self.answers.of(Playbook(bullets=beside), meant)
            after = await self.answers.of(Playbook(bullets=(*beside, bullet)), meant)
            self._signs[bullet.id] = dict(_signs(before, after))
        signs = self._signs[bullet.id]
        known = [each for each in meant if each.task.id in signs]
        found = [signs[each.task.id] for each in known]
        low, high = _interval(found, known, self.alpha)
        return ByItself(tasks=len(found), better=found.count(1), worse=found.count(-1), low=low, high=high)


def _unseen(bullet: Bullet, alone: ByItself, reason: str) -> LeftOut:
    """Of one that was not left out, as it was told by itself."""
    return LeftOut(
        bullet_id=bullet.id,
        content=bullet.content,
        tasks=alone.tasks,
        gain=0.0,
        low=-1.0,
        high=1.0,
        by_itself=alone,
        reason=reason,
    )


def _signs(before: Sequence[Attempt], after: Sequence[Attempt]) -> Iterator[tuple[str, int]]:
    """Of each request whether what was answered after is nearer to the record than before; the last trial tells."""
    for was, now in zip(before, after, strict=True):
        if was.score.total is not None and now.score.total is not None:
            answer = RecordedAnswer.loads(now.task.answer)
            yield now.task.id, effect(answer, calls_of(was.trace), calls_of(now.trace)).sign


def _interval(signs: Sequence[int], tasks: Sequence[RecordedTask], alpha: float) -> tuple[float, float]:
    clusters = [each.task.cluster for each in tasks]
    return cluster_interval(signs, clusters, alpha) if all(clusters) and clusters else bootstrap_interval(signs, alpha)


def _counts(found: ByItself) -> str:
    return f"{found.better} of {counted(found.tasks, 'recorded request')} better, {found.worse} worse"


# A rule before it becomes a bullet.


@dataclass(kw_only=True)
class RuleTrials:
    """Tries a rule on the evidence that it was drawn from: told it, does the agent do what those refusals said? Implements
    `Trial`.

    Whoever has captured a reflector can have it write anything, whatever it reads. What a tool refused, and what it said would
    be right, stands in the record: a rule that does not bring the agent to do that does not follow from it.
    """

    ask: AskAgain
    served: Playbook
    """What the refused calls were made with."""
    requests: Mapping[tuple[str, str], RecordedTask]
    """Those whose refusals say what would be right, by trace and refused call."""
    _known: dict[tuple[str, ...], Sequence[AskedCall]] = field(default_factory=dict, init=False)
    """What was answered, by request and bullets."""

    @property
    def name(self) -> str:
        return self.ask.name

    async def __call__(self, draft: DraftRule) -> Tried:
        if draft.group.kind is not GroupKind.REJECTED:
            return Tried()
        cases = self._cases(draft)
        try:
            better = await self._mended(cases, draft.insight, draft.insight.content)
            if better >= MARGIN * (len(cases) - better):
                content = await self._borne_out(cases, draft.insight, better)
                return Tried(content="" if content == draft.insight.content else content)
        except ModelError as error:
            return Tried(unknown=str(error))
        return Tried(
            held=f"told it beside what is served, the agent does what was said to be right in {better} of "
            f"{counted(len(cases), 'refused request')} that it was drawn from"
        )

    async def _borne_out(self, cases: Sequence[RecordedTask], insight: Insight, better: int) -> str:
        """The rule without each clause without which the agent does as well: what hangs on to a right rule and changes nothing
        of what was refused does not follow from it."""
        clauses = all_of_them = [each.strip() for each in _CLAUSE.split(insight.content) if each.strip()]
        # From behind: what a rule is about stands at its beginning.
        for clause in reversed(clauses):
            rest = [each for each in clauses if each is not clause]
            if rest and cases and await self._mended(cases, insight, _joined(rest)) >= better:
                clauses = rest
        return insight.content if clauses is all_of_them else _joined(clauses)

    async def _mended(self, cases: Sequence[RecordedTask], insight: Insight, content: str) -> int:
        """In how many cases the agent does what was said to be right when it is told so much."""
        # As it would be served: an agent may know bullets by how their ids look.
        id = bullet_id(insight.domain, content)
        bullet = Bullet(id=id, content=content, section=insight.section, domain=insight.domain, about=insight.about)
        return sum([await self._mends(case, bullet) for case in cases])

    def _cases(self, draft: DraftRule) -> list[RecordedTask]:
        """Requests of the group, each of another person."""
        found = (self.requests.get((each.trace_id, each.call.id)) for each in draft.group.shown(None) if each.call)
        return [each for each in found if each is not None][: 2 * MEMBERS]

    async def _mends(self, case: RecordedTask, bullet: Bullet) -> bool:
        beside = beside_which(bullet, shown(self.served, case.task), self.served)
        before, after = [await self._calls(case, bullets) for bullets in (beside, (*beside, bullet))]
        return effect(RecordedAnswer.loads(case.task.answer), before, after).sign > 0

    async def _calls(self, case: RecordedTask, bullets: Sequence[Bullet]) -> Sequence[AskedCall]:
        key = (case.task.id, *(each.content for each in bullets))
        if key not in self._known:
            steps = await self.ask(case.request, bullets)
            self._known[key] = [AskedCall.of(step) for step in steps if isinstance(step, ToolCall)]
        return self._known[key]


_CLAUSE = re.compile(r"(?<=;)\s+|(?<=[.!?])\s+(?=\S)|\n+")
"""Between clauses of a rule that could each stand alone. Parts between commas seldom could."""


def _joined(clauses: Sequence[str]) -> str:
    return " ".join(clauses).rstrip(";, ")


def trials(ask: AskAgain, served: Playbook, attempts: Iterable[AttemptEvidence]) -> RuleTrials:
    """Trials on what attempts were refused that are learned from."""
    drawn = draw(list(attempts)).tasks
    return RuleTrials(
        ask=ask, served=served, requests={(each.trace_id, each.step_id): each for each in drawn if each.kind is TaskKind.CALL}
    )


# Playbooks and requests.


def shown(playbook: Playbook, task: Task) -> Sequence[Bullet]:
    """The bullets that a live request of a domain is given: its own, and for one that names none those of the only one."""
    found = playbook.of(task.domain)
    domains = {bullet.domain for bullet in playbook.active}
    return playbook.active if not found and task.domain == GENERAL and len(domains) == 1 else found


def alike(bullets: Sequence[Bullet]) -> list[list[Bullet]]:
    """Bullets that say nearly the same, together: of two that do the same harm, either hides what the other does."""
    words = [set(re.findall(r"\w+", bullet.content.casefold())) for bullet in bullets]
    found: dict[frozenset[int], list[Bullet]] = {}
    for mine in words:
        near = [at for at, other in enumerate(words) if 2 * len(mine & other) >= len(mine | other)]
        if len(near) > 1:
            found.setdefault(frozenset(near), [bullets[at] for at in near])
    return list(found.values())


def _ids(bullets: Sequence[Bullet]) -> tuple[str, ...]:
    return tuple(bullet.id for bullet in bullets)


def without(playbook: Playbook, gone: Collection[str]) -> Playbook:
    """The playbook without some of its bullets."""
    return replace(playbook, bullets=tuple(bullet for bullet in playbook.bullets if bullet.id not in gone))


def beside_which(bullet: Bullet, served: Sequence[Bullet], playbook: Playbook) -> tuple[Bullet, ...]:
    """What a bullet is shown with when it is judged by itself: what was recorded was made with what is served, so with as much
    of that as a playbook keeps and as can hold beside it."""
    kept = {each.id for each in playbook.active} - {bullet.id}
    return tuple(each for each in served if each.id in kept and not contradicts(each, bullet))


def retired(playbook: Playbook, harmful: Sequence[LeftOut]) -> Playbook:
    """The playbook with the bullets retired that did harm."""
    deltas = tuple(Retire(bullet_id=each.bullet_id, reason=each.reason) for each in harmful)
    return playbook.apply(Batch(id="examination", deltas=deltas))


def concerned(bullet: Bullet, playbook: Playbook, tasks: Sequence[RecordedTask]) -> list[RecordedTask]:
    """The requests that a bullet of a playbook can change: that it is shown to, and of the tool that it is about where it names
    one; of these alone the ones with the argument that it names, where there are enough of them."""
    tool, _, argument = bullet.about.partition(".")
    told = [each for each in tasks if bullet in shown(playbook, each.task)]
    of_tool = [each for each in told if each.tool == tool] or told
    of_argument = [each for each in of_tool if argument and argument in _arguments(each)]
    found = of_argument if len(of_argument) >= _FEWEST_OF_ARGUMENT else of_tool
    return sorted(found, key=lambda each: drawn_by(each.task.id))


def _arguments(task: RecordedTask) -> set[str]:
    """The arguments that a recorded call was made with, or that its refusal named."""
    answer = RecordedAnswer.loads(task.task.answer)
    return {*answer.arguments, *(fault.argument for fault in answer.faults)}


def halves(tasks: Sequence[RecordedTask]) -> tuple[list[RecordedTask], list[RecordedTask]]:
    """Two halves of the groups, by their names alone."""
    groups = sorted({each.task.cluster or each.task.id for each in tasks}, key=drawn_by)
    first = set(groups[::2])
    mine = [each for each in tasks if (each.task.cluster or each.task.id) in first]
    return mine, [each for each in tasks if (each.task.cluster or each.task.id) not in first]


def drawn_by(name: str) -> str:
    """Some order that nobody chose."""
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
