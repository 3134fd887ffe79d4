"""From scores to a plan that has no cycle, whatever the scores: first the steps, then an order, then edges that point forward.

The order is the best one up to 8 steps (Held and Karp's dynamic programming over subsets), found by beam search beyond.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from journeyman.core.errors import PlanError
from journeyman.core.policy import Card
from journeyman.optimizers.planner.features import LONGEST

Array = NDArray[np.float32] | NDArray[np.float64]

Handed = Sequence[Mapping[str, tuple[int, int]]]
EXACT = 8
"""Steps up to which every order is looked at."""
BEAM = 32


@dataclass(frozen=True, kw_only=True)
class StepScores:
    """Of k chosen steps, as the network gives them: logits."""

    start: Array
    """(k,)"""
    successors: Array
    """(k, k)"""
    dependencies: Array
    """(k, k): whether the row must be done before the column."""
    edges: Array | None = None
    """(k, k): whether the column is handed what the row gives; `None` where that is taken to follow from the dependencies."""


@dataclass(frozen=True, kw_only=True)
class Decoded:
    """The shape of a plan."""

    steps: tuple[int, ...]
    """Which of the cards, in the order in which they can be done."""
    parents: tuple[tuple[int, ...], ...]
    """Of each step those that it follows, as positions before its own."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What k steps must be handed that does not come with the instruction."""

    takes: NDArray[np.bool_]
    """(k, t)"""
    gives: NDArray[np.bool_]
    """(k, t)"""
    types: tuple[str, ...]

    @classmethod
    def of(cls, cards: Sequence[Card], given: frozenset[str] | None) -> "Needs":
        """With `given` unknown, all that nobody gives is taken to come with the instruction."""
        wanted = {kind for card in cards for kind in card.takes} if given is not None else set()
        types = tuple(sorted(wanted - (given or frozenset())))
        takes = np.array([[kind in card.takes for kind in types] for card in cards], np.bool_).reshape(len(cards), len(types))
        gives = np.array([[kind in card.gives for kind in types] for card in cards], np.bool_).reshape(len(cards), len(types))
        return cls(takes=takes, gives=gives, types=types)

    def ready(self, done: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(k,): what can be done when some are done."""
        have = self.gives[done].any(0)
        return np.asarray((~self.takes | have).all(1))

    def stuck(self) -> NDArray[np.bool_]:
        """(k,): what can never be done, in whatever order."""
        done = np.zeros(len(self.takes), np.bool_)
        while (more := self.ready(done) & ~done).any():
            done |= more
        return ~done


def choose_steps(chances: Array, lengths: Array, most: int = LONGEST) -> list[int]:
    """Which candidates: those for which the expected F1 with the right set is largest.

    Expected under the probabilities of the cards and of the number of steps, taken as independent; a card may come
    more than once.

    Args:
        chances: (t, c), probabilities of being a step more than 0, 1, … t - 1 times.
        lengths: (n + 1,), of the number of steps.

    Returns:
        At least one candidate, the likeliest first.
    """
    cards = chances.shape[1]
    if not cards:
        raise PlanError("there is nothing to plan with; name at least one tool or kind of work")
    likely = np.argsort(-chances, axis=None, kind="stable")[:most]
    chance = chances.ravel()[likely]
    number = lengths[1:] / max(float(lengths[1:].sum()), 1e-9)
    sizes = np.arange(1, len(number) + 1)
    chance = np.minimum(1.0, chance * min(2.0, float(number @ sizes) / max(float(chance.sum()), 1e-6)))
    found = np.cumsum(chance)
    right = np.minimum(found[:, None], sizes[None])
    expected = (number * 2 * right / (np.arange(1, len(found) + 1)[:, None] + sizes[None])).sum(1)
    best = int(np.argmax(expected)) + 1
    return [int(at) % cards for at in likely[:best]]


def complete(chosen: Sequence[int], cards: Sequence[Card], likely: Array, given: frozenset[str] | None) -> list[int]:
    """The chosen cards, and what it takes to hand them what they need: the likeliest cards that give it.

    Raises:
        PlanError: A step needs what nothing gives.
    """
    found = list(chosen)
    while True:
        needs = Needs.of([cards[at] for at in found], given)
        stuck = np.asarray(needs.stuck(), np.bool_)
        if not stuck.any():
            return found
        # What would help is what a stuck step takes and no step that can be done gives.
        missing = np.asarray(needs.takes[stuck].any(0) & ~needs.gives[~stuck].any(0))
        wanted = {needs.types[at] for at in np.flatnonzero(missing)}
        helpers = [at for at, card in enumerate(cards) if at not in found and wanted.intersection(card.gives)]
        if not helpers or len(found) >= 2 * LONGEST:
            first = int(np.flatnonzero(stuck & (needs.takes & missing).any(1))[0])
            kind = sorted(wanted.intersection(cards[found[first]].takes))[0]
            raise PlanError(
                f"{cards[found[first]].name!r} must be handed {kind!r}, which neither the instruction nor a step before it "
                "gives; name what comes with the instruction, or a tool that gives it"
            )
        found.append(max(helpers, key=lambda at: float(likely[at])))


def best_order(start: Array, successors: Array, dependencies: Array, needs: Needs | None = None) -> list[int]:
    """The order in which a path along the successors is likeliest and the fewest likely dependencies point backwards, among
    those in which each step finds what it needs.

    Raises:
        PlanError: There is none.
    """
    k = len(start)
    free = Needs(takes=np.zeros((k, 0), np.bool_), gives=np.zeros((k, 0), np.bool_), types=())
    needs = needs or free
    if needs.stuck().any():
        raise PlanError("the steps wait for each other's results in a circle; no order of them can be carried out")
    first = np.log(softmax(start.astype(float)) + 1e-9)
    others = np.where(np.eye(k, dtype=np.bool_), -np.inf, successors.astype(float))
    follow = np.log(softmax(others, axis=-1) + 1e-9) if k > 1 else np.zeros((k, k))
    # What standing before is worth: that nothing must then be done the other way round.
    before = -np.logaddexp(0.0, dependencies.T.astype(float))
    search = _exact if k <= EXACT else _beam
    return search(first, follow, before, needs)


def _exact(first: Array, follow: Array, before: Array, needs: Needs) -> list[int]:
    k = len(first)
    best = np.full((1 << k, k), -np.inf)
    came = np.zeros((1 << k, k), np.int64)
    bits = np.arange(k)
    ready = needs.ready(np.zeros(k, np.bool_))
    best[1 << bits[ready], bits[ready]] = first[ready]
    for mask in range(1, 1 << k):
        done = (mask >> bits & 1).astype(np.bool_)
        if not np.isfinite(best[mask]).any():
            continue
        open_ = np.flatnonzero(~done & needs.ready(done))
        reached = best[mask][:, None] + follow[:, open_] + before[done][:, open_].sum(0)
        last = reached.argmax(0)
        best[mask | 1 << open_, open_] = reached[last, np.arange(len(open_))]
        came[mask | 1 << open_, open_] = last
    mask, at = (1 << k) - 1, int(best[-1].argmax())
    order = [at]
    while len(order) < k:
        mask, at = mask ^ (1 << at), int(came[mask, at])
        order.append(at)
    return order[::-1]


def _beam(first: Array, follow: Array, before: Array, needs: Needs) -> list[int]:
    k = len(first)
    nobody = np.zeros(k, np.bool_)
    beam = [(float(first[at]), [int(at)]) for at in np.flatnonzero(needs.ready(nobody))]
    for _ in range(k - 1):
        beam = sorted(beam, key=lambda path: -path[0])[:BEAM]
        longer = []
        for score, path in beam:
            done = nobody.copy()
            done[path] = True
            longer += [
                (score + float(follow[path[-1], at] + before[path, at].sum()), [*path, int(at)])
                for at in np.flatnonzero(~done & needs.ready(done))
            ]
        beam = longer
    return max(beam, key=lambda path: path[0])[1]


def forward_edges(
    dependencies: Array,
    cards: Sequence[Card],
    given: frozenset[str] | None = None,
    edges: Array | None = None,
    handed: Handed | None = None,
) -> list[list[int]]:
    """Of each step in order those that it follows: all that it likely depends on, the likeliest giver of what it needs and has
    from none of these, less what follows from the rest (the transitive reduction), as long as a step keeps what it needs.

    Args:
        dependencies: (k, k), logits, steps in their order. What points backwards is not looked at.
        edges: The same of what is handed on. Where they are known, they say what a step follows, and nothing is left out.
        handed: Of each step, by type, how many steps hand it some, at least and at most, where any before it gives that.
    """
    follows = dependencies if edges is None else edges
    parents: list[list[int]] = []
    for at, card in enumerate(cards):
        kept = [above for above in range(at) if follows[above, at] >= 0]
        for kind, (least, most) in () if handed is None else handed[at].items():
            givers = sorted(
                (a for a in range(at) if kind in cards[a].gives), key=lambda above: (-float(follows[above, at]), above)
            )
            chosen = [above for above in givers if above in kept]
            kept = [above for above in kept if above not in chosen[most:]] + givers[len(chosen) : least]
        for kind in () if given is None else sorted(set(card.takes) - given):
            if any(kind in cards[above].gives for above in kept):
                continue
            givers = [above for above in range(at) if kind in cards[above].gives]
            kept += [max(givers, key=lambda above: (float(follows[above, at]), above))] if givers else []
        parents.append(sorted(set(kept)))
    return _reduced(parents, cards) if edges is None else parents


def _reduced(parents: list[list[int]], cards: Sequence[Card]) -> list[list[int]]:
    above: list[set[int]] = []
    for found in parents:
        above.append(set(found).union(*(above[at] for at in found)))
    reduced = []
    for at, found in enumerate(parents):
        kept = list(found)
        for parent in found:
            others = [other for other in kept if other != parent]
            implied = any(parent in above[other] for other in others)
            carries = set(cards[parent].gives).intersection(cards[at].takes)
            if implied and carries <= {kind for other in others for kind in cards[other].gives}:
                kept.remove(parent)
        reduced.append(kept)
    return reduced


def decode(
    chosen: Sequence[int],
    scores: StepScores,
    cards: Sequence[Card],
    given: frozenset[str] | None = None,
    handed: Handed | None = None,
) -> Decoded:
    """Chosen cards, by their places among `cards`, as the shape of a plan. Every input that is needed and not given comes along
    an edge.

    Raises:
        PlanError: There is no order in which each step finds what it needs.
    """
    needs = Needs.of([cards[at] for at in chosen], given)
    order = best_order(scores.start, scores.successors, scores.dependencies, needs)
    steps = [chosen[at] for at in order]
    edges = None if scores.edges is None else scores.edges[np.ix_(order, order)]
    known = None if handed is None else [handed[at] for at in order]
    parents = forward_edges(scores.dependencies[np.ix_(order, order)], [cards[at] for at in steps], given, edges, known)
    return Decoded(steps=tuple(steps), parents=tuple(tuple(above) for above in parents))
