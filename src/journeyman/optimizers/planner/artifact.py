"""Trained planners in files: weights, memory, the cards that they learned from and their vectors, and the policy of phase 2.

A file is safetensors with JSON in its header, there whole or as it was; nothing in it is ever executed.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn, optim

from journeyman.core.errors import InputError
from journeyman.io.atomic import atomic_write
from journeyman.io.files import sha256
from journeyman.models.embedders import Embedder
from journeyman.optimizers.planner import data
from journeyman.optimizers.planner.config import NetworkConfig
from journeyman.optimizers.planner.data import TrainingData
from journeyman.optimizers.planner.features import InstructionEncoder
from journeyman.optimizers.planner.memory import CardEmbeddings, Memory
from journeyman.optimizers.planner.network import PlannerModel
from journeyman.optimizers.planner.policy import LearnedPlanner, ModelSelector, ReinforcedPlanner, steps_of
from journeyman.optimizers.planner.texts import StepTexts

FORMAT = "journeyman-planner-3"
SUFFIX = ".safetensors"
_METADATA = "journeyman"
_TEXTS = "texts."
"""What the names of the tensors begin with that say what steps are told."""
_SELECTOR = "selector."
"""What the names of the tensors of phase 2 begin with."""


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write tensors and what is said of them, on the disk when this returns. The same content makes the same bytes."""
    with atomic_write(path) as part:
        # One entry only: the library writes the header's entries in no particular order.
        header = {_METADATA: json.dumps(metadata, sort_keys=True, ensure_ascii=False)}
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, part, header)


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote.

    Raises:
        InputError: It is not there, or is no such file.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})[_METADATA])
            return {name: file.get_tensor(name) for name in file.keys()}, metadata  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{path} is not there; `journeyman train planner` makes it") from None
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no checkpoint of a planner ({error}); check that it is the right file") from None


def resolve(path: Path) -> Path:
    """The file that is meant by `checkpoints/phase1_best`, with its suffix or without. A file of just that name, such as an
    artifact, is meant itself."""
    return path if path.suffix == SUFFIX or not path.name or path.is_file() else path.with_name(path.name + SUFFIX)


