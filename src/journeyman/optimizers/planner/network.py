"""The trained part of the planner: which cards, how many, in which order, of which type, by whom, and what it will be worth.

Cards enter as vectors, never as rows of a table, so a card that was not there in training has logits like any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from journeyman.core.errors import InputError
from journeyman.core.plan import Plan
from journeyman.core.policy import Card
from journeyman.optimizers.planner.config import NetworkConfig
from journeyman.optimizers.planner.data import Example
from journeyman.optimizers.planner.decode import Decoded, StepScores, choose_steps, complete, decode
from journeyman.optimizers.planner.features import (
    ANCHOR_FEATURES,
    CLAUSE_FEATURES,
    FEATURES,
    LIKE_VOTE,
    LONGEST,
    NAMED,
    PAIR_FEATURES,
    TIMES,
    VOTE,
    EncodedInstruction,
    InstructionEncoder,
    anchor_features,
    anchors,
    times,
    totals,
)
from journeyman.optimizers.planner.memory import CardEmbeddings, Floats, step_of
from journeyman.optimizers.planner.texts import StepTexts

# What the planner is trained on: to do as those plans that succeeded, and how far a soft graph is from having no cycle.

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
    good = np.array([example.succeeded for example in examples], np.bool_)
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
            `asked` (b, q, c), 1 where a clause asks for a card and NaN where that is unknown;
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
        terms |= _nodes_loss(outputs, targets["nodes"], weights)
        terms["times"] = _times_loss(outputs["times"], outputs["there"], targets["nodes"], weights)
    if "asked" in targets:
        terms["asked"] = _asked_loss(outputs["asked"], targets["asked"], weights)
    if "lengths" in targets:
        each = F.cross_entropy(outputs["lengths"], targets["lengths"], reduction="none", label_smoothing=SMOOTHING)
        terms["lengths"] = _weighted_mean(each, weights)
    if "dependencies" in targets:
        terms |= _order_loss(outputs, targets["dependencies"], weights)
    if "edges" in targets:
        terms["edges"] = _pairwise(outputs["edges"], outputs["real"], targets["edges"], weights)
    if "success" in targets:
        known = torch.isfinite(targets["success"]).float()
        each = F.binary_cross_entropy_with_logits(outputs["value"], targets["success"].nan_to_num(), reduction="none")
        terms["value"] = 0.5 * _weighted_mean(each, known)
    dag = _weighted_mean(acyclicity(outputs["workflow_graph"]), weights)
    ce = torch.stack(list(terms.values())).sum() if terms else dag.new_zeros(())
    return {**terms, "ce_loss": ce, "dag_loss": dag, "total_loss": ce + lambda_dag * dag}


def _weighted_mean(each: Tensor, weights: Tensor) -> Tensor:
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
    return _weighted_mean(each, weights[:, None] * (chosen != PADDING))


def _nodes_loss(outputs: Mapping[str, Tensor], times: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Each step against all other cards, and each card on its own: the one orders them, the other says how likely they are."""
    logits, there = outputs["nodes"], outputs["there"]
    is_step = (times > 0).float()
    steps = is_step.sum(1)
    listed = -(F.log_softmax(logits, 1) * is_step).sum(1) / steps.clamp(min=1)
    alone = F.binary_cross_entropy_with_logits(logits, is_step, reduction="none") * there
    again = F.binary_cross_entropy_with_logits(outputs["repeats"], (times > 1).float(), reduction="none") * is_step
    return {
        "listed": _weighted_mean(listed, weights * (steps > 0)),
        "nodes": _weighted_mean(alone.sum(1) / steps.clamp(min=1), weights),
        "repeats": _weighted_mean(again.sum(1) / steps.clamp(min=1), weights),
    }


def _times_loss(likely: Tensor, there: Tensor, times: Tensor, weights: Tensor) -> Tensor:
    """How often each card is a step: minus the log of the probability that the clauses ask for it so often."""
    often = times.long().clamp(max=likely.shape[-1] - 1)
    each = -torch.log(likely.gather(-1, often[..., None])[..., 0].clamp(min=1e-6)) * there
    return _weighted_mean(each.sum(1) / (times > 0).sum(1).clamp(min=1), weights)


