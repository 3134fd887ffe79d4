"""What the planner is trained on: to do as those plans that succeeded, and how far a soft graph is from having no cycle."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from journeyman.optimizers.planner.base import Example
from journeyman.optimizers.planner.memory import succeeded

PADDING = -100
"""The target of what is no step, or not known."""
SMOOTHING = 0.05
HEAVIEST = 5.0
"""No plan counts more than so many ordinary ones."""


def acyclicity(adjacency: Tensor) -> Tensor:
    """How far graphs are from being acyclic: tr(exp(A∘A)) - d, 0 just where there is no cycle, and differentiable.

    Zheng et al., DAGs with NO TEARS (NeurIPS 2018), equation 8. Self-loops are cycles of length 1.

    Args:
        adjacency: (…, d, d), weights of edges.

    Returns:
        (…,), at least 0 but for rounding.
    """
    walks = torch.linalg.matrix_exp(adjacency * adjacency)
    return walks.diagonal(dim1=-2, dim2=-1).sum(-1) - adjacency.shape[-1]


def outcome_weights(examples: Sequence[Example], beta: float = 1.0) -> NDArray[np.float32]:
    """(n,): how much each example counts: nothing when it failed; of those that succeeded exp(advantage / beta), where
    success at less than the usual cost and time is worth more. Mean 1 over those that count.

    Peng et al., Advantage-Weighted Regression (2019). What is not known is as usual.
    """
    worth = np.array([1.0 if example.success is None else example.success for example in examples])
    for known in ([example.cost for example in examples], [example.seconds for example in examples]):
        values = np.array([np.nan if value is None else value for value in known], float)
        usual = np.nanmedian(values) if np.isfinite(values).any() else 0.0
        if usual > 0:
            worth -= 0.5 * np.where(np.isfinite(values), np.minimum(values / usual, 4.0), 1.0)
    good = np.array([succeeded(example) for example in examples], np.bool_)
    if not good.any():
        return np.zeros(len(examples), np.float32)
    weights = np.where(good, np.minimum(np.exp((worth - worth[good].mean()) / beta), HEAVIEST), 0.0)
    return np.asarray(weights / weights[good].mean(), np.float32)


def compute_supervised_loss(
    outputs: Mapping[str, Tensor], targets: Mapping[str, Tensor], *, lambda_dag: float = 0.0
) -> dict[str, Tensor]:
    """The loss of `PlannerModel`'s outputs; of what stands in `targets`, so that data without workers trains the rest.

    Args:
        outputs: As the model gives them.
        targets: Any of `task_types` and `model_selections` (b, k), padded with -100; `nodes` (b, c), how often a candidate
            is a step; `lengths` (b,); `dependencies` (b, k, k), 1 where the row must be done before the column;
            `edges` (b, k, k), 1 where the column follows the row;
            `success` (b,), NaN where unknown; and `weights` (b,), of each plan.
        lambda_dag: Weight of the acyclicity of the soft graph.

    Returns:
        `ce_loss`, `dag_loss` and `total_loss` = ce_loss + lambda_dag * dag_loss, each a scalar, and each term by its name.
    """
    weights = targets.get("weights")
    if weights is None:
        weights = outputs["nodes"].new_ones(len(outputs["nodes"]))
    terms: dict[str, Tensor] = {}
    for name in ("task_types", "model_selections"):
        if name in targets:
            terms[name] = _choice(outputs[name], targets[name], weights)
    if "nodes" in targets:
        terms |= _nodes(outputs, targets["nodes"], weights)
        terms["times"] = _times(outputs["times"], outputs["there"], targets["nodes"], weights)
    if "lengths" in targets:
        each = F.cross_entropy(outputs["lengths"], targets["lengths"], reduction="none", label_smoothing=SMOOTHING)
        terms["lengths"] = _mean(each, weights)
    if "dependencies" in targets:
        terms |= _order(outputs, targets["dependencies"], weights)
    if "edges" in targets:
        terms["edges"] = _pairwise(outputs["edges"], outputs["real"], targets["edges"], weights)
    if "success" in targets:
        known = torch.isfinite(targets["success"]).float()
        each = F.binary_cross_entropy_with_logits(outputs["value"], targets["success"].nan_to_num(), reduction="none")
        terms["value"] = 0.5 * _mean(each, known)
    dag = _mean(acyclicity(outputs["workflow_graph"]), weights)
    ce = torch.stack(list(terms.values())).sum() if terms else dag.new_zeros(())
    return {**terms, "ce_loss": ce, "dag_loss": dag, "total_loss": ce + lambda_dag * dag}


def _mean(each: Tensor, weights: Tensor) -> Tensor:
    return (each * weights).sum() / weights.sum().clamp(min=1e-6)


def _choice(logits: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
    k = min(logits.shape[1], chosen.shape[1])
    logits, chosen = logits[:, :k], chosen[:, :k]
    each = F.cross_entropy(
        logits.transpose(1, 2),
        chosen,
        ignore_index=PADDING,
        reduction="none",
        label_smoothing=SMOOTHING if logits.shape[2] > 1 else 0,
    )
    return _mean(each, weights[:, None] * (chosen != PADDING))


def _nodes(outputs: Mapping[str, Tensor], times: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Each step against all other cards, and each card on its own: the one orders them, the other says how likely they are."""
    logits, there = outputs["nodes"], outputs["there"]
    is_step = (times > 0).float()
    steps = is_step.sum(1)
    listed = -(F.log_softmax(logits, 1) * is_step).sum(1) / steps.clamp(min=1)
    alone = F.binary_cross_entropy_with_logits(logits, is_step, reduction="none") * there
    again = F.binary_cross_entropy_with_logits(outputs["repeats"], (times > 1).float(), reduction="none") * is_step
    return {
        "listed": _mean(listed, weights * (steps > 0)),
        "nodes": _mean(alone.sum(1) / steps.clamp(min=1), weights),
        "repeats": _mean(again.sum(1) / steps.clamp(min=1), weights),
    }


def _times(likely: Tensor, there: Tensor, times: Tensor, weights: Tensor) -> Tensor:
    """How often each card is a step: minus the log of the probability that the clauses ask for it so often."""
    often = times.long().clamp(max=likely.shape[-1] - 1)
    each = -torch.log(likely.gather(-1, often[..., None])[..., 0].clamp(min=1e-6)) * there
    return _mean(each.sum(1) / (times > 0).sum(1).clamp(min=1), weights)


def _order(outputs: Mapping[str, Tensor], before: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Steps come in the order of the plan: the first is the start, each next the successor of the one before it."""
    real = outputs["real"]
    several = weights * (real.sum(1) > 1)
    start = F.cross_entropy(outputs["start"], torch.zeros(len(real), dtype=torch.long), reduction="none")
    k = real.shape[1]
    # A step cannot be followed by one that was done already.
    later = torch.ones(k, k, dtype=torch.bool).triu(1)
    follows = F.log_softmax(outputs["successors"].masked_fill(~later, -30.0), -1).diagonal(1, 1, 2)
    return {
        "start": 0.5 * _mean(start, several),
        "successors": 0.5 * _mean(-(follows * real[:, 1:]).sum(1) / real[:, 1:].sum(1).clamp(min=1), several),
        "dependencies": _pairwise(outputs["dependencies"], real, before, weights),
    }


def _pairwise(logits: Tensor, real: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """Over the ordered pairs of different steps of plans of several."""
    pairs = real[:, :, None] & real[:, None] & ~torch.eye(real.shape[1], dtype=torch.bool)
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none") * pairs
    return _mean(each.sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1), weights * (real.sum(1) > 1))
