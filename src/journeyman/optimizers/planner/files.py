"""A trained planner in a file: its weights, its memory, the cards it learned from, and their vectors."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from journeyman.core.errors import InputError
from journeyman.models.embedders import Embedder
from journeyman.optimizers.planner import checkpoints, data
from journeyman.optimizers.planner.card_embeddings import CardEmbeddings
from journeyman.optimizers.planner.config import NetworkConfig
from journeyman.optimizers.planner.data import TrainingData
from journeyman.optimizers.planner.features import InstructionEncoder
from journeyman.optimizers.planner.memory import Memory
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.optimizers.planner.predict import LearnedPlanner, steps_of

FORMAT = "journeyman-planner-2"


def build(training: TrainingData, embedder: Embedder, config: NetworkConfig | None = None, seed: int = 0) -> PlannerModel:
    """An untrained network, with the examples as its memory."""
    memory_vectors = embedder.embed([example.plan.instruction for example in training.examples])
    decks = [CardEmbeddings.of(cards, embedder) for cards in (steps_of(training), training.task_types, training.models)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _assembled(training, embedder, (memory_vectors, *decks), config)


def encoder_of(training: TrainingData, embedder: Embedder, steps: CardEmbeddings) -> InstructionEncoder:
    """What is not trained, with the examples as its memory."""
    vectors = embedder.embed([example.plan.instruction for example in training.examples])
    return InstructionEncoder(embedder, steps, Memory(training.examples, vectors, steps))


def _assembled(training: TrainingData, embedder: Embedder, parts: Any, config: NetworkConfig | None) -> PlannerModel:
    vectors, steps, types, models = parts
    return PlannerModel(InstructionEncoder(embedder, steps, Memory(training.examples, vectors, steps)), types, models, config)


def contents(model: PlannerModel, training: TrainingData) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What makes a planner, as tensors and as what is said of them. The training data is what its memory holds."""
    encoder = model.encoder
    kept = TrainingData(
        examples=encoder.memory.examples, tools=training.tools, task_types=training.task_types, models=training.models
    )
    arrays = {"memory": encoder.memory.vectors, "steps": encoder.steps.vectors, "types": model.types.vectors}
    tensors = {name: torch.from_numpy(array) for name, array in {**arrays, "models": model.models.vectors}.items()}
    metadata = {
        "format": FORMAT,
        "embedder": encoder.embedder.name,
        "network": asdict(model.config),
        **{name: getattr(model, name) for name in PlannerModel.TUNED},
        "training": data.dumps(kept),
    }
    return {**checkpoints.model_tensors(model), **tensors}, metadata


def restore(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], embedder: Embedder, where: str) -> PlannerModel:
    """The network of `contents`.

    Raises:
        InputError: It is of another version, or learned with another embedder.
    """
    if metadata.get("format") != FORMAT:
        raise InputError(f"{where} holds {metadata.get('format')!r}; this version reads {FORMAT!r}")
    if metadata["embedder"] != embedder.name:
        raise InputError(
            f"{where} was trained with the embedder {metadata['embedder']!r}, not {embedder.name!r}; name that one"
        )
    training = data.parse(metadata["training"], where)
    cards = {"steps": steps_of(training), "types": training.task_types, "models": training.models}
    decks = [CardEmbeddings(cards=found, vectors=tensors[name].numpy()) for name, found in cards.items()]
    model = _assembled(training, embedder, (tensors["memory"].numpy(), *decks), NetworkConfig(**metadata["network"]))
    checkpoints.load_model(model, tensors)
    for name in PlannerModel.TUNED:
        setattr(model, name, metadata[name])
    model.eval()
    return model


def load(path: Path, embedder: Embedder) -> LearnedPlanner:
    """The planner in a file, named with its suffix or without.

    Raises:
        InputError: It is not there, is none, or learned with another embedder.
    """
    file = checkpoints.resolve(path)
    return planner_of(*checkpoints.load(file), embedder, str(file))


def planner_of(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], embedder: Embedder, where: str) -> LearnedPlanner:
    """The planner in a file that is read already, as `checkpoints.load` gives it.

    Raises:
        InputError: It is none, or learned with another embedder.
    """
    try:
        model = restore(tensors, metadata, embedder, where)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(f"{where} is no planner that can be used ({type(error).__name__}: {error}); train it again") from None
    return LearnedPlanner(model, hires=hires(model.encoder.memory))


def embedder_of(path: Path) -> str:
    """The name of the embedder that a planner was trained with."""
    return embedder_in(checkpoints.load(checkpoints.resolve(path))[1])


def embedder_in(metadata: Mapping[str, Any]) -> str:
    """The same of a file that is read already."""
    return str(metadata.get("embedder", ""))


def hires(memory: Memory) -> bool:
    """Whether there was anything to learn about who does what."""
    return any(subtask.worker for example in memory.examples for subtask in example.plan.subtasks)
