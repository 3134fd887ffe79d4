"""The curves of a training, for TensorBoard and Weights & Biases."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from journeyman.errors import MissingExtra
from journeyman.learn.planner.supervised import Epoch, Progress


class MetricsWriter(Protocol):
    def add(self, epoch: Epoch) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in a folder, beside those of an earlier part of the same training."""

    def __init__(self, folder: Path) -> None:
        # Asks for an extra, which only this class needs.
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder))

    def add(self, epoch: Epoch) -> None:
        for name, value in asdict(epoch).items():
            if name != "number":
                self._writer.add_scalar(f"phase1/{name}", value, epoch.number)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of the project `journeyman`. What is sent are the numbers of each epoch, no data."""

    def __init__(self, folder: Path) -> None:
        try:
            self._run: Any = import_module("wandb").init(project="journeyman", dir=str(folder))
        except ModuleNotFoundError:
            raise MissingExtra("wandb is missing: pip install wandb, or leave out --wandb") from None

    def add(self, epoch: Epoch) -> None:
        self._run.log({f"phase1/{name}": value for name, value in asdict(epoch).items()}, step=epoch.number)

    def close(self) -> None:
        self._run.finish()


def watchers(folder: Path, *, wandb: bool = False) -> list[MetricsWriter]:
    """TensorBoard where it is installed, and Weights & Biases where it is asked for.

    Raises:
        MissingExtra: It is asked for and not installed.
    """
    # The one that may be missing first, so that nothing is left open.
    made: list[MetricsWriter] = [WeightsAndBiases(folder)] if wandb else []
    with suppress(ModuleNotFoundError):
        made.append(TensorBoard(folder / "tensorboard"))
    return made


def told(watching: Sequence[MetricsWriter], progress: Progress | None = None) -> Progress:
    """All of them told of each epoch, as the callback that `train` takes."""

    def tell(epoch: Epoch) -> None:
        for watcher in watching:
            watcher.add(epoch)
        if progress is not None:
            progress(epoch)

    return tell
