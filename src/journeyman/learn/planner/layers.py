"""What the planner's network is built of, and what it holds to be likely before it has learned anything."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from journeyman.learn.planner.spoken import ANCHOR_FEATURES

NODE_PRIOR = (
    (2.0, 4.0, 3.0, 6.0, 1.0, 3.0, 1.5, 0.5, 1.0, 0.0, 0.0, 1.0, -3.0),
    (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -3.0),
)
"""Weights of the features of a candidate, the last one the constant, before anything is learned: whether it is a step, and one
again. A planner with hardly any examples is a retrieval of cards with a memory."""
_NO_CLAUSE = (0.0,) * ANCHOR_FEATURES
PAIR_PRIOR = (
    (0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, *_NO_CLAUSE, 0.0),
    (0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 1.5, 3.0, 2.0, 1.0, 3.0, 1.0, *_NO_CLAUSE, -4.5),
    (0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 1.5, 3.0, 2.0, 1.0, 3.0, 1.0, 0.0, 0.0, 1.5, 1.5, 0.0, -1.0, 0.0, 0.0, -4.5),
)
"""The same of a pair of steps: whether the second comes next, whether it must wait for the first, and whether it is handed what
the first gives."""
CLAUSE_PRIOR = ((4.0, 2.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -3.0),)
"""The same of a clause and a card: whether the one asks for the other."""


class FeatureHead(nn.Module):  # type: ignore[misc]
    """Logits of features: at first as a prior weighs them, then as it learned."""

    def __init__(self, prior: Sequence[Sequence[float]], more: int = 0, beside: int = 0) -> None:
        """With `more` features than the prior weighs; `beside` is the width of a vector that has a say in what they mean."""
        super().__init__()
        weights = torch.tensor(prior)
        inside, outside = weights.shape[1] - 1 + more, len(weights)
        self.linear = nn.Linear(inside, outside)
        self.deep = nn.Sequential(nn.Linear(inside, 64), nn.GELU(), nn.Linear(64, outside))
        self.beside = nn.Linear(beside, 64, bias=False) if beside else None
        with torch.no_grad():
            self.linear.weight.zero_()
            self.linear.weight[:, : weights.shape[1] - 1] = weights[:, :-1]
            self.linear.bias.copy_(weights[:, -1])
            self.deep[2].weight.zero_()
            self.deep[2].bias.zero_()

    def forward(self, features: Tensor, vector: Tensor | None = None) -> Tensor:
        if self.beside is None or vector is None:
            return self.linear(features) + self.deep(features)
        first, bend, last = self.deep
        return self.linear(features) + last(bend(first(features) + self.beside(vector)))


def tower(inside: int, hidden: int, outside: int, dropout: float) -> nn.Sequential:
    """Two layers, and numbers of one size at the end."""
    return nn.Sequential(
        nn.Linear(inside, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, outside), nn.LayerNorm(outside)
    )
