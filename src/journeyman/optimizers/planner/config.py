"""How a planner is trained. Apart from what trains it, so that its options can be told without loading that."""

from dataclasses import field, replace
from typing import Annotated

from pydantic import Field

from journeyman.io.config import HIDDEN, Config, Count, Natural, SeedSettings, config, option

_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@config
class NetworkConfig(Config):
    """Its size. With embeddings of 384 dimensions the defaults make 1.6 million parameters."""

    width: int = 256
    rank: int = 128
    dropout: float = 0.2


@config
class SupervisedConfig(SeedSettings):
    """How phase 1 is trained."""

    epochs: Natural = 50
    """Times through the examples."""
    batch_size: Count = 32
    """Examples of one update."""
    learning_rate: Annotated[_Positive, option(default="by phase")] = 1e-3
    """How far an update goes."""
    lambda_dag: _NotNegative = 0.0
    """Weight of the acyclicity of the soft graph. Decoding makes no cycles whatever this is."""
    augmentations: Annotated[Natural, option("--augment")] = 0
    """Synthetic examples that are made from the real ones, at most."""
    validation_share: Annotated[float, Field(ge=0, le=0.9), option("--validation")] = 0.2
    """Share of the examples to choose the best epoch by."""
    patience: Count = 6
    """Epochs without a better validation loss after which training stops."""
    plateau: Annotated[Count, HIDDEN] = 3
    """Epochs without a better validation loss after which the rate is halved."""
    clip: Annotated[float, HIDDEN] = 1.0
    """Largest norm of the gradient."""
    weight_decay: Annotated[float, HIDDEN] = 0.01
    beta: Annotated[float, HIDDEN] = 1.0
    """How much more a cheap success counts than a dear one; see `outcome_weights`."""
    network: Annotated[NetworkConfig, HIDDEN] = field(default_factory=NetworkConfig)


@config
class EdgeFitConfig(SeedSettings):
    """How the networks are trained that say who follows whom. The defaults were chosen on plans of WorFBench."""

    axes: Count = 24
    """Principal axes of the instructions' vectors that are looked at, and as many of the subtasks'."""
    bags: Count = 5
    """Networks that are averaged. Each starts elsewhere and drops other units."""
    pair_hidden: Count = 64
    plan_hidden: Count = 32
    epochs: Count = 30
    least_steps: Natural = 300
    """More epochs than that where there is little to learn from, until there were so many batches."""
    batch: Count = 64
    rate: _Positive = 2e-3
    """Of learning; falls linearly to 0."""
    decay: _NotNegative = 0.1
    """Of the weights (AdamW: Loshchilov and Hutter, 2019)."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.3


@config
class PPOConfig(SeedSettings):
    """As documented; `measured()` is what did better on recorded outcomes."""

    episodes: Count = 1000
    """How many plans are carried out in all, to learn from."""
    batch: Count = 64
    """Episodes between two updates, all by one policy."""
    epochs: Count = 4
    minibatch: Count = 64
    """Decisions in a step of the optimizer."""
    learning_rate: _Positive = 3e-5
    gamma: _Share = 0.99
    lambda_gae: _Share = 0.95
    clip_epsilon: float = 0.2
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    kl_coef: float = 0.05
    """To the supervised policy."""
    target_kl: float = 0.02
    """An update stops when it has gone this far from the policy that made its batch."""
    max_norm: float = 0.5
    """To which gradients are clipped."""
    most_steps: Count = 50
    """Decisions of an episode that are learned from."""

    @classmethod
    def measured(cls, **given: float | int) -> "PPOConfig":
        """What `benchmarks/bench_reinforce.py` found better than the documented rate, which hardly moves in 1,000 episodes."""
        chosen = cls(learning_rate=1e-3, gamma=1.0, epochs=4, kl_coef=0.01)
        return replace(chosen, **given)  # type: ignore[arg-type]

    @property
    def updates(self) -> int:
        return -(-self.episodes // self.batch)