def _asked_loss(likely: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """Which clause asks for which card, where that is known."""
    known = torch.isfinite(wanted)
    chance = torch.where(wanted.nan_to_num() > 0, likely, 1 - likely).clamp(min=1e-6)
    each = -(torch.log(chance) * known).sum((1, 2)) / (wanted.nan_to_num().sum((1, 2))).clamp(min=1)
    return _weighted_mean(each, weights * known.any(2).any(1))


def _order_loss(outputs: Mapping[str, Tensor], before: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Steps come in the order of the plan: the first is the start, each next the successor of the one before it."""
    real = outputs["real"]
    several = weights * (real.sum(1) > 1)
    start = F.cross_entropy(outputs["start"], torch.zeros(len(real), dtype=torch.long), reduction="none")
    k = real.shape[1]
    # A step cannot be followed by one that was done already.
    later = torch.ones(k, k, dtype=torch.bool).triu(1)
    follows = F.log_softmax(outputs["successors"].masked_fill(~later, -30.0), -1).diagonal(1, 1, 2)
    return {
        "start": 0.5 * _weighted_mean(start, several),
        "successors": 0.5 * _weighted_mean(-(follows * real[:, 1:]).sum(1) / real[:, 1:].sum(1).clamp(min=1), several),
        "dependencies": _pairwise(outputs["dependencies"], real, before, weights),
    }


def _pairwise(logits: Tensor, real: Tensor, wanted: Tensor, weights: Tensor) -> Tensor:
    """Over the ordered pairs of different steps of plans of several."""
    pairs = real[:, :, None] & real[:, None] & ~torch.eye(real.shape[1], dtype=torch.bool)
    each = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none") * pairs
    return _weighted_mean(each.sum((1, 2)) / pairs.sum((1, 2)).clamp(min=1), weights * (real.sum(1) > 1))


# What the planner's network is built of, and what it holds to be likely before it has learned anything.

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
    (*(0.0,) * PAIR_FEATURES, 2.0, *(0.0,) * ANCHOR_FEATURES),
)
"""The same of a pair of steps: whether the second comes next, whether it must wait for the first, whether it is handed what
the first gives, and whether the first comes before all others, on the mean over these."""
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


MODEL_FEATURES = 6
LOUD = 4.0
"""Times which a clause's vector is taken, so that a few hundred plans suffice to learn from its few words."""


@dataclass(frozen=True, kw_only=True)
class PlanBatch:
    """b requests with at most c candidate cards, and the k steps of a plan of each; padding is masked."""

    requests: tuple[EncodedInstruction, ...]
    query: Tensor
    """(b, d)"""
    cards: Tensor
    """(b, c, d)"""
    features: Tensor
    """(b, c, FEATURES)"""
    there: Tensor
    """(b, c), bool: a candidate, no padding."""
    clauses: Tensor
    """(b, q, d)"""
    clause_features: Tensor
    """(b, q, c, CLAUSE_FEATURES)"""
    clause_mask: Tensor
    """(b, q), bool: a clause, no padding."""
    lengths: Tensor
    """(b, LONGEST + 1): votes."""
    places: tuple[tuple[int, ...], ...]
    """Of each plan's steps in the deck."""
    steps: Tensor
    """(b, k, d)"""
    wish: Tensor
    """(b, k, d): the clause of the instruction that a step comes from."""
    pairs: Tensor
    """(b, k, k, PAIR_FEATURES + ANCHOR_FEATURES)"""
    real: Tensor
    """(b, k), bool: a step, no padding."""
    where: tuple[tuple[int, ...], ...]
    """Of each plan's steps, the clause that it comes from."""


@dataclass(frozen=True, kw_only=True)
class WorkerScores:
    """What reinforcement works with."""

    logits: Tensor
    """(b, k, m), over the models; one decision for each step."""
    real: Tensor
    """(b, k), bool: a step, no padding."""
    value: Tensor
    """(b,): what the plan is expected to be worth, a logit of success after phase 1."""


class PlannerModel(nn.Module):  # type: ignore[misc]
    """Instructions, or batches of them with plans, to logits.

    Args:
        encoder: The frozen part, with the deck of tools and kinds of work to plan with.
        types: The kinds of work that a step can be of.
        models: Who can do it.
    """

    TUNED = ("blend", "by_clause", "direct")
    """What is set on validation, and not trained."""

    def __init__(
        self, encoder: InstructionEncoder, types: CardEmbeddings, models: CardEmbeddings, config: NetworkConfig | None = None
    ) -> None:
        super().__init__()
        self.encoder, self.types, self.models = encoder, types, models
        self.config = config = config or NetworkConfig()
        d, width, rank, drop = encoder.steps.vectors.shape[1], config.width, config.rank, config.dropout
        self.read = tower(d, 3 * width, width, drop)
        self.ask, self.offer = nn.Linear(width, rank), nn.Linear(d, rank)
        self.judge = FeatureHead(NODE_PRIOR, 1)
        self.count = nn.Sequential(nn.Linear(width + LONGEST + 3, 64), nn.GELU(), nn.Dropout(drop), nn.Linear(64, LONGEST + 1))
        self.hear = FeatureHead(CLAUSE_PRIOR, FEATURES, d)
        self.wants, self.granted = nn.Linear(d, rank), nn.Linear(d, rank)
        self.know = tower(2 * d + width, 2 * width, width, drop)
        self.start = nn.Linear(width, 1)
        self.leave, self.enter = nn.Linear(width, rank), nn.Linear(width, rank)
        self.need, self.serve = nn.Linear(width, rank), nn.Linear(width, rank)
        self.receive, self.hand = nn.Linear(width, rank), nn.Linear(width, rank)
        self.relate = FeatureHead(PAIR_PRIOR)
        self.kind, self.kind_card = nn.Linear(width, rank), nn.Linear(d, rank)
        self.hire, self.hire_card = nn.Linear(width + rank, rank), nn.Linear(d + MODEL_FEATURES, rank)
        self.worth = nn.Sequential(nn.Linear(2 * width, 64), nn.GELU(), nn.Linear(64, 1))
        self.register_buffer("type_cards", torch.from_numpy(types.vectors.copy()), persistent=False)
        self.register_buffer("model_cards", torch.from_numpy(_model_inputs(models)), persistent=False)
        self.blend = 0.0
        """How much of the choice of steps is the memory's alone."""
        self.by_clause = 0.0
        """How much of the rest goes by what each clause asks for, not by the instruction as a whole."""
        self.direct = False
        """Whether a step follows those that likely hand it something, or those that it must wait for, less what these imply."""
        self.texts: StepTexts | None = None
        """What was learned of what steps are told; without it each is told the clause that it comes from."""
        self.type_cards: Tensor
        self.model_cards: Tensor
        # Begins as a judge of the features alone: what the towers say is learned on top.
        for late in (self.offer, self.granted, self.enter, self.serve, self.hand, self.start):
            nn.init.zeros_(late.weight)
            nn.init.zeros_(late.bias)

    def batch(self, requests: Sequence[EncodedInstruction], places: Sequence[Sequence[int]]) -> PlanBatch:
        """Requests, each with the steps of a plan by their places in the deck (there may be none)."""
        b, d = len(requests), self.encoder.steps.vectors.shape[1]
        k, deck = max(1, *(len(steps) for steps in places)), self.encoder.steps.vectors
        shown = _shown(requests, deck)
        steps, wish = np.zeros((b, k, d), np.float32), np.zeros((b, k, d), np.float32)
        pairs = np.zeros((b, k, k, PAIR_FEATURES + ANCHOR_FEATURES), np.float32)
        real = np.zeros((b, k), np.bool_)
        where = self._where(requests, places, shown)
        for row, (request, plan, at) in enumerate(zip(requests, places, where, strict=True)):
            if m := len(plan):
                steps[row, :m], real[row, :m], wish[row, :m] = deck[list(plan)], True, request.clause_vectors[at]
                anchored = anchor_features(at, *_mentions(request, plan, at), len(request.clauses))
                pairs[row, :m, :m] = np.concatenate([self.encoder.pairs(request, plan), anchored], -1)
        arrays = {"steps": steps, "wish": wish, "pairs": pairs, "real": real}
        return PlanBatch(
            requests=tuple(requests),
            places=tuple(tuple(plan) for plan in places),
            where=tuple(tuple(at) for at in where),
            query=torch.from_numpy(np.stack([r.query for r in requests])),
            lengths=torch.from_numpy(np.stack([r.lengths for r in requests])),
            **shown,
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
        )

    def _where(
        self, requests: Sequence[EncodedInstruction], places: Sequence[Sequence[int]], shown: Mapping[str, Tensor]
    ) -> list[list[int]]:
        """The clauses that steps come from, as far as is known by now."""
        if not any(places):
            return [[] for _ in places]
        with torch.no_grad():
            chances = self._asked(shown).numpy()
        return [
            anchors(chances[row, : len(request.clauses)], _columns(request, plan))
            for row, (request, plan) in enumerate(zip(requests, places, strict=True))
        ]

    def _asked(self, shown: Mapping[str, Tensor]) -> Tensor:
        """(b, q, c): how likely a clause asks for a card."""
        q = shown["clauses"].shape[1]
        features = torch.cat([shown["clause_features"], shown["features"][:, None].expand(-1, q, -1, -1)], -1)
        match = torch.einsum("bqr,bcr->bqc", self.wants(shown["clauses"]), self.granted(shown["cards"]))
        logits = self.hear(features, LOUD * shown["clauses"][:, :, None])[..., 0] + LOUD * match
        return torch.sigmoid(logits) * shown["clause_mask"][:, :, None] * shown["there"][:, None]

    def places(self, plan: Plan) -> list[int]:
        """Where the cards of a plan's steps stand in the deck.

        Raises:
            InputError: One is not there.
        """
        found = []
        for subtask in plan.subtasks:
            kind, name = step_of(subtask)
            at = self.encoder.steps.place(kind, name)
            if at is None:
                raise InputError(
                    f"subtask {subtask.id!r} is of the {kind} {name!r}, which is not among the planner's cards; add it"
                )
            found.append(at)
        return found

    def forward(self, instructions: Sequence[str] | PlanBatch) -> dict[str, Tensor]:
        """Logits for instructions, on the steps that it chooses itself, or for a batch, on the steps given there.

        Returns:
            By name: `asked` (b, q, c), how likely a clause asks for a card; `times` (b, c, TIMES + 1), how likely all of them
            ask for it so often, as probabilities; `nodes` (b, c) and `repeats` (b, c), whether a candidate card is a step, and
            more than one; `lengths` (b, LONGEST + 1); and of the steps `subtask_embeddings` (b, k, width), `task_types`
            (b, k, types), `model_selections` (b, k, models), `start` (b, k), `successors` (b, k, k), `dependencies` (b, k, k),
            `edges` (b, k, k), whether the column is handed what the row gives, and `workflow_graph` (b, k, k), the last as
            probabilities that the row must be done before the column; `value` (b,). `there` (b, c) and `real` (b, k) say what
            is no padding.
        """
        batch = instructions if isinstance(instructions, PlanBatch) else self._chosen(instructions)
        read = self.read(batch.query)
        return {**self._nodes(batch, read), **self._steps(batch, read), "there": batch.there, "real": batch.real}

    def score_workers(self, batch: PlanBatch) -> WorkerScores:
        """Who should do each step of the plans in a batch, and what they are worth, with gradients."""
        found = self._steps(batch, self.read(batch.query))
        return WorkerScores(logits=found["model_selections"], real=batch.real, value=found["value"])

    def compute_supervised_loss(
        self, outputs: Mapping[str, Tensor], targets: Mapping[str, Tensor], lambda_dag: float = 0.3
    ) -> dict[str, Tensor]:
        """See `journeyman.optimizers.planner.network.compute_supervised_loss`."""
        return compute_supervised_loss(outputs, targets, lambda_dag=lambda_dag)

    def _nodes(self, batch: PlanBatch, read: Tensor) -> dict[str, Tensor]:
        match = torch.einsum("br,bcr->bc", self.ask(read), self.offer(batch.cards))
        judged = self.judge(torch.cat([batch.features, match[..., None]], -1))
        cut = torch.stack(
            [batch.query.new_tensor([len(r.clauses) / 8, float(r.near.cosines[:1].sum())]) for r in batch.requests]
        )
        asked = self._asked({name: getattr(batch, name) for name in _SHOWN})
        return {
            "asked": asked,
            "times": times(asked),
            "nodes": (judged[..., 0] + match).masked_fill(~batch.there, -30.0),
            "repeats": judged[..., 1].masked_fill(~batch.there, -30.0),
            "lengths": self.count(torch.cat([read, batch.lengths, cut], -1)) + torch.log(batch.lengths + 0.02),
        }

    def _steps(self, batch: PlanBatch, read: Tensor) -> dict[str, Tensor]:
        k = batch.steps.shape[1]
        known = self.know(torch.cat([batch.steps, batch.wish, read[:, None].expand(-1, k, -1)], -1))
        related = self.relate(batch.pairs)
        scale = self.config.rank**-0.5
        both = batch.real[:, :, None] & batch.real[:, None] & ~torch.eye(k, dtype=torch.bool)
        successors = self.leave(known) @ self.enter(known).transpose(1, 2) * scale + related[..., 0]
        dependencies = self.need(known) @ self.serve(known).transpose(1, 2) * scale + related[..., 1]
        edges = self.receive(known) @ self.hand(known).transpose(1, 2) * scale + related[..., 2]
        # Before whom a step stands generalises; what the instruction as a whole says of its first step is learned by heart.
        first = (related[..., 3] * both).sum(2) / both.sum(2).clamp(min=1)
        kind = self.kind(known)
        hired = self.hire(torch.cat([known, kind], -1))
        weight = batch.real[..., None] / batch.real.sum(1).clamp(min=1)[:, None, None]
        return {
            "subtask_embeddings": known,
            "task_types": kind @ self.kind_card(self.type_cards).T * scale,
            "model_selections": hired @ self.hire_card(self.model_cards).T * scale,
            "start": (self.start(known)[..., 0] + first).masked_fill(~batch.real, -30.0),
            "successors": successors.masked_fill(~both, -30.0),
            "dependencies": dependencies.masked_fill(~both, -30.0),
            "edges": edges.masked_fill(~both, -30.0),
            "workflow_graph": torch.sigmoid(dependencies) * both,
            "value": self.worth(torch.cat([read, (known * weight).sum(1)], -1))[:, 0],
        }

    def _chosen(self, instructions: Sequence[str]) -> PlanBatch:
        """The batch of what the network itself would plan: its likeliest steps, in its likeliest order."""
        requests = self.encoder.encode(instructions)
        return self.batch(requests, [found.steps for found in self.draw(requests)])

    def draw(self, requests: Sequence[EncodedInstruction], given: frozenset[str] | None = None) -> list[Decoded]:
        """The shapes of plans for requests. `given` are the types of what comes with each; `None` leaves that open.

        Raises:
            PlanError: A step needs what neither the instruction nor another step gives.
        """
        cards = self.encoder.steps.cards
        chosen = [complete(steps, cards, likely, given) for steps, likely in self._choices(requests)]
        with torch.no_grad():
            batch = self.batch(requests, chosen)
            # Weights so large that scores overflow still give a plan.
            found = {name: scores.nan_to_num().numpy() for name, scores in self._steps(batch, self.read(batch.query)).items()}
        drawn, known = [], self.encoder.memory.handed
        for row, steps in enumerate(chosen):
            k = len(steps)
            scores = StepScores(
                start=found["start"][row, :k],
                successors=found["successors"][row, :k, :k],
                dependencies=found["dependencies"][row, :k, :k],
                edges=found["edges"][row, :k, :k] if self.direct else None,
            )
            handed = [known.get((cards[at].kind, cards[at].name), {}) for at in steps] if self.direct else None
            drawn.append(decode(steps, scores, cards, given, handed))
        return drawn

    def _choices(self, requests: Sequence[EncodedInstruction]) -> list[tuple[list[int], Floats]]:
        """The chosen steps of each request, and how likely each card of the deck is one."""
        with torch.no_grad():
            batch = self.batch(requests, [[] for _ in requests])
            found = {name: scores.nan_to_num() for name, scores in self._nodes(batch, self.read(batch.query)).items()}
            nodes, repeats = (torch.sigmoid(found[name]).numpy() for name in ("nodes", "repeats"))
            lengths = torch.softmax(found["lengths"], -1).numpy()
            # (TIMES, b, c): how likely a card is a step more than 0, 1, … times.
            more = (1 - found["times"].cumsum(-1)[..., :-1]).clamp(0, 1).permute(2, 0, 1).numpy()
            asked = found["asked"].numpy()
        made = []
        for row, request in enumerate(requests):
            n = len(request.candidates)
            # What the memory alone would do, in the share that served best on validation.
            once = (1 - self.blend) * nodes[row, :n] + self.blend * request.features[:, [VOTE, LIKE_VOTE]].max(1)
            number = (1 - self.blend) * lengths[row] + self.blend * request.lengths
            share = self.by_clause
            whole = np.stack([once * repeats[row, :n] ** again for again in range(TIMES)])
            chances = (1 - share) * whole + share * more[:, row, :n]
            number = (1 - share) * number + share * totals(asked[row, : len(request.clauses), :n], LONGEST)
            picked = choose_steps(chances, number)
            # In the order in which they were asked for, so that a card's first step is what its first clause asks for.
            where = anchors(asked[row, : len(request.clauses)], picked)
            picked = [picked[at] for at in np.argsort(where, kind="stable")]
            likely = np.full(len(self.encoder.steps), -1.0, np.float32)
            likely[request.candidates] = chances[0]
            made.append(([int(request.candidates[at]) for at in picked], likely))
        return made


_SHOWN = ("cards", "features", "there", "clauses", "clause_features", "clause_mask")
"""The parts of a batch that there are without a plan."""


def _shown(requests: Sequence[EncodedInstruction], deck: Floats) -> dict[str, Tensor]:
    """The parts of a batch that there are without a plan, by their names there."""
    b, d = len(requests), deck.shape[1]
    c, q = max(len(r.candidates) for r in requests), max(len(r.clauses) for r in requests)
    cards, features, there = np.zeros((b, c, d), np.float32), np.zeros((b, c, FEATURES), np.float32), np.zeros((b, c), np.bool_)
    clauses, clause_mask = np.zeros((b, q, d), np.float32), np.zeros((b, q), np.bool_)
    clause_features = np.zeros((b, q, c, CLAUSE_FEATURES), np.float32)
    for row, request in enumerate(requests):
        n, m = len(request.candidates), len(request.clauses)
        cards[row, :n], features[row, :n], there[row, :n] = deck[request.candidates], request.features, True
        clauses[row, :m], clause_mask[row, :m] = request.clause_vectors, True
        clause_features[row, :m, :n] = request.clause_features
    arrays = (cards, features, there, clauses, clause_features, clause_mask)
    return {name: torch.from_numpy(array) for name, array in zip(_SHOWN, arrays, strict=True)}


def _columns(request: EncodedInstruction, plan: Sequence[int]) -> list[int]:
    """Of each step, its card among the request's candidates; -1 where it is none of them."""
    at = np.searchsorted(request.candidates, plan).clip(max=len(request.candidates) - 1)
    return [int(column) if request.candidates[column] == place else -1 for column, place in zip(at, plan, strict=True)]


def _mentions(request: EncodedInstruction, plan: Sequence[int], where: Sequence[int]) -> "tuple[Floats, np.ndarray]":
    """(k, k) twice: the share of the row's name that the column's clause has, and whether both are the same card."""
    columns = np.array(_columns(request, plan))
    named = request.clause_features[np.array(where)][:, columns, NAMED].T * (columns >= 0)[:, None]
    return named, columns[:, None] == columns[None]


def _model_inputs(models: CardEmbeddings) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """(m, d + MODEL_FEATURES): the card's embedding, and price and time on a log scale, each with whether it is known."""
    said = np.array([_numbers(card) for card in models.cards], np.float32).reshape(len(models), MODEL_FEATURES)
    return np.concatenate([models.vectors, said], 1).astype(np.float32)


def _numbers(card: Card) -> list[float]:
    known = (card.input_price, card.output_price, card.seconds)
    return [part for value in known for part in ((0.0, 0.0) if value is None else (float(np.log10(value + 1e-3)), 1.0))]
