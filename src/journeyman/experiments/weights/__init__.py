"""Learning in the weights: from scored traces, or tasks, to a better model that runs locally.

    from journeyman.experiments.weights import RLTrainer, TrainingConfig

    trainer = RLTrainer(TrainingConfig(base_model="embedded:base", dataset_name="desk", domain="oslo"))
    trainer.setup()
    print(trainer.train().reason)

Its names are loaded when they are first used. `TrainingConfig` here is that of weights; `journeyman.TrainingConfig` is that of
playbooks.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from journeyman.experiments.weights.config import RunSettings as RunSettings
    from journeyman.experiments.weights.data import DatasetPipeline as DatasetPipeline
    from journeyman.experiments.weights.pipeline import TrainingPipeline as TrainingPipeline
    from journeyman.experiments.weights.training import RLTrainer as RLTrainer
    from journeyman.optimizers.weights.config import TrainingConfig as TrainingConfig
    from journeyman.optimizers.weights.data import DatasetConfig as DatasetConfig
    from journeyman.optimizers.weights.gguf import GGUFExporter as GGUFExporter
    from journeyman.optimizers.weights.hosting import OllamaHostingProfile as OllamaHostingProfile
    from journeyman.optimizers.weights.ollama import OllamaDeployer as OllamaDeployer
    from journeyman.optimizers.weights.sizing import HardwareConfig as HardwareConfig
    from journeyman.optimizers.weights.sizing import detect_hardware as detect_hardware
    from journeyman.optimizers.weights.sizing import get_ryzen_optimized_config as get_ryzen_optimized_config

_HOMES = {
    "experiments.weights.data": ("DatasetPipeline",),
    "experiments.weights.pipeline": ("TrainingPipeline",),
    "experiments.weights.config": ("RunSettings",),
    "experiments.weights.training": ("RLTrainer",),
    "optimizers.weights.config": ("TrainingConfig",),
    "optimizers.weights.data": ("DatasetConfig",),
    "optimizers.weights.gguf": ("GGUFExporter",),
    "optimizers.weights.hosting": ("OllamaHostingProfile",),
    "optimizers.weights.ollama": ("OllamaDeployer",),
    "optimizers.weights.sizing": ("HardwareConfig", "detect_hardware", "get_ryzen_optimized_config"),
}
"""Where each public name lives."""

_WHERE = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'journeyman.experiments.weights' has no attribute {name!r}")
    return getattr(import_module(f"journeyman.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
