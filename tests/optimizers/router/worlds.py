"""Small worlds of requests whose truth is known."""

import gzip
import json
from pathlib import Path

import numpy as np

from journeyman.models.embedders import HashingEmbedder, Vectors
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.fit import RouterFitConfig
from journeyman.stats import Floats

QUICK = RouterFitConfig(nets=1, hidden=16, clusters=(4, 8), repeats=1, axes=16, neighbours=20)


def table(
    success: Floats, *, requests: list[str] | None = None, types: list[str] | None = None, cost: Floats | None = None
) -> Table:
    known = {} if cost is None else {"cost": cost, "seconds": cost * 1_000}
    return Table.judged(
        requests or [f"request {at}" for at in range(len(success))],
        success,
        [f"model-{at}" for at in range(success.shape[1])],
        types=tuple(types or ["general"] * len(success)),
        **known,
    )


def directions(chance: np.random.Generator, n: int, d: int = 24) -> Vectors:
    vectors = chance.standard_normal((n, d))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def specialists(chance: np.random.Generator, n: int) -> tuple[Vectors, Floats, Floats]:
    """Two workers, each right on its own half of the space: vectors, outcomes, and their probabilities."""
    vectors = directions(chance, n)
    lean = np.where(vectors[:, 0] > 0, 0.35, -0.35)
    truth = np.column_stack([0.5 + lean, 0.5 - lean])
    return vectors, (chance.random(truth.shape) < truth).astype(np.float64), truth


def questions() -> tuple[Table, Vectors]:
    """300 questions of GSM8K with what a weak and a strong model made of them (tests/data/routellm)."""
    path = Path(__file__).parents[2] / "data" / "routellm" / "gsm8k.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found = [json.loads(line) for line in file]
    success = np.array([[row["weak_correct"], row["strong_correct"]] for row in found], np.float64)
    requests = [row["prompt"] for row in found]
    cost = np.array([[len(text) * 1e-6, len(text) * 3e-5] for text in requests])
    return table(success, requests=requests, cost=cost), HashingEmbedder(64).embed(requests)
