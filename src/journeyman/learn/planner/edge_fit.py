"""Learning who follows whom from plans: principal axes of the vectors, then two networks by gradient descent."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from journeyman.embed.base import Vectors
from journeyman.errors import InputError
from journeyman.learn.planner.edge_features import Draft, Numbers
from journeyman.learn.planner.edges import Edges, Parents

CHAIN, LOOSE, MIXED = range(3)


@dataclass(frozen=True, kw_only=True)
class Linked:
    """A plan to learn from.

    Raises:
        InputError: A subtask follows one that does not stand before it, or there is not one entry for each.
    """

    draft: Draft
    parents: Parents
    """For each subtask, whom it follows."""

    def __post_init__(self) -> None:
        if len(self.parents) != len(self.draft.texts):
            raise InputError(
                f"{len(self.draft.texts)} subtasks need as many entries of whom each follows, not {len(self.parents)}"
            )
        if any(not 0 <= parent < at for at, parents in enumerate(self.parents) for parent in parents):
            raise InputError(
                "a subtask follows one that does not stand before it; put them in an order in which they can be done"
            )

    @property
    def is_edge(self) -> NDArray[np.bool_]:
        """For each of the draft's pairs."""
        return np.array([i in self.parents[j] for i, j in zip(*self.draft.pairs, strict=True)], bool)

    @property
    def shape(self) -> int:
        """`CHAIN`, `LOOSE` (no edges at all) or `MIXED`."""
        if all(set(parents) == ({at - 1} if at else set()) for at, parents in enumerate(self.parents)):
            return CHAIN
        return MIXED if any(self.parents) else LOOSE


@dataclass(frozen=True, kw_only=True)
class EdgeFitConfig:
    """How the networks are trained. The defaults were chosen on plans of WorFBench."""

    axes: int = 24
    """Principal axes of the instructions' vectors that are looked at, and as many of the subtasks'."""
    bags: int = 5
    """Networks that are averaged. Each starts elsewhere and drops other units."""
    pair_hidden: int = 64
    plan_hidden: int = 32
    epochs: int = 30
    least_steps: int = 300
    """More epochs than that where there is little to learn from, until there were so many batches."""
    batch: int = 64
    rate: float = 2e-3
    """Of learning; falls linearly to 0."""
    decay: float = 0.1
    """Of the weights (AdamW: Loshchilov and Hutter, 2019)."""
    dropout: float = 0.3
    seed: int = 0


def fit(plans: Sequence[Linked], *, embedder: str, config: EdgeFitConfig | None = None) -> Edges:
    """What the plans say about who follows whom. The same plans and config give the same bytes on one machine and thread.

    Raises:
        InputError: No plan has two subtasks.
    """
    config = config or EdgeFitConfig()
    plans = [plan for plan in plans if len(plan.parents) > 1]
    if not plans:
        raise InputError("no plan has two subtasks; who follows whom can only be learned from plans that do")
    request = _axes(np.stack([plan.draft.vector for plan in plans]), config.axes)
    text = _axes(np.vstack([plan.draft.vectors for plan in plans]), config.axes)
    arrays = dict(zip(("request_mean", "request_axes", "text_mean", "text_axes"), (*request, *text), strict=True))
    reader = Edges(embedder=embedder, arrays=arrays)
    # Of plans that are all chains or loose, pairs are learned as if they were mixed: nothing else is known about mixed ones.
    mixed = [plan for plan in plans if plan.shape == MIXED] or plans
    pair = _trained(np.vstack([reader.rows(plan.draft)[0] for plan in mixed]), _pair_loss(mixed), config.pair_hidden, 1, config)
    whole = _trained(np.stack([reader.rows(plan.draft)[1] for plan in plans]), _plan_loss(plans), config.plan_hidden, 3, config)
    for head, trained in (("pair", pair), ("plan", whole)):
        arrays |= {f"{head}_{name}": np.ascontiguousarray(array, np.float32) for name, array in trained.items()}
    return Edges(embedder=embedder, arrays=arrays)


def _axes(vectors: Vectors, count: int) -> tuple[Vectors, Vectors]:
    mean = vectors.mean(0)
    axes = np.linalg.svd(vectors - mean, full_matrices=False)[2][:count]
    return mean, np.ascontiguousarray(axes.T)


Loss = Callable[[Tensor, Tensor], Tensor]
"""Of the networks' answers, shape (bags, rows, answers), to the rows that are named."""


def _pair_loss(plans: Sequence[Linked]) -> Loss:
    edges = torch.from_numpy(np.concatenate([plan.is_edge for plan in plans]).astype(np.float32))

    def loss(answers: Tensor, chosen: Tensor) -> Tensor:
        wanted = edges[chosen, None].expand(answers.shape)
        return binary_cross_entropy_with_logits(answers, wanted, reduction="sum") / len(chosen)

    return loss


def _plan_loss(plans: Sequence[Linked]) -> Loss:
    shapes = torch.tensor([plan.shape for plan in plans])

    def loss(answers: Tensor, chosen: Tensor) -> Tensor:
        return cross_entropy(answers.flatten(0, 1), shapes[chosen].repeat(len(answers)), reduction="sum") / len(chosen)

    return loss


def _trained(rows: Numbers, loss: Loss, hidden: int, answers: int, config: EdgeFitConfig) -> dict[str, Numbers]:
    """The weights of networks with one hidden layer, one network a bag, that take the rows as they are."""
    mean, spread = rows.mean(0), rows.std(0)
    spread[spread < 1e-6] = 1.0
    inputs = torch.from_numpy(((rows - mean) / spread).astype(np.float32))
    chance = torch.Generator().manual_seed(config.seed)
    sizes = ((rows.shape[1], hidden), (hidden, answers))
    weights = [torch.randn((config.bags, *size), generator=chance).div(size[0] ** 0.5).requires_grad_() for size in sizes]
    biases = [torch.zeros((config.bags, 1, size[1]), requires_grad=True) for size in sizes]
    groups = [{"params": weights, "weight_decay": config.decay}, {"params": biases, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.rate)
    batches = -(-len(rows) // config.batch)
    epochs = max(config.epochs, -(-config.least_steps // batches))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / (epochs * batches))
    for _ in range(epochs):
        for chosen in torch.randperm(len(rows), generator=chance).split(config.batch):
            inner = torch.relu(inputs[chosen] @ weights[0] + biases[0])
            kept = torch.rand(inner.shape, generator=chance) >= config.dropout
            lost = loss(inner * kept / (1 - config.dropout) @ weights[1] + biases[1], chosen)
            optimizer.zero_grad()
            lost.backward()
            optimizer.step()
            schedule.step()
    first, second = (weight.detach().numpy().astype(float) for weight in weights)
    first_bias, second_bias = (bias.detach().numpy()[:, 0].astype(float) for bias in biases)
    first /= spread[:, None]
    return {"in": first, "in_bias": first_bias - mean @ first, "out": second, "out_bias": second_bias}
