"""From judged traces to a file of rows, with a datasheet beside it.

built = build(map(Judged.of, traces), Path("kto.jsonl"), DatasetConfig(method="kto"))
print(built.rows, built.labels)
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import floor
from pathlib import Path
from typing import Any

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.data import dataset_card, files
from journeyman.optimizers.weights.data.config import DatasetConfig
from journeyman.optimizers.weights.data.dataset_card import DatasetCard
from journeyman.optimizers.weights.data.gather import UNKNOWN, CandidateRow, JudgedTrace, Spool, gather
from journeyman.optimizers.weights.rows import SPREAD, CompletionGroup, LabelledCompletion, Row, TextOrMessages, normalised
from journeyman.tracing.importers.finetuning import Losses

# Which rows stand in the set, and how often: duplicates, contradictions, weights of agents, balance of labels.


def deduplicated(candidates: Sequence[CandidateRow], losses: Losses) -> Iterator[CandidateRow]:
    """Each completion of a prompt once, the oldest. Where verdicts on it differ, those of the lowest rank decide, and among
    them the greater number."""
    alike: defaultdict[bytes, list[CandidateRow]] = defaultdict(list)
    for one in candidates:
        alike[one.content].append(one)
    for same in alike.values():
        rank = min(one.verdict.rank for one in same)
        votes = [one.verdict.good for one in same if one.verdict.rank == rank]
        good = votes.count(True)
        if 2 * good == len(votes):
            losses.add("rows that were called good as often as bad: left out", len(same))
            continue
        losses.add("rows whose prompt and completion were there already: left out", len(same) - 1)
        holds = (one.verdict for one in same if one.verdict.rank == rank and one.verdict.good is (2 * good > len(votes)))
        yield replace(same[0], verdict=next(holds))


def once(candidates: Sequence[CandidateRow], losses: Losses) -> Iterator[CandidateRow]:
    """Each conversation of a trace once, however often the trace was read. Equal completions of different attempts stay: how
    often the policy writes one is what a group tells."""
    seen: set[tuple[str, int]] = set()
    for one in candidates:
        name = one.key[1:3]
        if name in seen:
            losses.add("traces that were there already: left out")
            continue
        seen.add(name)
        yield one


def copies(content: bytes, weight: float, seed: int) -> int:
    """How often something of this content stands in the set: the weight, rounded up or down by a chance that depends on the
    content and the seed alone."""
    whole = floor(weight)
    return whole + (_chance(content, seed) < weight - whole)


def known_agents(config: DatasetConfig, candidates: Sequence[CandidateRow]) -> None:
    """Check that `config.agent_weights` names agents of these candidates alone.

    Raises:
        InputError: A weight is for an agent that made no attempt.
    """
    agents = sorted({one.agent for one in candidates})
    if unknown := sorted(config.agent_weights.keys() - set(agents)):
        named = ", ".join(agent or "(without a name)" for agent in agents) or "none"
        raise InputError(f"there is no trace of an agent {unknown[0]!r} to weigh; there are those of {named}")


def balanced(rows: Sequence[CandidateRow], config: DatasetConfig, losses: Losses) -> list[CandidateRow]:
    """The rows, with as many good as bad ones where that was asked for.

    Raises:
        InputError: There are none of one kind.
    """
    if config.balance not in ("undersample", "oversample"):
        return list(rows)
    sides = [[row for row in rows if row.verdict.good is good] for good in (True, False)]
    few, many = sorted(map(len, sides))
    if many and not few:
        only, missing = ("good", "bad") if sides[0] else ("bad", "good")
        raise InputError(f"all {many} rows are {only}: there is no {missing} one to balance them with; leave out --balance")
    if config.balance == "undersample":
        chosen = {id(row) for side in sides for row in _some(side, few, config.seed)}
        losses.add("rows of the side with more labels: left out for balance", many - few)
        return [row for row in rows if id(row) in chosen]
    return [*rows, *(row for side in sides for row in _repeated(side, many - len(side), config.seed))]


def _some(side: Sequence[CandidateRow], count: int, seed: int) -> list[CandidateRow]:
    return sorted(side, key=lambda row: (_chance(row.content, seed), row.key))[:count]


def _repeated(side: Sequence[CandidateRow], count: int, seed: int) -> list[CandidateRow]:
    """So many more, each as often as any other, but for a rest."""
    if not side:
        return []
    rounds, rest = divmod(count, len(side))
    return [*list(side) * rounds, *_some(side, rest, seed)]


def _chance(content: bytes, seed: int) -> float:
    """From 0 to below 1."""
    drawn = hashlib.blake2b(content, digest_size=6, salt=str(seed).encode()[:16]).digest()
    return int.from_bytes(drawn) / 2**48


# Attempts at one task as groups, with rewards normalised among them.


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
        rewards = {one.trace: one.reward for one in group}
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


def build(
    judged: Iterable[JudgedTrace],
    path: Path | None,
    config: DatasetConfig,
    *,
    done: Callable[[int], None] = lambda _: None,
    unread: Sequence[str] = (),
) -> DatasetCard:
    """Write the rows that traces give, and what they are beside them: `<path>.sheet.md` and `<path>.sheet.json`.

    The same traces and settings give the same bytes, whatever the order in which the traces come. Only a little of each is
    kept in memory.

    Args:
        path: Where to; nothing is written without one.
        done: Told after each trace that it is one more.
        unread: Filled by whoever reads the traces with what could not be read, until the last of them came.

    Raises:
        InputError: There is nothing that could be a row, a setting does not fit the traces, or the file cannot be written.
    """
    losses = Losses()
    with closing(Spool()) as spool:
        candidates = gather(judged, config, spool, losses, done)
        losses.add("places in files that could not be read", len(unread))
        known_agents(config, candidates)
        rows, contents = (
            _kto(candidates, config, spool, losses) if config.method == "kto" else _grpo(candidates, config, spool, losses)
        )
        if path is None:
            return dataset_card.of(contents, config, losses, None)
        if not contents.rows:
            raise InputError(_nothing(losses))
        files.write(path, rows)
    card = dataset_card.of(contents, config, losses, path)
    dataset_card.save(card, path)
    return card


def _nothing(losses: Losses) -> str:
    why = "; ".join(losses) or "there were no traces"
    message = f"there is nothing to learn from: {why}"
    return (
        f"{message}. To say what they were worth: journeyman traces label, or journeyman score --store --keep"
        if UNKNOWN in why
        else message
    )


_RowsAndContents = tuple[Iterator[Row], dataset_card.DatasetContents]


def _kto(candidates: Sequence[CandidateRow], config: DatasetConfig, spool: Spool, losses: Losses) -> _RowsAndContents:
    chosen = [
        row
        for row in deduplicated(candidates, losses)
        for _ in range(copies(row.content, config.agent_weights.get(row.agent, 1.0), config.seed))
    ]
    rows = balanced(chosen, config, losses)
    return (_labelled(row, spool) for row in rows), dataset_card.DatasetContents(rows=len(rows), candidates=rows)


def _grpo(candidates: Sequence[CandidateRow], config: DatasetConfig, spool: Spool, losses: Losses) -> _RowsAndContents:
    groups = grouped(list(once(candidates, losses)), losses)
    bunches = [bunch for bunch in groups.bunches for _ in range(_copies(bunch, config))]
    return (_group(bunch, spool) for bunch in bunches), _contents(bunches, groups)


def _contents(bunches: Sequence[PromptGroup], groups: GroupedRows) -> dataset_card.DatasetContents:
    candidates = [one for bunch in bunches for one in bunch.candidates]
    return dataset_card.DatasetContents(rows=len(bunches), candidates=candidates, groups=groups.tasks, flat=groups.flat)


def _copies(bunch: PromptGroup, config: DatasetConfig) -> int:
    weights = [config.agent_weights.get(one.agent, 1.0) for one in bunch.candidates]
    return copies(bunch.candidates[0].content, sum(weights) / len(weights), config.seed)


def _labelled(row: CandidateRow, spool: Spool) -> LabelledCompletion:
    payload = spool.get(row.offset)
    return LabelledCompletion(
        prompt=_text_or_messages(payload["prompt"]),
        completion=_text_or_messages(payload["completion"]),
        label=row.verdict.good,
        tools=tuple(payload["tools"]),
        source={"trace": row.trace, **_source(row), "label": row.verdict.reason},
    )


def _group(bunch: PromptGroup, spool: Spool) -> CompletionGroup:
    payloads = [spool.get(one.offset) for one in bunch.candidates]
    logprobs = tuple(None if each["logprobs"] is None else tuple(each["logprobs"]) for each in payloads)
    return CompletionGroup(
        prompt=_text_or_messages(payloads[0]["prompt"]),
        completions=tuple(_text_or_messages(each["completion"]) for each in payloads),
        rewards=bunch.rewards,
        scores=tuple(one.reward for one in bunch.candidates),
        logprobs=logprobs if any(each is not None for each in logprobs) else (),
        tools=tuple(payloads[0]["tools"]),
        source=_source(bunch.candidates[0]),
    )


def _text_or_messages(value: Any) -> TextOrMessages:
    return value if isinstance(value, str) else tuple(value)


def _source(candidate: CandidateRow) -> Mapping[str, str]:
    fields = {"task": candidate.task_id, "agent": candidate.agent, "domain": candidate.domain}
    return {name: value for name, value in fields.items() if value}
