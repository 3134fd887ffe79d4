"""The trained part of the planner: which cards, how many, in which order, of which type, by whom, and what it will be worth.

Cards enter as vectors, never as rows of a table, so a card that was not there in training has logits like any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from journeyman.errors import InputError
from journeyman.learn.planner.cards import Deck
from journeyman.learn.planner.decode import Decoded, StepScores, choose_steps, complete, decode
from journeyman.learn.planner.encode import FEATURES, LIKE_VOTE, LONGEST, PAIR_FEATURES, VOTE, Encoder, Request
from journeyman.learn.planner.loss import compute_supervised_loss
from journeyman.learn.planner.memory import Floats, step_of
from journeyman.plan import Plan
from journeyman.policy import Card

MODEL_FEATURES = 6

NODE_PRIOR = (
    (2.0, 4.0, 3.0, 6.0, 1.0, 3.0, 1.5, 0.5, 1.0, 0.0, 0.0, 1.0, -3.0),
    (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -3.0),
)
"""Weights of the features of a candidate, the last one the constant, before anything is learned: whether it is a step, and one
again. A planner with hardly any examples is a retrieval of cards with a memory."""
PAIR_PRIOR = (
    (0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0),
    (0.5, 0.0, 0.5, 0.0, 0.0, 0.0, 1.5, 3.0, 2.0, 1.0, 3.0, 1.0, -4.5),
)
"""The same of a pair of steps: whether the second comes next, and whether it needs the first."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Its size. With embeddings of 384 dimensions the defaults make 1.6 million parameters."""

    width: int = 256
    rank: int = 128
    dropout: float = 0.2


@dataclass(frozen=True, kw_only=True)
class Batch:
    """b requests with at most c candidate cards, and the k steps of a plan of each; padding is masked."""

    requests: tuple[Request, ...]
    query: Tensor
    """(b, d)"""
    cards: Tensor
    """(b, c, d)"""
    features: Tensor
    """(b, c, FEATURES)"""
    there: Tensor
    """(b, c), bool: a candidate, no padding."""
    lengths: Tensor
    """(b, LONGEST + 1): votes."""
    places: tuple[tuple[int, ...], ...]
    """Of each plan's steps in the deck."""
    steps: Tensor
    """(b, k, d)"""
    wish: Tensor
    """(b, k, d): the clause of the instruction that a step is nearest to."""
    pairs: Tensor
    """(b, k, k, PAIR_FEATURES)"""
    real: Tensor
    """(b, k), bool: a step, no padding."""


@dataclass(frozen=True, kw_only=True)
class WorkerScores:
    """What reinforcement works with."""

    logits: Tensor
    """(b, k, m), over the models; one decision for each step."""
    real: Tensor
    """(b, k), bool: a step, no padding."""
    value: Tensor
    """(b,): what the plan is expected to be worth, a logit of success after phase 1."""


class _Judge(nn.Module):  # type: ignore[misc]
    """Logits of features: at first as a prior weighs them, then as it learned."""

    def __init__(self, prior: Sequence[Sequence[float]], more: int = 0) -> None:
        super().__init__()
        weights = torch.tensor(prior)
        inside, outside = weights.shape[1] - 1 + more, len(weights)
        self.linear = nn.Linear(inside, outside)
        self.deep = nn.Sequential(nn.Linear(inside, 64), nn.GELU(), nn.Linear(64, outside))
        with torch.no_grad():
            self.linear.weight.zero_()
            self.linear.weight[:, : weights.shape[1] - 1] = weights[:, :-1]
            self.linear.bias.copy_(weights[:, -1])
            self.deep[2].weight.zero_()
            self.deep[2].bias.zero_()

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(features) + self.deep(features)


