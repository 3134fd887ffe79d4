"""What DPO learns from rows: which completion is preferred to which."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from journeyman.learn.weights.rows import CompletionGroup, LabelledCompletion, Row, TextOrMessages

MARGIN = 0.1
"""How much more a completion must be worth to be preferred, in scores from 0 to 1."""
A_GROUP = 1
"""Pairs that one group gives at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreferencePair:
    """Two completions of one prompt, of which one is better."""

    prompt: TextOrMessages
    chosen: TextOrMessages
    rejected: TextOrMessages
    tools: tuple[Mapping[str, Any], ...] = field(default=(), hash=False)


def pairs(rows: Iterable[Row], *, margin: float = MARGIN, a_group: int = A_GROUP) -> list[PreferencePair]:
    """Pairs for DPO, in the order of the rows.

    Of a group the best completion is preferred to the worst, then the second best to the second worst and so on, up to
    `a_group` pairs, as long as they differ by `margin`; where a file tells only rewards that are normalised within the group,
    any difference will do. Which of two equals comes first does not matter to what is learned: the one that stands first.
    Of labelled rows, the good and the bad completions of one prompt are paired in their order.
    """
    grouped, labelled = _split(rows)
    preferred = [pair for group in grouped for pair in _of_group(group, margin, a_group)]
    return [*preferred, *_of_labels(labelled)]


def _split(rows: Iterable[Row]) -> tuple[list[CompletionGroup], list[LabelledCompletion]]:
    grouped: list[CompletionGroup] = []
    labelled: list[LabelledCompletion] = []
    for row in rows:
        if isinstance(row, CompletionGroup):
            grouped.append(row)
        else:
            labelled.append(row)
    return grouped, labelled


def _of_group(group: CompletionGroup, margin: float, most: int) -> Iterator[PreferencePair]:
    worth = group.scores or group.rewards
    least = margin if group.scores else 1e-6
    # The best first; `sorted` keeps the order of equals.
    order = sorted(range(len(worth)), key=lambda n: -worth[n])
    for best, worst in list(zip(order, reversed(order), strict=True))[: min(most, len(order) // 2)]:
        if worth[best] - worth[worst] < least:
            return
        chosen, rejected = group.completions[best], group.completions[worst]
        yield PreferencePair(prompt=group.prompt, chosen=chosen, rejected=rejected, tools=group.tools)


def _of_labels(rows: Sequence[LabelledCompletion]) -> Iterator[PreferencePair]:
    prompts: dict[str, tuple[list[LabelledCompletion], list[LabelledCompletion]]] = {}
    for row in rows:
        good, bad = prompts.setdefault(repr((row.prompt, row.tools)), ([], []))
        (good if row.label else bad).append(row)
    for good, bad in prompts.values():
        for chosen, rejected in zip(good, bad, strict=False):
            yield PreferencePair(
                prompt=chosen.prompt, chosen=chosen.completion, rejected=rejected.completion, tools=chosen.tools
            )
