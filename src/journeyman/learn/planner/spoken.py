"""Which clause of an instruction asks for which card: what the network is shown of each pair, how often a card is asked for in
all, and which clause each step of a plan comes from."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float32]

CLAUSE_FEATURES = 10
"""Of a clause and a card."""
NAMED = 3
"""Which of them is the share of the card's name that the clause has."""
TIMES = 4
"""Steps of one card in a plan that are told apart, at most; more count as so many."""
_WORD = re.compile(r"[a-z0-9]+")


def clause_features(clauses: Sequence[str], names: Sequence[frozenset[str]], cosines: Floats) -> Floats:
    """(q, c, CLAUSE_FEATURES).

    Args:
        names: The words of the names of the c cards.
        cosines: (q, c), of clauses and cards.
    """
    q, c = cosines.shape
    named, early, late, first = np.zeros((4, q, c), np.float32)
    for row, clause in enumerate(clauses):
        said = _WORD.findall(clause.lower())
        place = {word: at for at, word in reversed(list(enumerate(said)))}
        starts = np.full(c, len(said), np.int64)
        for column, name in enumerate(names):
            found = [place[word] for word in name if word in place]
            named[row, column] = len(found) / max(len(name), 1)
            if found and len(found) == len(name):
                starts[column] = min(found)
                early[row, column], late[row, column] = 1 / (1 + min(found)), 1 / (len(said) - max(found))
        first[row] = (starts == starts.min(initial=len(said))) & (starts < len(said))
    stands = np.arange(q, dtype=np.float32)[:, None] / max(q - 1, 1)
    whole = np.ones((q, c), np.float32)
    columns = [
        cosines,
        cosines - cosines.max(1, keepdims=True),
        cosines - cosines.max(0, keepdims=True),
        named,
        early,
        late,
        first,
        stands * whole,
        (stands == 1) * whole,
        whole * q / 8,
    ]
    return np.stack(columns, -1).astype(np.float32)


def times(chances: "Tensor") -> "Tensor":
    """(b, c, TIMES + 1): how likely a card is asked for never, once, …, so often or more, when each clause asks on its own.

    Args:
        chances: (b, q, c), that a clause asks for a card; 0 for padding.
    """
    import torch

    likely = torch.zeros(*chances.shape[::2], TIMES + 1)
    likely[..., 0] = 1
    for chance in chances.unbind(1):
        more = chance[..., None]
        asked = likely * more
        again = torch.cat([torch.zeros_like(more), asked[..., :-1]], -1)
        most = torch.cat([torch.zeros_like(asked[..., :-1]), asked[..., -1:]], -1)
        likely = likely * (1 - more) + again + most
    return likely


def totals(chances: Floats, most: int) -> Floats:
    """(most + 1,): how likely there are so many steps in all, or at least the last number of them; `chances` of any shape."""
    likely = np.zeros(most + 1)
    likely[0] = 1
    for chance in chances[chances > 0.001].tolist():
        asked = likely * chance
        likely -= asked
        likely[1:] += asked[:-1]
        likely[-1] += asked[-1]
    return np.asarray(likely, np.float32)


def anchors(chances: Floats, columns: Sequence[int]) -> list[int]:
    """Which clause each step comes from: of a card that comes n times the n clauses that likeliest ask for it, in their order.

    Args:
        chances: (q, c)
        columns: Of each step, its card among the c; below 0 where nothing is known of it, which comes from the last clause.
    """
    q = len(chances)
    left: dict[int, list[int]] = {}
    for column in set(columns):
        n = min(columns.count(column), q)
        best = np.argsort(-chances[:, column], kind="stable")[:n] if column >= 0 else [q - 1]
        left[column] = sorted(int(at) for at in best)
    found = []
    for column in columns:
        found.append(left[column][0])
        if len(left[column]) > 1:
            left[column].pop(0)
    return found


ANCHOR_FEATURES = 8
"""Of an ordered pair of steps, of the clauses that they come from."""


def anchor_features(where: Sequence[int], named: Floats, same: NDArray[np.bool_], clauses: int) -> Floats:
    """(k, k, ANCHOR_FEATURES).

    Args:
        where: (k,), the clauses that the steps come from.
        named: (k, k), the share of the row's name that the column's clause has.
        same: (k, k), whether both are the same card.
    """
    k = len(where)
    at = np.asarray(where, np.int64)
    apart = at[:, None] != at[None]
    other = named * apart * ~same
    before = np.array([max((w for w in where if w < here), default=-1) for here in where])
    last = np.full((k, k), float(clauses - 1), np.float32)
    columns = [
        np.sign(at[None] - at[:, None]),
        ~apart,
        at[:, None] == before[None],
        other,
        np.broadcast_to(other.max(0, initial=0.0), (k, k)),
        same,
        at[None] == last,
        np.broadcast_to(at[None] / max(clauses - 1, 1), (k, k)),
    ]
    return np.stack([np.asarray(column, np.float32) for column in columns], -1)