class PlannerModel(nn.Module):  # type: ignore[misc]
    """Instructions, or batches of them with plans, to logits.

    Args:
        encoder: The frozen part, with the deck of tools and kinds of work to plan with.
        types: The kinds of work that a step can be of.
        models: Who can do it.
    """

    def __init__(self, encoder: Encoder, types: Deck, models: Deck, config: NetworkConfig | None = None) -> None:
        super().__init__()
        self.encoder, self.types, self.models = encoder, types, models
        self.config = config = config or NetworkConfig()
        d, width, rank, drop = encoder.steps.vectors.shape[1], config.width, config.rank, config.dropout
        self.read = _tower(d, 3 * width, width, drop)
        self.ask, self.offer = nn.Linear(width, rank), nn.Linear(d, rank)
        self.judge = _Judge(NODE_PRIOR, 1)
        self.count = nn.Sequential(nn.Linear(width + LONGEST + 3, 64), nn.GELU(), nn.Dropout(drop), nn.Linear(64, LONGEST + 1))
        self.know = _tower(2 * d + width, 2 * width, width, drop)
        self.start = nn.Linear(width, 1)
        self.leave, self.enter = nn.Linear(width, rank), nn.Linear(width, rank)
        self.need, self.serve = nn.Linear(width, rank), nn.Linear(width, rank)
        self.relate = _Judge(PAIR_PRIOR)
        self.kind, self.kind_card = nn.Linear(width, rank), nn.Linear(d, rank)
        self.hire, self.hire_card = nn.Linear(width + rank, rank), nn.Linear(d + MODEL_FEATURES, rank)
        self.worth = nn.Sequential(nn.Linear(2 * width, 64), nn.GELU(), nn.Linear(64, 1))
        self.register_buffer("type_cards", torch.from_numpy(types.vectors.copy()), persistent=False)
        self.register_buffer("model_cards", torch.from_numpy(_model_inputs(models)), persistent=False)
        self.blend = 0.0
        """How much of the choice of steps is the memory's alone."""
        self.type_cards: Tensor
        self.model_cards: Tensor
        # Begins as a judge of the features alone: what the towers say is learned on top.
        for late in (self.offer, self.enter, self.serve, self.start):
            nn.init.zeros_(late.weight)
            nn.init.zeros_(late.bias)

    def batch(self, requests: Sequence[Request], places: Sequence[Sequence[int]]) -> Batch:
        """Requests, each with the steps of a plan by their places in the deck (there may be none)."""
        b, d = len(requests), self.encoder.steps.vectors.shape[1]
        c, k = max(len(r.candidates) for r in requests), max(1, *(len(steps) for steps in places))
        deck = self.encoder.steps.vectors
        cards, features = np.zeros((b, c, d), np.float32), np.zeros((b, c, FEATURES), np.float32)
        steps, wish = np.zeros((b, k, d), np.float32), np.zeros((b, k, d), np.float32)
        pairs = np.zeros((b, k, k, PAIR_FEATURES), np.float32)
        there, real = np.zeros((b, c), np.bool_), np.zeros((b, k), np.bool_)
        for row, (request, plan) in enumerate(zip(requests, places, strict=True)):
            n, m = len(request.candidates), len(plan)
            cards[row, :n], features[row, :n], there[row, :n] = deck[request.candidates], request.features, True
            if m:
                steps[row, :m], real[row, :m] = deck[list(plan)], True
                wish[row, :m] = request.clause_vectors[np.argmax(deck[list(plan)] @ request.clause_vectors.T, 1)]
                pairs[row, :m, :m] = self.encoder.pairs(request, plan)
        arrays = {
            "cards": cards,
            "features": features,
            "there": there,
            "steps": steps,
            "wish": wish,
            "pairs": pairs,
            "real": real,
        }
        return Batch(
            requests=tuple(requests),
            places=tuple(tuple(plan) for plan in places),
            query=torch.from_numpy(np.stack([r.query for r in requests])),
            lengths=torch.from_numpy(np.stack([r.lengths for r in requests])),
            **{name: torch.from_numpy(array) for name, array in arrays.items()},
        )

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

    def forward(self, instructions: Sequence[str] | Batch) -> dict[str, Tensor]:
        """Logits for instructions, on the steps that it chooses itself, or for a batch, on the steps given there.

        Returns:
            By name: `nodes` (b, c) and `repeats` (b, c), whether a candidate card is a step, and more than one; `lengths`
            (b, LONGEST + 1); and of the steps `subtask_embeddings` (b, k, width), `task_types` (b, k, types),
            `model_selections` (b, k, models), `start` (b, k), `successors` (b, k, k), `dependencies` (b, k, k) and
            `workflow_graph` (b, k, k), the last as probabilities that the row must be done before the column; `value` (b,).
            `there` (b, c) and `real` (b, k) say what is no padding.
        """
        batch = instructions if isinstance(instructions, Batch) else self._chosen(instructions)
        read = self.read(batch.query)
        return {**self._nodes(batch, read), **self._steps(batch, read), "there": batch.there, "real": batch.real}

    def score_workers(self, batch: Batch) -> WorkerScores:
        """Who should do each step of the plans in a batch, and what they are worth, with gradients."""
        found = self._steps(batch, self.read(batch.query))
        return WorkerScores(logits=found["model_selections"], real=batch.real, value=found["value"])

    def compute_supervised_loss(
        self, outputs: Mapping[str, Tensor], targets: Mapping[str, Tensor], lambda_dag: float = 0.3
    ) -> dict[str, Tensor]:
        """See `journeyman.learn.planner.loss.compute_supervised_loss`."""
        return compute_supervised_loss(outputs, targets, lambda_dag=lambda_dag)

    def _nodes(self, batch: Batch, read: Tensor) -> dict[str, Tensor]:
        match = torch.einsum("br,bcr->bc", self.ask(read), self.offer(batch.cards))
        judged = self.judge(torch.cat([batch.features, match[..., None]], -1))
        cut = torch.stack(
            [batch.query.new_tensor([len(r.clauses) / 8, float(r.near.cosines[:1].sum())]) for r in batch.requests]
        )
        return {
            "nodes": (judged[..., 0] + match).masked_fill(~batch.there, -30.0),
            "repeats": judged[..., 1].masked_fill(~batch.there, -30.0),
            "lengths": self.count(torch.cat([read, batch.lengths, cut], -1)) + torch.log(batch.lengths + 0.02),
        }

    def _steps(self, batch: Batch, read: Tensor) -> dict[str, Tensor]:
        k = batch.steps.shape[1]
        known = self.know(torch.cat([batch.steps, batch.wish, read[:, None].expand(-1, k, -1)], -1))
        related = self.relate(batch.pairs)
        scale = self.config.rank**-0.5
        both = batch.real[:, :, None] & batch.real[:, None] & ~torch.eye(k, dtype=torch.bool)
        successors = self.leave(known) @ self.enter(known).transpose(1, 2) * scale + related[..., 0]
        dependencies = self.need(known) @ self.serve(known).transpose(1, 2) * scale + related[..., 1]
        kind = self.kind(known)
        hired = self.hire(torch.cat([known, kind], -1))
        weight = batch.real[..., None] / batch.real.sum(1).clamp(min=1)[:, None, None]
        return {
            "subtask_embeddings": known,
            "task_types": kind @ self.kind_card(self.type_cards).T * scale,
            "model_selections": hired @ self.hire_card(self.model_cards).T * scale,
            "start": self.start(known)[..., 0].masked_fill(~batch.real, -30.0),
            "successors": successors.masked_fill(~both, -30.0),
            "dependencies": dependencies.masked_fill(~both, -30.0),
            "workflow_graph": torch.sigmoid(dependencies) * both,
            "value": self.worth(torch.cat([read, (known * weight).sum(1)], -1))[:, 0],
        }

    def _chosen(self, instructions: Sequence[str]) -> Batch:
        """The batch of what the network itself would plan: its likeliest steps, in its likeliest order."""
        requests = self.encoder.encode(instructions)
        return self.batch(requests, [found.steps for found in self.draw(requests)])

    def draw(self, requests: Sequence[Request], given: frozenset[str] | None = None) -> list[Decoded]:
        """The shapes of plans for requests. `given` are the types of what comes with each; `None` leaves that open.

        Raises:
            PlanError: A step needs what neither the instruction nor another step gives.
        """
        cards = self.encoder.steps.cards
        chosen = [complete(steps, cards, likely, given) for steps, likely in self._choices(requests)]
        with torch.no_grad():
            batch = self.batch(requests, chosen)
            found = {name: scores.numpy() for name, scores in self._steps(batch, self.read(batch.query)).items()}
        drawn = []
        for row, steps in enumerate(chosen):
            k = len(steps)
            scores = StepScores(
                start=found["start"][row, :k],
                successors=found["successors"][row, :k, :k],
                dependencies=found["dependencies"][row, :k, :k],
            )
            drawn.append(decode(steps, scores, cards, given))
        return drawn

    def _choices(self, requests: Sequence[Request]) -> list[tuple[list[int], Floats]]:
        """The chosen steps of each request, and how likely each card of the deck is one."""
        with torch.no_grad():
            batch = self.batch(requests, [[] for _ in requests])
            found = self._nodes(batch, self.read(batch.query))
            nodes, repeats = (torch.sigmoid(found[name]).numpy() for name in ("nodes", "repeats"))
            lengths = torch.softmax(found["lengths"], -1).numpy()
        made = []
        for row, request in enumerate(requests):
            n = len(request.candidates)
            # What the memory alone would do, in the share that served best on validation.
            chances = (1 - self.blend) * nodes[row, :n] + self.blend * request.features[:, [VOTE, LIKE_VOTE]].max(1)
            number = (1 - self.blend) * lengths[row] + self.blend * request.lengths
            picked = choose_steps(chances, repeats[row, :n], number)
            likely = np.full(len(self.encoder.steps), -1.0, np.float32)
            likely[request.candidates] = chances
            made.append(([int(request.candidates[at]) for at in picked], likely))
        return made


def _tower(inside: int, hidden: int, outside: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inside, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, outside), nn.LayerNorm(outside)
    )


def _model_inputs(models: Deck) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """(m, d + MODEL_FEATURES): the card's embedding, and price and time on a log scale, each with whether it is known."""
    said = np.array([_numbers(card) for card in models.cards], np.float32).reshape(len(models), MODEL_FEATURES)
    return np.concatenate([models.vectors, said], 1).astype(np.float32)


def _numbers(card: Card) -> list[float]:
    known = (card.input_price, card.output_price, card.seconds)
    return [part for value in known for part in ((0.0, 0.0) if value is None else (float(np.log10(value + 1e-3)), 1.0))]
