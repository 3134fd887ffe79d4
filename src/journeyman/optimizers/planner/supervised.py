"""Phase 1: learn to plan as those plans did that succeeded.

Deterministic by its seed, on one machine with as many threads. Each epoch ends with a checkpoint, and begins from nothing but
the last one: a training that was killed goes on to the same weights, to the byte.
"""

import hashlib
import logging
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.utils.data import Dataset

from journeyman.core.errors import InputError
from journeyman.core.plan import Plan
from journeyman.core.policy import Card
from journeyman.core.task import fingerprints, packed
from journeyman.core.trace import average_known
from journeyman.models.embedders import Embedder
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.config import SupervisedConfig
from journeyman.optimizers.planner.data import Example, TrainingData, dumps, split
from journeyman.optimizers.planner.features import LONGEST, EncodedInstruction, clauses
from journeyman.optimizers.planner.memory import Step, ancestors, step_of, words
from journeyman.optimizers.planner.network import (
    PADDING,
    PlanBatch,
    PlannerModel,
    compute_supervised_loss,
    outcome_weights,
)
from journeyman.optimizers.planner.policy import assemble
from journeyman.optimizers.planner.texts import asking, learn, own_texts

# How much a plan is like another one: by its steps, by who follows whom, and whether all is the same.

Thing = TypeVar("Thing", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanAgreement:
    """Of one plan with the right one, each 0 to 1; or the means over many."""

    node_f1: float
    """Of the steps as a bag."""
    edge_f1: float
    """Of the pairs of steps of which one follows the other; 1 where neither plan has any."""
    exact: float
    """Whether both bags are the same."""
    texts: float | None = None
    """Of the steps, the share that is told its own words; `None` where the right plan does not say what its steps are told."""
    valid: float = 1.0
    """Whether there is a workflow that can be carried out, with each step handed what it takes."""

    @property
    def score(self) -> float:
        """What planners are compared by: the mean of node-F1, edge-F1 and, where it is known, the texts; 0 for what is no
        workflow that can be carried out."""
        known = [each for each in (self.node_f1, self.edge_f1, self.texts) if each is not None]
        return self.valid * sum(known) / len(known)


NO_PLAN = PlanAgreement(node_f1=0.0, edge_f1=0.0, exact=0.0, texts=0.0, valid=0.0)
"""Of a plan that could not be made."""


def agreement(made: Plan, right: Plan) -> PlanAgreement:
    nodes = [Counter(step_of(subtask) for subtask in plan.subtasks) for plan in (made, right)]
    edges = [Counter(_edges(plan)) for plan in (made, right)]
    return PlanAgreement(
        node_f1=f1(nodes[0], nodes[1]),
        edge_f1=f1(edges[0], edges[1]),
        exact=float(nodes[0] == nodes[1] and edges[0] == edges[1]),
        texts=own_texts(made, right),
        valid=float(bool(made.subtasks) and _unmet(made, made) <= _unmet(right, made)),
    )


def _unmet(plan: Plan, known: Plan) -> set[tuple[Step, str]]:
    """Inputs that some step of a plan gives, but none that a step follows which takes them. What steps take and give is said by
    those of a plan that was made of cards."""
    takes = {step_of(step): step.takes for step in known.subtasks}
    gives = {step_of(step): step.gives for step in known.subtasks}
    given = {kind for step in plan.subtasks for kind in gives.get(step_of(step), ())}
    found = set()
    for step in plan.subtasks:
        handed = {kind for id in step.after for kind in gives.get(step_of(plan.by_id[id]), ())}
        found |= {(step_of(step), kind) for kind in takes.get(step_of(step), ()) if kind in given - handed}
    return found


def mean_agreement(found: Sequence[PlanAgreement]) -> PlanAgreement:
    """The means over many, of which there is at least one; of texts over those of which they are known."""
    means = {name: fmean(getattr(each, name) for each in found) for name in PlanAgreement.__slots__ if name != "texts"}
    return PlanAgreement(**means, texts=average_known(each.texts for each in found))


def f1(made: Counter[Thing], right: Counter[Thing]) -> float:
    """The harmonic mean of precision and recall of a bag; 1 where both are empty."""
    both = (made & right).total()
    total = made.total() + right.total()
    return 2 * both / total if total else 1.0


def _edges(plan: Plan) -> list[tuple[Step, Step]]:
    steps = {subtask.id: step_of(subtask) for subtask in plan.subtasks}
    return [(steps[before], steps[after]) for before, after in plan.edges]


# Expert workflows as a torch data set, with items of one shape so that any DataLoader takes them.


class WorkflowDataset(Dataset):  # type: ignore[misc]
    """n workflows, each with the same number of entries in all that is said of it.

    An item is a mapping of `instruction` (str), `index` (int, to find the rest by), `length` (int), `task_types` (k,) and
    `model_selections` (k,), padded with -100, and `dependencies` (k, k), 1 where the row's output is needed by the column,
    k being the longest workflow's number of subtasks.
    """

    def __init__(
        self,
        instructions: Sequence[str],
        subtask_sequences: Sequence[Sequence[str]],
        task_types: Sequence[Sequence[int]],
        dependencies: Sequence[Sequence[Sequence[int]]],
        model_selections: Sequence[Sequence[int]],
    ) -> None:
        """Types and models are numbers; a subtask's dependencies are the places of those before it.

        Raises:
            InputError: Something is said of more or fewer workflows or subtasks than there are, or of one that is not there.
        """
        self.instructions = tuple(instructions)
        self.subtask_sequences = tuple(tuple(texts) for texts in subtask_sequences)
        given = {"task_types": task_types, "dependencies": dependencies, "model_selections": model_selections}
        for name, rows in {"subtask_sequences": subtask_sequences, **given}.items():
            if len(rows) != len(self.instructions):
                raise InputError(f"{name} has {len(rows)} rows for {len(self.instructions)} instructions; each needs one")
        for name, rows in given.items():
            for at, (row, texts) in enumerate(zip(rows, self.subtask_sequences, strict=True)):
                if len(row) != len(texts):
                    raise InputError(f"workflow {at}: {name} has {len(row)} entries for {len(texts)} subtasks; each needs one")
        self.most = max((len(texts) for texts in self.subtask_sequences), default=0)
        self._types = [self._padded(row) for row in task_types]
        self._workers = [self._padded(row) for row in model_selections]
        self._needs = [self._matrix(row, at) for at, row in enumerate(dependencies)]

    @classmethod
    def of(cls, data: TrainingData) -> "WorkflowDataset":
        """The examples of a file. A subtask that nobody was chosen for has -100."""
        types = {card.name: at for at, card in enumerate(data.task_types)}
        models = {card.name: at for at, card in enumerate(data.models)}
        plans = [example.plan for example in data.examples]
        places = [{subtask.id: at for at, subtask in enumerate(plan.subtasks)} for plan in plans]
        return cls(
            instructions=[plan.instruction for plan in plans],
            subtask_sequences=[[subtask.text for subtask in plan.subtasks] for plan in plans],
            task_types=[[types[subtask.type] for subtask in plan.subtasks] for plan in plans],
            dependencies=[
                [[at[id] for id in subtask.after] for subtask in plan.subtasks] for plan, at in zip(plans, places, strict=True)
            ],
            model_selections=[[models.get(subtask.worker, PADDING) for subtask in plan.subtasks] for plan in plans],
        )

    def __len__(self) -> int:
        return len(self.instructions)

    def __getitem__(self, at: int) -> dict[str, str | int | Tensor]:
        return {
            "instruction": self.instructions[at],
            "index": at,
            "length": len(self.subtask_sequences[at]),
            "task_types": self._types[at],
            "model_selections": self._workers[at],
            "dependencies": self._needs[at],
        }

    def _padded(self, row: Sequence[int]) -> Tensor:
        return torch.tensor([*row, *[PADDING] * (self.most - len(row))], dtype=torch.long)

    def _matrix(self, rows: Sequence[Sequence[int]], at: int) -> Tensor:
        made = torch.zeros(self.most, self.most)
        for place, parents in enumerate(rows):
            if wrong := [parent for parent in parents if not 0 <= parent < len(rows)]:
                raise InputError(
                    f"workflow {at}: subtask {place} depends on {wrong[0]}; there are subtasks 0 to {len(rows) - 1}"
                )
            made[list(parents), place] = 1
        return made


# Examples made from examples: said otherwise, a part of the plan, another tool of the same types.
#
# They keep the group of what they were made from, so they never lie in another split, and are marked as synthetic.

_OPENINGS = (
    "Please {0}",
    "I need you to {0}",
    "Could you {0}?",
    "Can you help me with this: {0}",
    "My task: {0}",
    "{0} Thanks in advance.",
    "Hi, {0}",
    "I would like you to {0}",
)
_LINK = re.compile(r"^(?:first|then|finally|next|lastly|after that|additionally|also),?\s+", re.IGNORECASE)
_POLITE = re.compile(r"^(?:please|could you|can you|i need you to|i would like you to|i want you to|help me)\s+", re.IGNORECASE)

Maker = Callable[[Example, Sequence[Card], random.Random], Example | None]


def augmented(examples: Sequence[Example], tools: Sequence[Card], most: int, seed: int = 0) -> list[Example]:
    """At most so many synthetic examples, made by turns in the three ways from examples that are not synthetic themselves."""
    real = [example for example in examples if not example.synthetic]
    chance = random.Random(seed)
    made: list[Example] = []
    seen = {example.plan.instruction for example in examples}
    makers: Sequence[Maker] = (_said_otherwise, _part, _swapped)
    # Not every way fits every example: as many tries as could be needed, then it is enough.
    for at in range(3 * most + 60 if real else 0):
        if len(made) == most:
            break
        found = makers[at % len(makers)](chance.choice(real), tools, chance)
        if found is not None and found.plan.instruction not in seen:
            seen.add(found.plan.instruction)
            made.append(found)
    return made


def _of(example: Example, plan: Plan) -> Example:
    return replace(example, plan=plan, group=example.family, synthetic=True)


def _said_otherwise(example: Example, tools: Sequence[Card], chance: random.Random) -> Example | None:
    said = _POLITE.sub("", example.plan.instruction.strip())
    if not said:
        return None
    opening = chance.choice(_OPENINGS)
    inside = not opening.startswith("{0}")
    lowered = said[0].lower() + said[1:] if inside and not said[:2].isupper() and said[:2] != "I " else said
    return _of(example, replace(example.plan, instruction=opening.format(lowered.rstrip(".?!") if "?" in opening else lowered)))


def _part(example: Example, tools: Sequence[Card], chance: random.Random) -> Example | None:
    """A step and all that it needs, asked for by those clauses that name them; only where the clauses can be told apart."""
    plan, parts = example.plan, clauses(example.plan.instruction)
    if len(plan.subtasks) < 2 or len(parts) != len(plan.subtasks):
        return None
    last = chance.choice(plan.subtasks)
    kept = {last.id}
    for subtask in reversed(plan.subtasks):
        if subtask.id in kept:
            kept.update(subtask.after)
    if len(kept) == len(plan.subtasks):
        return None
    at = [place for place, subtask in enumerate(plan.subtasks) if subtask.id in kept]
    said = [_LINK.sub("", parts[place]) for place in at]
    instruction = ". ".join(part[:1].upper() + part[1:] for part in said) + "."
    part = Plan(instruction=instruction, subtasks=tuple(plan.subtasks[place] for place in at))
    return replace(_of(example, part), cost=None, seconds=None)


def _swapped(example: Example, tools: Sequence[Card], chance: random.Random) -> Example | None:
    """Another tool that takes and gives the same, where the instruction names the first one by its words."""
    known = {card.name: card for card in tools}
    said = example.plan.instruction.lower()
    named = [subtask for subtask in example.plan.subtasks if subtask.tool in known and words(subtask.tool) in said]
    if not named:
        return None
    subtask = chance.choice(named)
    old = known[subtask.tool]
    alike = [card for card in tools if (card.takes, card.gives) == (old.takes, old.gives) and card.name != old.name]
    if not alike or not (old.takes or old.gives):
        return None
    new = chance.choice(alike)
    at = said.index(words(old.name))
    instruction = example.plan.instruction[:at] + words(new.name) + example.plan.instruction[at + len(words(old.name)) :]
    subtasks = tuple(replace(each, tool=new.name) if each.tool == old.name else each for each in example.plan.subtasks)
    return replace(_of(example, Plan(instruction=instruction, subtasks=subtasks)), cost=None, seconds=None)


log = logging.getLogger(__name__)

WHOLE = ("listed", "nodes", "repeats", "lengths")
"""Terms of the loss that count where steps are chosen by the instruction as a whole, and nowhere else."""
CLAUSES = ("times",)
"""The same where each clause asks for its own."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""That are tried on validation, of the memory and of the clauses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """What one epoch brought, on validation."""

    number: int
    """From 1."""
    loss: float
    """Of training."""
    val_loss: float
    val_ways: tuple[float, float]
    """Of it what counts when steps are chosen by what each clause asks for, and when they are by the instruction as a whole."""
    dag_loss: float
    """Of training, whether or not it has a weight."""
    node_f1: float
    edge_f1: float
    exact: float
    learning_rate: float
    texts: float | None
    """Share of the steps that are told their own words."""
    valid: float
    """Share of the plans that can be carried out."""


@dataclass(frozen=True, kw_only=True)
class SupervisedResult:
    """A phase 1 that came to its end."""

    model: PlannerModel
    training: TrainingData
    """What it learned from, validation left out; its memory."""
    epochs: tuple[Epoch, ...]
    best: Path
    validation: PlanAgreement
    """Of the best checkpoint, with the blend chosen there."""


Progress = Callable[[Epoch], None]


@dataclass(frozen=True, kw_only=True)
class _Prepared:
    """Examples as the network sees them."""

    examples: tuple[Example, ...]
    requests: tuple[EncodedInstruction, ...]
    places: tuple[tuple[int, ...], ...]
    weights: "np.ndarray[tuple[int], np.dtype[np.float32]]"
    asking: tuple[Mapping[tuple[int, int], float], ...]
    """See `asking`."""

    def __len__(self) -> int:
        return len(self.examples)


def train(
    data: TrainingData,
    embedder: Embedder,
    folder: Path,
    config: SupervisedConfig | None = None,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> SupervisedResult:
    """Train on the examples; `phase1_last` and `phase1_best` come to lie in the folder.

    Raises:
        InputError: There are too few examples, or a checkpoint to resume is of another training.
    """
    config = config or SupervisedConfig()
    run = _Run(data, embedder, folder, config)
    if resume and run.last.exists():
        run.resume()
    while not run.finished:
        epoch = run.epoch()
        if progress is not None:
            progress(epoch)
    return run.close()


class _Run:
    def __init__(self, data: TrainingData, embedder: Embedder, folder: Path, config: SupervisedConfig) -> None:
        self.config, self.embedder = config, embedder
        self.last, self.best = folder / f"phase1_last{artifact.SUFFIX}", folder / f"phase1_best{artifact.SUFFIX}"
        examples = [e for e in data.examples if 0 < len(e.plan.subtasks) <= LONGEST]
        if skipped := len(data.examples) - len(examples):
            log.warning("%d examples have no subtask or more than %d, and are not learned from", skipped, LONGEST)
        train_on, validate_on = split(examples, config.validation_share, config.seed)
        validate_on = [example for example in validate_on if example.succeeded]
        if not any(example.succeeded for example in train_on) or not validate_on:
            raise InputError(
                f"{len(examples)} examples are too few to train and validate on; at least ten that succeeded are needed"
            )
        made = augmented(train_on, data.tools, config.augmentations, config.seed) if config.augmentations else []
        self.training = replace(data, examples=(*train_on, *made))
        self.digest = hashlib.sha256(dumps(self.training).encode(errors="surrogatepass")).hexdigest()
        # Votes of what was made up would count one plan many times.
        self.everything = replace(data, examples=(*train_on, *validate_on))
        remembered = replace(data, examples=tuple(train_on))
        self.model = artifact.build(remembered, embedder, config.network, config.seed)
        self.model.texts = learn(train_on)
        self.train_on = self._prepare(self.training.examples)
        self.validate_on = self._prepare(validate_on)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
        self.scheduler = optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, factor=0.5, patience=config.plateau)
        self.epochs: list[Epoch] = []

    def _prepare(self, examples: Sequence[Example]) -> _Prepared:
        places = tuple(tuple(self.model.places(example.plan)) for example in examples)
        requests = self.model.encoder.encode(
            [example.plan.instruction for example in examples], groups=[example.family for example in examples], among=places
        )
        weights = outcome_weights(examples, self.config.beta)
        asks = (asking(request, at, each.plan) for request, at, each in zip(requests, places, examples, strict=True))
        return _Prepared(examples=tuple(examples), requests=tuple(requests), places=places, weights=weights, asking=tuple(asks))

    @property
    def finished(self) -> bool:
        losses = self._left
        since = len(losses) - 1 - int(np.argmin(losses)) if losses else 0
        return len(losses) >= self.config.epochs or since >= self.config.patience

    def epoch(self) -> Epoch:
        """One pass over the training examples, the checks after it, and the checkpoint."""
        number = len(self.epochs) + 1
        rate = float(self.optimizer.param_groups[0]["lr"])
        with torch.random.fork_rng(devices=[]):
            # The epoch's number alone decides what chance does in it, so that one that is done again is done the same.
            torch.manual_seed(self.config.seed * 1_000_003 + number)
            loss, dag = self._pass()
        val_loss, ways, found = self._validate()
        validated = {"val_loss": val_loss, "val_ways": ways, **asdict(found)}
        epoch = Epoch(number=number, loss=loss, dag_loss=dag, learning_rate=rate, **validated)
        self.epochs.append(epoch)
        self.scheduler.step(self._left[-1])
        # The best one first: a training that is killed in between does this epoch again.
        if self._left[-1] <= min(self._left):
            self._save(self.best)
        self._save(self.last, resumable=True)
        return epoch

    @property
    def _left(self) -> list[float]:
        """After each epoch, the share of the first one's validation loss that is left, of that way of choosing steps which
        learned most: a way that is not gone may be learned by heart and get worse while the other still learns."""
        return [
            min(now / max(at, 1e-9) for now, at in zip(e.val_ways, self.epochs[0].val_ways, strict=True)) for e in self.epochs
        ]

    def _pass(self) -> tuple[float, float]:
        self.model.train()
        order = torch.randperm(len(self.train_on)).tolist()
        losses = []
        for first in range(0, len(order), self.config.batch_size):
            found = self._loss(self.train_on, order[first : first + self.config.batch_size])
            self.optimizer.zero_grad()
            found["total_loss"].backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
            self.optimizer.step()
            losses.append((found["total_loss"].item(), found["dag_loss"].item()))
        total, dag = np.mean(losses, axis=0)
        return float(total), float(dag)

    def _loss(self, prepared: _Prepared, rows: Sequence[int]) -> dict[str, Tensor]:
        batch = self.model.batch([prepared.requests[row] for row in rows], [prepared.places[row] for row in rows])
        examples = [prepared.examples[row] for row in rows]
        targets = targets_of(self.model, batch, examples, prepared.weights[list(rows)])
        targets["asked"] = asked(batch, [prepared.asking[row] for row in rows])
        return compute_supervised_loss(self.model(batch), targets, lambda_dag=self.config.lambda_dag)

    def _validate(self) -> tuple[float, tuple[float, float], PlanAgreement]:
        self.model.eval()
        with torch.no_grad():
            rows = range(len(self.validate_on))
            size = self.config.batch_size
            found = [self._loss(self.validate_on, rows[at : at + size]) for at in rows[::size]]
        whole, *groups = (
            float(np.mean([sum(each[name].item() for name in names) for each in found]))
            for names in (("total_loss",), WHOLE, CLAUSES)
        )
        if not math.isfinite(whole):
            raise InputError(f"the loss is no number after epoch {len(self.epochs) + 1}; a smaller learning rate may help")
        return whole, (whole - groups[0], whole - groups[1]), self._agreement()

    def _agreement(self) -> PlanAgreement:
        requests = [replace(request, pairs={}) for request in self.validate_on.requests]
        plans = assemble(self.model, requests, self.model.draw(requests))
        right = (example.plan for example in self.validate_on.examples)
        return mean_agreement([agreement(*pair) for pair in zip(plans, right, strict=True)])

    def _save(self, path: Path, *, resumable: bool = False) -> None:
        tensors, metadata = artifact.contents(self.model, self.training)
        if resumable:
            tensors |= artifact.optimizer_tensors(self.model, self.optimizer)
            metadata |= {"scheduler": _plain(self.scheduler.state_dict())}
        metadata |= {"epochs": [asdict(epoch) for epoch in self.epochs], "config": self._config()}
        metadata |= {"validated_on": packed(fingerprints(example.plan.instruction for example in self.validate_on.examples))}
        artifact.write(path, tensors, metadata)

    def _config(self) -> dict[str, Any]:
        return asdict(replace(self.config, epochs=0)) | {"examples": self.digest}

    def resume(self) -> None:
        tensors, metadata = artifact.read(self.last)
        if metadata.get("config") != self._config():
            raise InputError(f"{self.last} is of a training with other examples or settings; train in another folder")
        self.model.load_state_dict(artifact.under("model.", tensors))
        artifact.load_optimizer(self.model, self.optimizer, tensors)
        self.scheduler.load_state_dict(metadata["scheduler"])
        for group, rate in zip(self.optimizer.param_groups, metadata["scheduler"]["_last_lr"], strict=True):
            group["lr"] = rate
        self.epochs = [Epoch(**{**epoch, "val_ways": tuple(epoch["val_ways"])}) for epoch in metadata["epochs"]]

    def close(self) -> SupervisedResult:
        """The best checkpoint, with the share of the memory that serves best on validation."""
        self.model.load_state_dict(artifact.under("model.", artifact.read(self.best)[0]))
        self.model.eval()
        # One after the other: all together would be fifty times.
        for name, values in (("by_clause", SHARES), ("direct", (False, True)), ("blend", SHARES)):
            found = self._tuned(name, values)
        # Nothing is trained any more, so what was validated on may be remembered as well.
        self.model.encoder = artifact.encoder_of(self.everything, self.embedder, self.model.encoder.steps)
        self._save(self.best)
        return SupervisedResult(
            model=self.model,
            training=self.training,
            epochs=tuple(self.epochs),
            best=self.best,
            validation=found,
        )

    def _tuned(self, name: str, values: Sequence[float]) -> PlanAgreement:
        """Set what serves best on validation; the first of several that serve as well."""
        found = []
        for value in values:
            setattr(self.model, name, value)
            found.append(self._agreement())
        best = max(range(len(values)), key=lambda at: _merit(found[at]))
        setattr(self.model, name, values[best])
        return found[best]


def _merit(found: PlanAgreement) -> float:
    """By what validation chooses."""
    return found.node_f1 + 0.5 * found.edge_f1 + found.exact + (found.texts or 0.0)


def targets_of(
    model: PlannerModel, batch: PlanBatch, examples: Sequence[Example], weights: "np.ndarray[tuple[int], np.dtype[np.float32]]"
) -> dict[str, Tensor]:
    """What `compute_supervised_loss` compares a batch's outputs with."""
    b, c = batch.there.shape
    k = batch.real.shape[1]
    nodes = np.zeros((b, c), np.float32)
    before, edges = np.zeros((2, b, k, k), np.float32)
    types, workers = np.full((b, k), PADDING), np.full((b, k), PADDING)
    for row, (request, places, example) in enumerate(zip(batch.requests, batch.places, examples, strict=True)):
        m = len(places)
        np.add.at(nodes[row], np.searchsorted(request.candidates, places), 1)
        before[row, :m, :m], edges[row, :m, :m] = ancestors(example.plan), example.plan.adjacency
        types[row, :m] = [_place(model.types.place("type", subtask.type)) for subtask in example.plan.subtasks]
        workers[row, :m] = [_place(model.models.place("model", subtask.worker)) for subtask in example.plan.subtasks]
    success = [math.nan if example.success is None else example.success for example in examples]
    found = {
        "nodes": torch.from_numpy(nodes),
        "lengths": torch.tensor([len(places) for places in batch.places]),
        "dependencies": torch.from_numpy(before),
        "edges": torch.from_numpy(edges),
        "task_types": torch.from_numpy(types),
        "success": torch.tensor(success),
        "weights": torch.from_numpy(np.asarray(weights)),
    }
    return found | ({"model_selections": torch.from_numpy(workers)} if len(model.models) else {})


def asked(batch: PlanBatch, asking: Sequence[Mapping[tuple[int, int], float]]) -> Tensor:
    """(b, q, c): what is known of who asks for what; NaN where nothing is."""
    found = torch.full((*batch.clause_mask.shape, batch.there.shape[1]), math.nan)
    for row, known in enumerate(asking):
        for (clause, column), wanted in known.items():
            found[row, clause, column] = wanted
    return found


def _place(found: int | None) -> int:
    return PADDING if found is None else found


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """A scheduler's state as JSON takes it; what it infers itself is left out."""
    return {key: value for key, value in state.items() if isinstance(value, int | float | str | list) or value is None}
