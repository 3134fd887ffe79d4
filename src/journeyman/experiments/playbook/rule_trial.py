"""A rule is tried on the evidence that it was drawn from: does the agent, told it beside what is served, do what those
refusals said?

Whoever has captured a reflector can have it write anything, whatever it reads. What a tool refused, and what it said would be
right, stands in the record: a rule that does not bring the agent to do that does not follow from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from journeyman.agents.replay import AskAgain
from journeyman.core.errors import ModelError
from journeyman.core.format import counted
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.trace import ToolCall
from journeyman.experiments.playbook.bullet_examination import beside_which, shown
from journeyman.experiments.playbook.recorded_tasks import RecordedTask, draw
from journeyman.optimizers.playbook.evidence import MEMBERS, GroupKind
from journeyman.optimizers.playbook.from_traces import Tried
from journeyman.optimizers.playbook.group_reflector import MARGIN, DraftRule
from journeyman.tasks.recorded import AskedCall, RecordedAnswer, TaskKind, effect
from journeyman.tracing.evidence import AttemptEvidence


@dataclass(kw_only=True)
class RuleTrials:
    """Tries rules, each on cases of as many people as a reflector sees. Implements `Trial`."""

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
        insight = draft.insight
        bullet = Bullet(
            id="tried", content=insight.content, section=insight.section, domain=insight.domain, about=insight.about
        )
        cases = self._cases(draft)
        try:
            better = sum([await self._mends(case, bullet) for case in cases])
        except ModelError as error:
            return Tried(unknown=str(error))
        if better >= MARGIN * (len(cases) - better):
            return Tried()
        return Tried(
            held=f"told it beside what is served, the agent does what was said to be right in {better} of "
            f"{counted(len(cases), 'refused request')} that it was drawn from"
        )

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


def trials(ask: AskAgain, served: Playbook, attempts: Iterable[AttemptEvidence]) -> RuleTrials:
    """Trials on what attempts were refused that are learned from."""
    drawn = draw(list(attempts)).tasks
    return RuleTrials(
        ask=ask, served=served, requests={(each.trace_id, each.step_id): each for each in drawn if each.kind is TaskKind.CALL}
    )
