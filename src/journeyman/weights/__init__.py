"""Learning in the weights: from scored traces, or tasks, to a better model that runs locally.

    from journeyman.weights import RLTrainer, TrainingConfig

    trainer = RLTrainer(TrainingConfig(base_model="embedded:base", dataset_name="desk", domain="oslo"))
    trainer.setup()
    print(trainer.train().reason)

Its names are loaded when they are first used. `TrainingConfig` here is that of weights; `journeyman.TrainingConfig` is that of
playbooks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journeyman.learn.weights.config import TrainingConfig as TrainingConfig
    from journeyman.learn.weights.data import DatasetConfig as DatasetConfig
    from journeyman.learn.weights.gguf import GGUFExporter as GGUFExporter
    from journeyman.learn.weights.hardware import HardwareConfig as HardwareConfig
    from journeyman.learn.weights.hardware import detect_hardware as detect_hardware
    from journeyman.learn.weights.hardware import get_ryzen_optimized_config as get_ryzen_optimized_config
    from journeyman.learn.weights.hosting import OllamaHostingProfile as OllamaHostingProfile
    from journeyman.learn.weights.ollama import OllamaDeployer as OllamaDeployer
    from journeyman.weights.datasets import DatasetPipeline as DatasetPipeline
    from journeyman.weights.pipeline import TrainingPipeline as TrainingPipeline
    from journeyman.weights.settings import RunSettings as RunSettings
    from journeyman.weights.training import RLTrainer as RLTrainer

_HOMES = {
    "learn.weights.config": ("TrainingConfig",),
    "learn.weights.data": ("DatasetConfig",),
    "learn.weights.gguf": ("GGUFExporter",),
    "learn.weights.hardware": ("HardwareConfig", "detect_hardware", "get_ryzen_optimized_config"),
    "learn.weights.hosting": ("OllamaHostingProfile",),
    "learn.weights.ollama": ("OllamaDeployer",),
    "weights.datasets": ("DatasetPipeline",),
    "weights.pipeline": ("TrainingPipeline",),
    "weights.settings": ("RunSettings",),
    "weights.training": ("RLTrainer",),
}
"""Where each public name lives."""

_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'journeyman.weights' has no attribute {name!r}")
    return getattr(import_module(f"journeyman.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
