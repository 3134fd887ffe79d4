"""metrics.jsonl: what a training of weights says of itself, a line for each update."""

import json
import math
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import correlation, fmean, median
from typing import Any

from journeyman.core.reward import is_guess, is_verified, mean_known
from journeyman.core.score import Reward, Score
from journeyman.io.jsonl import iter_jsonl
from journeyman.optimizers.weights.config import TrainingConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """After one update. `None` is unknown, or has no meaning for the method. Times in seconds, memory in bytes."""

    step: int
    """How many updates were made; 0 is the start."""
    of: int
    """How many are planned."""
    loss: float | None = None
    reward: float | None = None
    """Mean of what the completions in this update were worth."""
    reward_std: float | None = None
    """Its standard deviation within a group, averaged over the groups."""
    entropy: float | None = None
    """Of the policy, in nats a token."""
    kl: float | None = None
    """From the policy that training started from, as the method estimates it."""
    completion_tokens: float | None = None
    """Mean length of the completions."""
    learning_rate: float | None = None
    grad_norm: float | None = None
    """Before it is clipped."""
    ess: float | None = None
    """Effective sample size of the importance weights, as a share of the batch: 1 is on policy."""
    validation: float | None = None
    """Mean reward on the validation tasks, where this update had a look at them."""
    solved: float | None = None
    """Share of the validation tasks that were solved."""
    seconds: float | None = None
    """Wall time of the training so far, without what lay between two resumptions."""
    cpu_seconds: float | None = None
    """Processor time so far, with that of child processes."""
    peak_memory: int | None = None
    """The largest resident set of the process."""
    peak_gpu_memory: int | None = None
    tokens: int | None = None
    """That were written and learned from so far."""
    broken: tuple[str, ...] = ()
    """What was infinite or no number; its value stands as `None`."""
    more: Mapping[str, float] = field(default_factory=dict, hash=False)
    """What else the method logs, in its own words."""

    def line(self) -> str:
        return json.dumps(asdict(self), allow_nan=False) + "\n"


_NAMES = frozenset(each.name for each in fields(UpdateMetrics))


def cpu_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in usages)


