"""Attempts at one task as groups, with rewards normalised among them."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from journeyman.capture.finetuning import Losses
from journeyman.learn.weights.data.forms import SPREAD, normalised
from journeyman.learn.weights.data.gather import CandidateRow


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """The completions of one prompt, of attempts at one task."""

    candidates: tuple[CandidateRow, ...]
    rewards: tuple[float, ...]
    """Normalised among all attempts at the task, those with other prompts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRows:
    """All groups of a set."""

    bunches: tuple[PromptGroup, ...]
    tasks: int
    """Groups of attempts: there are more rows where attempts at one task had several prompts."""
    flat: int
    """Groups whose attempts were all worth the same."""


def grouped(candidates: Sequence[CandidateRow], losses: Losses) -> GroupedRows:
    """Attempts at the same task together, else those with the same prompt. One that stands alone has nothing to be compared
    with, and is left out.

    The prompts of attempts at one task may differ, as where another user is simulated each time. Each prompt then is a row of
    its own, and the mean over all attempts is still a baseline that does not depend on what was done.
    """
    several, alone = _partition(candidates, lambda one: one.task)
    more, single = _partition(alone, lambda one: one.prompt)
    losses.add("attempts that no other can be compared with: left out", len({one.trace for one in single}))
    groups = sorted([*several, *more], key=lambda group: group[0].key)
    bunches, flat = [], 0
    for group in groups:
        rewards = {one.trace: one.reward for one in group if one.reward is not None}
        scaled = dict(zip(rewards, normalised(list(rewards.values())), strict=True))
        flat += all(abs(value) < SPREAD for value in scaled.values())
        bunches += list(_bunches(group, scaled))
    return GroupedRows(bunches=tuple(bunches), tasks=len(groups), flat=flat)


def _partition(
    candidates: Sequence[CandidateRow], by: Callable[[CandidateRow], bytes]
) -> tuple[list[list[CandidateRow]], list[CandidateRow]]:
    """Groups of several attempts, and the attempts that are alone."""
    groups: defaultdict[bytes, list[CandidateRow]] = defaultdict(list)
    first: dict[str, bytes] = {}
    for one in candidates:
        # The conversations of one trace are one attempt.
        groups[first.setdefault(one.trace, by(one))].append(one)
    several = [group for group in groups.values() if len({one.trace for one in group}) > 1]
    together = {one.trace for group in several for one in group}
    return several, [one for one in candidates if one.trace not in together]


def _bunches(group: Sequence[CandidateRow], scaled: dict[str, float]) -> Iterator[PromptGroup]:
    prompts: defaultdict[bytes, list[CandidateRow]] = defaultdict(list)
    for one in group:
        prompts[one.prompt].append(one)
    for same in prompts.values():
        yield PromptGroup(tuple(same), tuple(scaled[one.trace] for one in same))
