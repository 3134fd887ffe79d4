"""Which rows stand in the set, and how often: duplicates, contradictions, weights of agents, balance of labels."""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import floor

from journeyman.capture.finetuning import Losses
from journeyman.errors import InputError
from journeyman.learn.weights.data.config import DatasetConfig
from journeyman.learn.weights.data.gather import CandidateRow
from journeyman.learn.weights.data.judged import LabelVerdict


def deduplicated(candidates: Sequence[CandidateRow], losses: Losses) -> Iterator[CandidateRow]:
    """Each completion of a prompt once, the oldest. Where verdicts on it differ, those of the lowest rank decide, and among
    them the greater number."""
    alike: defaultdict[bytes, list[CandidateRow]] = defaultdict(list)
    for one in candidates:
        alike[one.content].append(one)
    for same in alike.values():
        verdicts = [one.verdict for one in same if one.verdict is not None]
        rank = min(verdict.rank for verdict in verdicts)
        votes = [verdict.good for verdict in verdicts if verdict.rank == rank]
        good = votes.count(True)
        if 2 * good == len(votes):
            losses.add("rows that were called good as often as bad: left out", len(same))
            continue
        losses.add("rows whose prompt and completion were there already: left out", len(same) - 1)
        yield replace(same[0], verdict=LabelVerdict(2 * good > len(votes), rank))


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
    sides = [[row for row in rows if row.verdict is not None and row.verdict.good is good] for good in (True, False)]
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