def digest(path: Path) -> str:
    """SHA-256 of a planner's file, named with its suffix or without, as artifacts are named.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return sha256(resolve(path))
    except OSError as error:
        raise InputError(f"{resolve(path)} cannot be read: {error.strerror}") from None


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose names begin so, without the beginning."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def optimizer_tensors(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by the parameters' names, as tensors: no pickle."""
    return {
        f"optimizer.{key}.{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(model: nn.Module, optimizer: optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Put what `optimizer_tensors` gave back into an optimizer of the same model."""
    parameters = dict(model.named_parameters())
    for entry, tensor in under("optimizer.", tensors).items():
        key, _, name = entry.partition(".")
        optimizer.state[parameters[name]][key] = tensor


def build(training: TrainingData, embedder: Embedder, config: NetworkConfig | None = None, seed: int = 0) -> PlannerModel:
    """An untrained network, with the examples as its memory."""
    decks = (steps_of(training), training.task_types, training.models)
    steps, types, models = (CardEmbeddings.of(cards, embedder) for cards in decks)
    encoder = encoder_of(training, embedder, steps)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return PlannerModel(encoder, types, models, config)


def encoder_of(training: TrainingData, embedder: Embedder, steps: CardEmbeddings) -> InstructionEncoder:
    """What is not trained, with the examples as its memory."""
    vectors = embedder.embed([example.plan.instruction for example in training.examples])
    return InstructionEncoder(embedder, steps, Memory(training.examples, vectors, steps))


def contents(model: PlannerModel, training: TrainingData) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What makes a planner, as tensors and as what is said of them. The training data is what its memory holds."""
    encoder = model.encoder
    remembered = TrainingData(
        examples=encoder.memory.examples, tools=training.tools, task_types=training.task_types, models=training.models
    )
    vectors = {"memory": encoder.memory.vectors, "steps": encoder.steps.vectors, "types": model.types.vectors}
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    metadata = {
        "format": FORMAT,
        "embedder": encoder.embedder.name,
        "network": asdict(model.config),
        **{name: getattr(model, name) for name in PlannerModel.TUNED},
        "training": data.dumps(remembered),
    }
    vectors["models"] = model.models.vectors
    if model.texts is not None:
        vectors |= {f"{_TEXTS}cuts": model.texts.cuts, f"{_TEXTS}suits": model.texts.suits}
        metadata["texts"] = dict(model.texts.templates)
    return {**tensors, **{name: torch.from_numpy(array) for name, array in vectors.items()}}, metadata


def _restored(tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], embedder: Embedder, where: str) -> PlannerModel:
    """The network of `contents`."""
    if metadata.get("format") != FORMAT:
        raise InputError(f"{where} holds {metadata.get('format')!r}; this version reads {FORMAT!r}")
    if metadata["embedder"] != embedder.name:
        raise InputError(
            f"{where} was trained with the embedder {metadata['embedder']!r}, not {embedder.name!r}; name that one"
        )
    training = data.parse(metadata["training"], where)
    cards = {"steps": steps_of(training), "types": training.task_types, "models": training.models}
    steps, types, models = (CardEmbeddings(cards=deck, vectors=tensors[name].numpy()) for name, deck in cards.items())
    memory = Memory(training.examples, tensors["memory"].numpy(), steps)
    try:
        config = NetworkConfig(**metadata["network"])
    except InputError as error:
        raise ValueError(error) from None
    model = PlannerModel(InstructionEncoder(embedder, steps, memory), types, models, config)
    model.load_state_dict(under("model.", tensors))
    for name in PlannerModel.TUNED:
        setattr(model, name, metadata[name])
    if "texts" in metadata:
        learned = {name: tensor.numpy() for name, tensor in under(_TEXTS, tensors).items()}
        model.texts = StepTexts.of(metadata["texts"], **learned)
    model.eval()
    return model


def save_reinforced(path: Path, phase1: Path, selector: ModelSelector, about: Mapping[str, Any]) -> None:
    """Write a planner and the policy that chooses its workers in one file, which `load` and `load_learned` read.

    Args:
        phase1: The file that reinforcement started from.
        about: What is said of the training, for people.
    """
    tensors, metadata = read(resolve(phase1))
    supervised = {name: value for name, value in tensors.items() if not name.startswith(("optimizer.", _SELECTOR))}
    learned = {f"{_SELECTOR}{name}": value for name, value in selector.state_dict().items()}
    write(path, {**supervised, **learned}, {**metadata, "reinforced": dict(about)})


def load(path: Path, embedder: Embedder) -> LearnedPlanner | ReinforcedPlanner:
    """The planner in a file, of either phase, named with its suffix or without.

    Raises:
        InputError: It is not there, is none, or learned with another embedder.
    """
    file = resolve(path)
    return planner_of(*read(file), embedder, str(file))


def load_learned(path: Path, embedder: Embedder) -> LearnedPlanner:
    """What a planner learned in phase 1, whichever phase its file is of. Raises as `load` does."""
    planner = load(path, embedder)
    return planner.planner if isinstance(planner, ReinforcedPlanner) else planner


def planner_of(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], embedder: Embedder, where: str
) -> LearnedPlanner | ReinforcedPlanner:
    """The planner of a file that is read already, as `read` gives it.

    Raises:
        InputError: It is none, or learned with another embedder.
    """
    try:
        planner = LearnedPlanner(_restored(tensors, metadata, embedder, where))
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise InputError(f"{where} is no planner that can be used ({type(error).__name__}: {error}); train it again") from None
    learned = under(_SELECTOR, tensors)
    return ReinforcedPlanner(planner, _selector(learned, where)) if learned else planner


def _selector(weights: Mapping[str, Tensor], where: str) -> ModelSelector:
    try:
        width, inputs = weights["ask.weight"].shape
        selector = ModelSelector(weights["cards"].numpy(), inputs, width=width)
        selector.load_state_dict(dict(weights))
    except (KeyError, ValueError, RuntimeError) as error:
        raise InputError(f"{where} holds no policy of workers that can be read ({type(error).__name__}); train again") from None
    return selector
