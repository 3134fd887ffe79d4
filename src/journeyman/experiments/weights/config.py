"""What a training of weights is told beyond what is the training's own business."""

import re
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import AfterValidator

from journeyman.experiments.settings import ExaminationSettings, GateSettings, PlaceSettings, ReleaseSettings
from journeyman.io.config import HIDDEN, Config, Names, config, option


def _place(workers: str) -> str:
    if not re.fullmatch("here|ray(:.*)?", workers):
        raise ValueError(f"is {workers!r}, and must be here, ray or ray:ADDRESS")
    return workers


@config
class RunSettings(ExaminationSettings, ReleaseSettings, GateSettings, PlaceSettings):
    """How a training of weights runs, and how what it learns is proven. The training program never sees it."""

    earlier: Annotated[Names, option(metavar="DOMAIN")] = ()
    """Show what is forgotten of a domain that was learned before."""
    launch: Annotated[str, option(metavar="NAME")] = ""
    """Train in several processes: cpu, gpus, fsdp or a file of `accelerate launch`; see docs/weights.md."""
    workers: Annotated[str, AfterValidator(_place), option(metavar="ray[:ADDRESS]")] = "here"
    """Where it trains: here, or on a Ray cluster that shares the run's folder."""
    artifacts: Annotated[str, HIDDEN] = ".journeyman/artifacts"
    """The folder of the files that are kept by digest."""

    def json(self) -> dict[str, Any]:
        """As a run keeps them: everything but where its store is."""
        return {key: value for key, value in asdict(self).items() if key != "store"}


@config
class PipelineConfig(Config):
    """What a pipeline learns from, and what it does with what was learned."""

    agent: Annotated[str, option(metavar="NAME")] = ""
    """Learn from this agent's traces in the store."""
    dataset: Annotated[str, HIDDEN] = ""
    """The file of rows; empty when it learns from tasks."""
    quantization: str = "Q4_K_M"
    """Of the GGUF file."""
    name: Annotated[str, option(default="the agent, or the run")] = ""
    """Of the model that is made."""
    deploy_ollama: bool = False
    """Make it a model of Ollama."""
    deploy_llamacpp: bool = False
    """Serve it with llama.cpp, and see it answer."""

    @property
    def deploys(self) -> bool:
        return self.deploy_ollama or self.deploy_llamacpp
