"""Reinforcement of the choice of workers: PPO from the supervised policy, on what was really chosen and what came of it.

A policy tries itself with live workers or on recorded outcomes. What nobody recorded is never made up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from journeyman.core.errors import InputError
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner import artifact
from journeyman.optimizers.planner.config import PPOConfig
from journeyman.optimizers.planner.policy import DecisionState, DecisionStates, ModelSelector
from journeyman.rewards.utility import RunReward, Runs, total
from journeyman.stats import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a policy says of a state."""

    action: int
    """The worker's column."""
    log_prob: float
    """Of that action, as it was drawn."""
    value: float = 0.0
    """What the policy expects from here on."""


Choose = Callable[[DecisionState], Chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One decision, and what followed it."""

    state: DecisionState
    chosen: Chosen
    reward: float


Episode = tuple[Step, ...]
"""The decisions of one plan, in the plan's order."""


class PlanEnvironment(Protocol):
    """Carries plans out with the workers that a policy chooses."""

    @property
    def workers(self) -> tuple[str, ...]:
        """In the order of the actions."""

    def __len__(self) -> int:
        """How many plans or instructions there are to learn from."""

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        """Carry some out, at the same time where that can be, asking `choose` once for each subtask.

        Each state says which episode of these it belongs to (its place in `which`), and which decision of it.
        """


@dataclass(frozen=True, kw_only=True)
class TableReplay:
    """Requests whose outcomes with the workers are on record: plans of one subtask."""

    table: Table
    vectors: NDArray[np.float32]
    """(n, d), features of the requests."""
    worth: Floats
    """(n, m), what each worker brought; NaN where it was not asked, and it cannot be chosen there."""
    prior: NDArray[np.float32]
    """(n, m), logits of the supervised policy."""

    @classmethod
    def of(
        cls, table: Table, vectors: ArrayLike, reward: RunReward, *, prior: ArrayLike | None = None, allowed: Sequence[str] = ()
    ) -> "TableReplay":
        """Rows that nobody was asked are left out.

        Args:
            table: The records.
            vectors: Shape (n, d), features of the requests.
            reward: What an outcome is worth.
            prior: Shape (n, m), logits of the supervised policy; None: all alike.
            allowed: Who may be chosen; empty: everybody.

        Raises:
            InputError: No row is left.
        """
        worth = worths(table, reward)
        if allowed:
            worth = np.where([name in allowed for name in table.workers], worth, np.nan)
        kept = np.flatnonzero(np.isfinite(worth).any(axis=1))
        if not len(kept):
            raise InputError("no request has a known outcome with a worker that is allowed, so there is nothing to replay")
        logits = np.zeros_like(worth) if prior is None else np.asarray(prior)
        return cls(
            table=table.take(kept),
            vectors=np.asarray(vectors, np.float32)[kept],
            worth=worth[kept],
            prior=logits[kept].astype(np.float32),
        )

    @property
    def workers(self) -> tuple[str, ...]:
        return self.table.workers

    def __len__(self) -> int:
        return len(self.table)

    def state(self, row: int, episode: int = 0) -> DecisionState:
        return DecisionState(
            node=self.vectors[row], prior=self.prior[row], allowed=np.isfinite(self.worth[row]), episode=episode
        )

    def episodes(self, which: Sequence[int], choose: Choose) -> Sequence[Episode]:
        made = []
        for episode, row in enumerate(which):
            state = self.state(row, episode)
            chosen = choose(state)
            made.append((Step(state=state, chosen=chosen, reward=float(self.worth[row, chosen.action])),))
        return made


def worths(table: Table, reward: RunReward) -> Floats:
    """What each outcome is worth, shape (n, m); NaN where it is not known."""
    asked = np.isfinite(table.success)
    found = np.full(table.success.shape, np.nan)
    found[asked] = total(reward, Runs.table(table))
    return found


# How much better than expected each decision turned out.


def compute_gae(
    rewards: ArrayLike,
    values: ArrayLike,
    gamma: float = 0.99,
    lambda_gae: float = 0.95,
    *,
    dones: ArrayLike | None = None,
    bootstrap: float = 0.0,
) -> Floats:
    """Generalized advantage estimates, shape (T,).

    A_t = δ_t + γλ·(1 - done_t)·A_{t+1}, with δ_t = r_t + γ·(1 - done_t)·V_{t+1} - V_t: Schulman et al., "High-Dimensional
    Continuous Control Using Generalized Advantage Estimation" (arXiv 1506.02438), eq. 16. With λ = 0 they are the one-step
    errors δ, with λ = 1 the discounted returns less the values. Adding `values` gives the returns a value head learns from.

    Args:
        rewards: Shape (T,), what followed each decision. Anything that numpy reads, tensors without a gradient too.
        values: Shape (T,), what was expected before each decision.
        gamma: Discount from one decision to the next.
        lambda_gae: 0 trusts the values, 1 what was seen.
        dones: Shape (T,), true where an episode ends with that decision. None: one episode, cut after the last decision.
        bootstrap: What is expected after the last decision, where it does not end an episode; 0 where nothing follows.

    Raises:
        ValueError: The lengths differ.
    """
    seen, expected = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    ends: NDArray[Any] = np.zeros(len(seen)) if dones is None else np.asarray(dones, np.float64)
    if not len(seen) == len(expected) == len(ends):
        raise ValueError(f"{len(seen)} rewards, {len(expected)} values and {len(ends)} ends; each decision has one of each")
    goes_on = 1.0 - ends
    following = np.append(expected[1:], bootstrap)
    errors = seen + gamma * goes_on * following - expected
    advantages: Floats = np.empty(len(errors))
    carried = 0.0
    for at in reversed(range(len(errors))):
        carried = errors[at] + gamma * lambda_gae * goes_on[at] * carried
        advantages[at] = carried
    return advantages


_FILE = "ppo.safetensors"
_MEANS = ("policy_loss", "value_loss", "entropy", "kl_to_prior", "approx_kl", "clip_fraction")
"""Of an update, over its steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PPOUpdate:
    """One batch, learned from."""

    update: int
    """From 1."""
    episodes: int
    """In all, so far."""
    reward: float
    """Mean over the batch's episodes, under the policy that made it."""
    policy_loss: float
    value_loss: float
    entropy: float
    kl_to_prior: float
    approx_kl: float
    clip_fraction: float
    steps: int
    """Of the optimizer, before the target KL was reached."""


def train(
    environment: PlanEnvironment,
    selector: ModelSelector,
    config: PPOConfig,
    *,
    folder: Path | None = None,
    source: str = "",
    heard: Callable[[PPOUpdate], None] = lambda _: None,
) -> tuple[PPOUpdate, ...]:
    """Learn in place. With a folder every update is kept there, and one that was begun before goes on where it was.

    Chance is drawn by seed, update, episode and decision, and by nothing else. So a run that was killed and goes on ends with
    the same bytes as one that was not, and decisions may be made in any order.

    Args:
        source: A name for what the environment is made of: a run is gone on with in the same one alone.

    Raises:
        InputError: The folder holds a run with another configuration or source, or a file that cannot be read.
    """
    optimizer = torch.optim.Adam(selector.parameters(), lr=config.learning_rate, eps=1e-5)
    history = list(_resume(folder / _FILE, selector, optimizer, (config, source))) if folder else []
    for index in range(len(history), config.updates):
        which = _batch(len(environment), config, index)
        episodes = environment.episodes(which, _sampler(selector, config.seed, index))
        played = (history[-1].episodes if history else 0) + len(which)
        history.append(_learn(selector, optimizer, episodes, config, update=index + 1, played=played))
        if folder:
            _keep(folder / _FILE, selector, optimizer, (config, source), history)
        heard(history[-1])
    return tuple(history)


def _batch(plans: int, config: PPOConfig, index: int) -> Sequence[int]:
    """Plans in an order drawn anew for each round through them; the last batch may be smaller."""
    first = index * config.batch
    orders: dict[int, list[int]] = {}
    made = []
    for at in range(first, min(first + config.batch, config.episodes)):
        turn, place = divmod(at, plans)
        if turn not in orders:
            orders[turn] = np.random.default_rng([config.seed, 1, turn]).permutation(plans).tolist()
        made.append(orders[turn][place])
    return made


def _sampler(selector: ModelSelector, seed: int, update: int) -> Callable[[DecisionState], Chosen]:
    look = selector.frozen()

    def choose(state: DecisionState) -> Chosen:
        log_probs, value = look(state)
        drawn = np.random.default_rng([seed, 2, update, state.episode, state.at]).random()
        reached = np.cumsum(np.exp(log_probs))
        # Rounding may leave the sum a hair below 1; a worker that is not allowed has no width in it either way.
        action = min(int(np.searchsorted(reached / reached[-1], drawn, side="right")), len(reached) - 1)
        return Chosen(action=action, log_prob=float(log_probs[action]), value=value)

    return choose


def _learn(
    selector: ModelSelector,
    optimizer: torch.optim.Optimizer,
    episodes: Sequence[Episode],
    config: PPOConfig,
    *,
    update: int,
    played: int,
) -> PPOUpdate:
    reward = float(np.mean([sum(step.reward for step in episode) for episode in episodes]))
    if not np.isfinite(reward):
        raise InputError("an episode's reward is not known, and nothing can be learned from that; learn by the utility")
    if not any(episodes):
        # Plans of tools alone: there was nothing to decide, so there is nothing to learn.
        return PPOUpdate(update=update, episodes=played, reward=reward, steps=0, **dict.fromkeys(_MEANS, 0.0))
    states, actions, old, advantages, returns = _flatten(episodes, config)
    found: list[dict[str, float]] = []
    for rows in _minibatches(len(states), config, update):
        loss = selector.compute_loss(
            states.take(rows),
            actions[rows],
            old[rows],
            advantages[rows],
            returns[rows],
            config.clip_epsilon,
            config.value_coef,
            config.entropy_coef,
            kl_coef=config.kl_coef,
        )
        found.append({name: float(value) for name, value in loss.items() if name not in ("total_loss", "ratio")})
        if found[-1]["approx_kl"] > config.target_kl:
            break
        optimizer.zero_grad()
        loss["total_loss"].backward()
        torch.nn.utils.clip_grad_norm_(selector.parameters(), config.max_norm)
        optimizer.step()
    mean = {name: float(np.mean([one[name] for one in found])) for name in _MEANS}
    stopped = found[-1]["approx_kl"] > config.target_kl
    return PPOUpdate(update=update, episodes=played, reward=reward, steps=len(found) - stopped, **mean)


def _minibatches(decisions: int, config: PPOConfig, update: int) -> Iterator[Tensor]:
    for epoch in range(config.epochs):
        order = np.random.default_rng([config.seed, 3, update, epoch]).permutation(decisions)
        for start in range(0, decisions, config.minibatch):
            yield torch.as_tensor(order[start : start + config.minibatch])


def _flatten(episodes: Sequence[Episode], config: PPOConfig) -> tuple[DecisionStates, Tensor, Tensor, Tensor, Tensor]:
    cut = [episode[: config.most_steps] for episode in episodes if episode]
    gains, returns = [], []
    for episode, played in zip(cut, (episode for episode in episodes if episode), strict=True):
        values = np.asarray([step.chosen.value for step in episode])
        after = played[len(episode)].chosen.value if len(played) > len(episode) else 0.0
        gain = compute_gae([step.reward for step in episode], values, config.gamma, config.lambda_gae, bootstrap=after)
        gains.append(gain)
        returns.append(gain + values)
    steps = [step for episode in cut for step in episode]
    gained = np.concatenate(gains)
    # A batch in which all turned out alike has nothing to say, and must not be blown up to say it.
    standard = (gained - gained.mean()) / max(float(gained.std()), 1e-6)
    return (
        DecisionStates.of([step.state for step in steps]),
        torch.as_tensor([step.chosen.action for step in steps]),
        torch.as_tensor([step.chosen.log_prob for step in steps], dtype=torch.float32),
        torch.as_tensor(standard, dtype=torch.float32),
        torch.as_tensor(np.concatenate(returns), dtype=torch.float32),
    )


def _keep(
    path: Path,
    selector: ModelSelector,
    optimizer: torch.optim.Optimizer,
    run: tuple[PPOConfig, str],
    history: Sequence[PPOUpdate],
) -> None:
    config, source = run
    tensors = {f"selector.{name}": value for name, value in selector.state_dict().items()}
    for place, state in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{place}.{name}": value for name, value in state.items()}
    metadata = {"config": asdict(config), "source": source, "history": [asdict(update) for update in history]}
    artifact.write(path, tensors, metadata)


def _resume(
    path: Path, selector: ModelSelector, optimizer: torch.optim.Optimizer, run: tuple[PPOConfig, str]
) -> Sequence[PPOUpdate]:
    if not path.exists():
        return ()
    config, source = run
    try:
        tensors, metadata = artifact.read(path)
    except InputError as error:
        raise InputError(f"{path} cannot be read as a policy in training; name another folder") from error
    if metadata.get("source", "") != source:
        raise InputError(f"{path} was begun from another planner or on other outcomes; name another folder, or give the same")
    before, now = metadata["config"], asdict(config)
    # More episodes of the same run are no other run.
    if differs := sorted(name for name in now if name != "episodes" and before.get(name) != now[name]):
        raise InputError(f"{path} was begun with another {', '.join(differs)}; name another folder, or give the same")
    try:
        selector.load_state_dict(artifact.under("selector.", tensors))
    except RuntimeError as error:
        raise InputError(
            f"{path} holds a policy of another shape, for other workers or embeddings; name another folder"
        ) from error
    state: dict[int, dict[str, Tensor]] = {}
    for name, value in artifact.under("optimizer.", tensors).items():
        place, _, part = name.partition(".")
        state.setdefault(int(place), {})[part] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return [PPOUpdate(**update) for update in metadata["history"]]