def finite(values: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values with `None` for what is infinite or no number, and the names of those."""
    broken = tuple(sorted(name for name, value in values.items() if isinstance(value, float) and not math.isfinite(value)))
    return {name: None if name in broken else value for name, value in values.items()}, broken


def parse(line: str) -> UpdateMetrics:
    """From what `UpdateMetrics.line` wrote. Fields that a later version added are left out.

    Raises:
        ValueError: It is not that.
    """
    found = json.loads(line)
    if not isinstance(found, dict) or not isinstance(found.get("step"), int) or not isinstance(found.get("of"), int):
        raise ValueError("no update with its number")
    known = {name: value for name, value in found.items() if name in _NAMES}
    return UpdateMetrics(**{**known, "broken": tuple(found.get("broken", ()))})


def read(path: Path) -> list[UpdateMetrics]:
    """All whole lines, oldest first; a last line without its end was being written when the program was killed.

    Raises:
        InputError: A line is not what was written.
    """
    if not path.is_file():
        return []
    return [line.value for line in iter_jsonl(path, parse, what="not an update as it was written", unfinished=False)]


# Guards: rules that stop a training which no longer learns what it should. Each reads the updates, and none has a state.
#
# A guard that stops a run says why in one sentence, and until when the run was good. The thresholds stand between recorded
# runs that went well and such that fell apart (tests/learn/weights/train/curves).

WINDOW = 8
"""Updates that slow rules average over, and that pass before a checkpoint without a look counts as good."""
SOON = 3
"""Updates that rules on a fast collapse average over: one bad batch stops nothing."""
FALLEN = 2 / 3
"""Share of the best validation reward below which two looks in a row are a collapse; by `LEAST_FALL` at least."""
LEAST_FALL = 0.1
NOISE = 4.0
"""So many times the entropy that it began with: the policy writes noise."""
COLLAPSED = 0.02
"""Share of the entropy that it began with: the policy always writes the same."""
LEAST_LIKELY = -30.0
"""Nats by which good completions may become less likely (KTO, DPO), and `SURPRISED` times what they had at the start. Recorded
runs of KTO that went well stayed above -3, those that fell apart went below -50 within a few updates."""
SURPRISED = 3.0
"""DPO often lowers chosen and rejected together, long ones by many nats, and goes well; but not to so many times as much."""
LARGEST_KL = 2.0
"""Nats a token from the start (GRPO). Runs that went well stayed below 0.5."""
REWARD_FALLEN = 0.25
"""Share of the best windowed reward (GRPO). A curriculum lowers it as well, by going on to what is harder."""
DULL = 0.99
"""Share of the groups whose completions all score alike, at and above which there is nothing to learn from."""
CUT = 0.9
"""Share of the completions that the limit of tokens cuts."""
LEAST_ESS = 0.05
"""Share of the batch that counts after weighing by importance."""
GUESSES_AGREE = "guesses/correlation"
"""Under which an update logs `agreement_of_guesses`."""
AGREEMENT_FALLEN = 0.5
"""Share of the correlation of the first window below which guesses no longer mean what they did."""


@dataclass(frozen=True, slots=True)
class StopDecision:
    """Why a guard stops a training, and how far back it was good."""

    reason: str
    """One sentence."""
    good_until: int
    """The last update that shows no sign of it."""


Guard = Callable[[Sequence[UpdateMetrics], TrainingConfig], str | None]


def best(updates: Iterable[UpdateMetrics]) -> UpdateMetrics | None:
    """The first update with the highest validation reward; `None` where there was no look."""
    looked = [each for each in updates if each.validation is not None]
    return max(looked, key=lambda each: (each.validation or 0.0, -each.step), default=None)


def worth_keeping(updates: Sequence[UpdateMetrics], steps: Sequence[int]) -> set[int]:
    """Which checkpoints a run may still end with: the best, or without looks the newest that a guard would call good."""
    if best_update := best(updates):
        return {best_update.step}
    reached = updates[-1].step - WINDOW if updates else 0
    good = [step for step in steps if step <= reached]
    return {*good[-1:], *(step for step in steps if step > reached)}


def verdict(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> StopDecision | None:
    """What the first guard says that would stop the run.

    A look that is the best so far outweighs all that only hints at a collapse.
    """
    last = updates[-1].step
    if reason := not_a_number(updates, config):
        return StopDecision(reason, last - 1)
    best_update = best(updates)
    if best_update is not None and best_update.step > 0 and last - best_update.step < WINDOW:
        return None
    reasons = (guard(updates, config) for guard in GUARDS)
    reason = next((each for each in reasons if each), None)
    return StopDecision(reason, max(0, last - WINDOW)) if reason else None


def not_a_number(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    last = updates[-1]
    quantity = next((what for name, what in (("loss", "loss"), ("grad_norm", "gradient")) if name in last.broken), None)
    return (
        f"the {quantity} was no number at update {last.step}: the learning rate {config.learning_rate} is too high"
        if quantity
        else None
    )


def validation_fallen(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    best_update = best(updates)
    looks = [each.validation for each in updates if each.validation is not None][-2:]
    if best_update is None or best_update.validation is None or len(looks) < 2:
        return None
    if max(looks) >= min(FALLEN * best_update.validation, best_update.validation - LEAST_FALL):
        return None
    before, after = f"{best_update.validation:.3f} after update {best_update.step}", f"{looks[0]:.3f} and {looks[1]:.3f}"
    return f"the validation reward fell from {before} to {after}"


def desirable_falls(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    """KTO and DPO reward a completion with beta · (log π − log π at the start), whatever becomes of the loss."""
    reward, now = _last(updates, SOON, "rewards/chosen"), _last(updates, SOON, "logps/chosen")
    if config.method not in ("kto", "dpo") or reward is None or now is None or not config.beta:
        return None
    nats = reward / config.beta
    if nats >= LEAST_LIKELY or now >= SURPRISED * (now - nats):
        return None
    return (
        f"good completions became less likely by {-nats:.0f} nats: the policy falls apart while the loss may look fine; "
        f"lower the learning rate from {config.learning_rate}"
    )


def noise(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    start, now = _start(updates, "entropy"), _last(updates, SOON, "entropy")
    if start is None or now is None or now <= NOISE * start:
        return None
    return f"the entropy rose from {start:.2f} to {now:.2f} nats a token: the policy begins to write noise"


def entropy_collapsed(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    """Only where nothing was won by it: whoever has learned to do a thing well does it always the same way."""
    start, now = _start(updates, "entropy"), _last(updates, WINDOW, "entropy")
    before, reward = _first(updates, WINDOW, "reward"), _last(updates, WINDOW, "reward")
    if start is None or now is None or before is None or reward is None:
        return None
    if config.method != "grpo" or now >= COLLAPSED * start or reward > before:
        return None
    return f"the entropy fell from {start:.3f} to {now:.4f} nats a token, and the reward did not rise"


def kl_runs_away(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    kl = _last(updates, SOON, "kl")
    if not config.method.startswith("grpo") or kl is None or kl <= LARGEST_KL:
        return None
    return f"the policy is {kl:.1f} nats a token from where it started: raise beta, or lower the learning rate"


def reward_fallen(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    """Of fresh completions. Recorded ones are worth what they are, whatever is learned."""
    rewards = [each.reward for each in updates if each.reward is not None]
    if config.method != "grpo" or len(rewards) < 2 * WINDOW:
        return None
    means = [fmean(rewards[at : at + WINDOW]) for at in range(len(rewards) - WINDOW + 1)]
    if means[-1] >= REWARD_FALLEN * max(means) or max(means) < LEAST_FALL:
        return None
    return f"the reward fell from {max(means):.3f} to {means[-1]:.3f}, averaged over {WINDOW} updates"


def reward_stuck(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    dull, reward = _last(updates, 2 * WINDOW, "frac_reward_zero_std"), _last(updates, 2 * WINDOW, "reward")
    if config.method != "grpo" or dull is None or reward is None or dull < DULL or reward > 1 - LEAST_FALL:
        return None
    return (
        f"in {2 * WINDOW} updates all completions of each prompt scored alike ({reward:.3f}), so there was nothing to learn: "
        "the tasks are too hard for this model, or the temperature is too low"
    )


def length_runs_away(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    start, now = _start(updates, "completions/clipped_ratio"), _last(updates, WINDOW, "completions/clipped_ratio")
    if config.method != "grpo" or start is None or now is None or now < CUT or start > CUT / 2:
        return None
    return (
        f"{now:.0%} of the completions no longer end within {config.max_completion_tokens} tokens, and {start:.0%} at first: "
        "the policy has unlearned to stop"
    )


def weights_vanish(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    shares = _values(updates, "ess")[-WINDOW:]
    # The median: one token that is off weighs more than all others of its batch, and tells little.
    if config.method != "grpo-offline" or len(shares) < WINDOW or (usual := median(shares)) >= LEAST_ESS:
        return None
    return (
        f"only {usual:.1%} of a batch still counts after weighing by importance: the policy is too far from the one that wrote "
        "the completions; record fresh ones"
    )


def guesses_drift(updates: Sequence[UpdateMetrics], config: TrainingConfig) -> str | None:
    """What optimizes against a guess finds out where it is wrong: then guess and verifier part."""
    start, now = _first(updates, WINDOW, GUESSES_AGREE), _last(updates, WINDOW, GUESSES_AGREE)
    if start is None or now is None or now > max(0.0, AGREEMENT_FALLEN * start):
        return None
    what = f"from {start:.2f} to {now:.2f}" if start > 0 else f"to {now:.2f}, and was {start:.2f} at first"
    return (
        f"the correlation of learned rewards with what was verified fell {what}, averaged over {WINDOW} updates: the policy "
        "pleases them and not the verifier; teach them anew with labels of these attempts, or leave them out"
    )


def agreement_of_guesses(scores: Sequence[Score]) -> float | None:
    """Pearson's correlation of what learned rewards and judges say with what was verified, over attempts of which both is
    known. `None` where either is the same for all: where all is right there is nothing to agree on."""
    both = [(_mean(each, is_guess), _mean(each, is_verified)) for each in scores]
    known = [(guess, told) for guess, told in both if guess is not None and told is not None]
    if len({guess for guess, _ in known}) < 2 or len({told for _, told in known}) < 2:
        return None
    return correlation([guess for guess, _ in known], [told for _, told in known])


def _mean(score: Score, kind: Callable[[Reward], bool]) -> float | None:
    return mean_known([each for each in score.rewards if kind(each)])


GUARDS: tuple[Guard, ...] = (
    validation_fallen,
    desirable_falls,
    noise,
    entropy_collapsed,
    kl_runs_away,
    reward_fallen,
    reward_stuck,
    length_runs_away,
    weights_vanish,
    guesses_drift,
)
"""Asked in this order, after whether the numbers are numbers."""


def _values(updates: Sequence[UpdateMetrics], name: str) -> list[float]:
    values = (getattr(each, name) if hasattr(each, name) else each.more.get(name) for each in updates)
    return [value for value in values if value is not None]


def _last(updates: Sequence[UpdateMetrics], count: int, name: str) -> float | None:
    """Mean of the newest values; `None` while there are fewer."""
    values = _values(updates, name)[-count:]
    return fmean(values) if len(values) == count else None


def _first(updates: Sequence[UpdateMetrics], count: int, name: str) -> float | None:
    """Mean of the oldest values; `None` while there are not as many again since."""
    values = _values(updates, name)
    return fmean(values[:count]) if len(values) >= 2 * count else None


def _start(updates: Sequence[UpdateMetrics], name: str) -> float | None:
    """The least of the first values, as a run can fall apart in its second update; `None` while there are not as many again."""
    values = _values(updates, name)
    return min(values[:SOON]) if len(values) >= 2 * SOON else None
