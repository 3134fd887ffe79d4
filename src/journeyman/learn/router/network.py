"""The network among the members, fitted with numpy: a hidden layer, dropout, weight decay, several from resampled rows."""

from dataclasses import dataclass

import numpy as np

from journeyman.learn.router.features import Singles
from journeyman.learn.router.members import Network
from journeyman.stats import Floats

_BATCH = 128
_RATE = 1e-3
_DECAY = 1e-3
_DROPOUT = np.float32(0.1)
_STEPS = 150
"""At least so many updates, however few the rows are."""


def train(near: Singles, targets: Floats, *, hidden: int, nets: int, epochs: int, seed: int) -> Network:
    """Fit to the known targets (n, c) by squared error; each column counts by its own spread."""
    known = ~np.isnan(targets)
    scale = np.maximum(np.sqrt((np.where(known, targets, 0) ** 2).sum(0) / np.maximum(known.sum(0), 1)), 1e-6)
    wide = np.float32(np.sqrt(near.shape[1] / max(float(np.mean(np.sum(near**2, 1))), 1e-9)))
    inputs, wanted = near * wide, np.where(known, targets / scale, 0).astype(np.float32)
    made = [
        _one(inputs, wanted, known.astype(np.float32), hidden, epochs, np.random.default_rng((seed, at))) for at in range(nets)
    ]
    return Network(
        first=np.hstack([net.parts[0] for net in made]) * wide,
        first_bias=np.concatenate([net.parts[1] for net in made]),
        second=(np.vstack([net.parts[2] for net in made]) / nets * scale).astype(np.float32),
        second_bias=(np.mean([net.parts[3] for net in made], axis=0) * scale).astype(np.float32),
    )


@dataclass(slots=True)
class _Net:
    parts: list[Singles]
    """Weights and biases of the two layers."""
    first: list[Singles]
    second: list[Singles]
    """Adam's moments."""
    step: int = 0

    def update(self, gradients: list[Singles], rate: float) -> None:
        self.step += 1
        for part, gradient, first, second in zip(self.parts, gradients, self.first, self.second, strict=True):
            first += np.float32(0.1) * (gradient - first)
            second += np.float32(0.001) * (gradient * gradient - second)
            unbiased = np.sqrt(second / np.float32(1 - 0.999**self.step)) + np.float32(1e-8)
            part -= np.float32(rate) * (first / np.float32(1 - 0.9**self.step) / unbiased + np.float32(_DECAY) * part)


def _one(inputs: Singles, wanted: Singles, known: Singles, hidden: int, epochs: int, chance: np.random.Generator) -> _Net:
    (n, q), columns = inputs.shape, wanted.shape[1]
    parts = [
        (chance.standard_normal((q, hidden)) / np.sqrt(q)).astype(np.float32),
        np.zeros(hidden, np.float32),
        (chance.standard_normal((hidden, columns)) * np.sqrt(0.1 / hidden)).astype(np.float32),
        np.zeros(columns, np.float32),
    ]
    net = _Net(parts, [np.zeros_like(part) for part in parts], [np.zeros_like(part) for part in parts])
    steps = max(_STEPS, epochs * -(-n // _BATCH))
    rows = chance.integers(0, n, n)
    order = np.concatenate([chance.permutation(rows) for _ in range(-(-steps * _BATCH // n))])
    for at in range(steps):
        batch = order[at * _BATCH : (at + 1) * _BATCH]
        gradients = _gradients(net.parts, inputs[batch], wanted[batch], known[batch], chance)
        net.update(gradients, _RATE * (1 - at / steps))
    return net


def _gradients(
    parts: list[Singles], inputs: Singles, wanted: Singles, known: Singles, chance: np.random.Generator
) -> list[Singles]:
    first, first_bias, second, second_bias = parts
    seen = inputs * _kept(inputs.shape, chance)
    level = seen @ first + first_bias
    dropped = _kept(level.shape, chance)
    hidden = np.maximum(level, 0) * dropped
    error = (hidden @ second + second_bias - wanted) * known / np.float32(len(inputs))
    back = (error @ second.T) * (level > 0) * dropped
    return [seen.T @ back, back.sum(0), hidden.T @ error, error.sum(0)]


def _kept(shape: tuple[int, ...], chance: np.random.Generator) -> Singles:
    return np.asarray((chance.random(shape, np.float32) >= _DROPOUT) / (1 - _DROPOUT), np.float32)
