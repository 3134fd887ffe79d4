"""Arrays and what is said of them in one file, which is there whole or as it was: safetensors with JSON in its header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn, optim

from journeyman.core.errors import InputError
from journeyman.io.atomic import atomic_write
from journeyman.io.files import sha256

_METADATA = "journeyman"
SUFFIX = ".safetensors"


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write it, on the disk when this returns. The same content makes the same bytes."""
    with atomic_write(path) as part:
        # One entry only: the library writes the header's entries in no particular order.
        header = {_METADATA: json.dumps(metadata, sort_keys=True, ensure_ascii=False)}
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, part, header)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `save` wrote.

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


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    return {f"model.{name}": tensor for name, tensor in model.state_dict().items()}


def load_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    model.load_state_dict({name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")})


def optimizer_tensors(model: nn.Module, optimizer: optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state by the parameters' names, as tensors: no pickle."""
    return {
        f"optimizer.{key}.{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer(model: nn.Module, optimizer: optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        found = {
            key.split(".")[1]: tensor
            for key, tensor in tensors.items()
            if key.startswith("optimizer.") and key.split(".", 2)[2] == name
        }
        if found:
            optimizer.state[parameter] = found


def digest(path: Path) -> str:
    """SHA-256 of a file, as artifacts are named.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return sha256(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
