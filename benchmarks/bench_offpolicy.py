"""How far the answers to "what would another policy have brought?" are off, on recorded outcomes of 9 models.

    python benchmarks/bench_offpolicy.py DATA [--cache FOLDER] [--logs 2000] [--replications 200] [--seed 0]

DATA holds llmrouter_ulab/rows.jsonl.gz: 6,108 requests, each answered by all models, so the truth is known. One policy serves
and explores a share of the time (epsilon-greedy around the model that is best on the first half of the training split), and its
decisions are logged. The other is linear, learned on that half: a softmax of what it expects of each model. Both meet requests
drawn from the other half and the test split. The table has root mean square error, bias, and how often the 95 % interval holds
the truth. Exits with 1 when the doubly robust interval holds it less than 90 % of the time at a share of exploration where
most answers are not refused, or when its error at 20 % exploration is more than three quarters of that of plain IPS.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.stats import Floats, LoggedDecisions, OffPolicyResult, evaluate_policy, request_features

SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)
NAMES = ("IPS", "SNIPS", "DM", "DR")
LEAST_COVERAGE = 0.90


class Records:
    """The outcomes, the requests' features, and the two policies."""

    def __init__(self, data: Path, cache: Path | None) -> None:
        with gzip.open(data / "llmrouter_ulab" / "rows.jsonl.gz", "rt") as file:
            rows = [json.loads(line) for line in file]
        self.workers = tuple(sorted(rows[0]["scores"]))
        success = np.asarray([[float(row["scores"][worker]) for worker in self.workers] for row in rows])
        embedder = Cached(embedders.load("sentence"), cache / "llmrouter.npz" if cache else None)
        vectors = embedder.embed([str(row["question"]) for row in rows]).astype(np.float64)
        embedder.save()
        learned = np.asarray([row["split"] == "train" for row in rows])
        first = learned & (np.cumsum(learned) <= learned.sum() // 2)
        self.success, self.features = success[~first], request_features(vectors, [row["task_name"] for row in rows])[~first]
        self.target = softmax(ridge(vectors[first], success[first], vectors[~first]) / 0.02)
        self.incumbent = int(success[first].mean(axis=0).argmax())

    @property
    def truth(self) -> float:
        return float((self.target * self.success).sum(axis=1).mean())

    def log(self, share: float, decisions: int, chance: np.random.Generator) -> tuple[LoggedDecisions, Floats]:
        """What the serving policy did on requests drawn at random, and the other policy's probabilities there."""
        rows = chance.integers(len(self.success), size=decisions)
        many = len(self.workers)
        serving = np.full(many, share / many)
        serving[self.incumbent] += 1 - share
        actions = chance.choice(many, size=decisions, p=serving)
        logged = LoggedDecisions(
            workers=self.workers,
            actions=actions,
            propensities=serving[actions],
            rewards=self.success[rows, actions],
            candidates=np.ones((decisions, many), bool),
            features=self.features[rows],
        )
        return logged, self.target[rows]


def ridge(seen: Floats, wanted: Floats, asked: Floats) -> Floats:
    """A linear regression for each model."""
    middle, level = seen.mean(axis=0), wanted.mean(axis=0)
    weights = np.linalg.solve(
        (seen - middle).T @ (seen - middle) + 10 * np.eye(seen.shape[1]), (seen - middle).T @ (wanted - level)
    )
    expected: Floats = (asked - middle) @ weights + level
    return expected


def softmax(logits: Floats) -> Floats:
    made = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances: Floats = made / made.sum(axis=1, keepdims=True)
    return chances


def measure(records: Records, share: float, given: argparse.Namespace) -> tuple[list[OffPolicyResult], int]:
    """Verdicts even where support is thin, and how many of them would have been refused."""
    found, refused = [], 0
    for replication in range(given.replications):
        logged, target = records.log(share, given.logs, np.random.default_rng([given.seed, replication]))
        refused += bool(evaluate_policy(logged, target, seed=replication, folds=2).refused)
        found.append(evaluate_policy(logged, target, seed=replication, min_sample=0.0, folds=given.folds))
    return found, refused


def row(verdicts: Sequence[OffPolicyResult], truth: float) -> dict[str, tuple[float, float, float]]:
    told = [verdict.estimates for verdict in verdicts if not verdict.refused]
    table = {}
    for name in NAMES:
        values = np.asarray([one[name].value for one in told])
        inside = np.mean([one[name].low <= truth <= one[name].high for one in told])
        error = values - truth
        table[name] = (float(np.sqrt((error**2).mean())), float(error.mean()), float(inside))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, help="Where embeddings are kept.")
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    records = Records(given.data, given.cache)
    single = records.success[:, records.incumbent].mean()
    print(
        f"truth {records.truth:.4f}; serving, best single {single:.4f}; {given.logs} logs, {given.replications} replications\n"
    )
    print("| explores | effective | refused | " + " | ".join(f"{name} RMSE / bias / holds" for name in NAMES) + " |")
    print("|---" * (3 + len(NAMES)) + "|")
    kept = True
    for share in SHARES:
        verdicts, refused = measure(records, share, given)
        found = row(verdicts, records.truth)
        effective = np.mean([verdict.effective for verdict in verdicts])
        cells = " | ".join(f"{rmse:.3f} / {bias:+.3f} / {inside:.0%}" for rmse, bias, inside in found.values())
        print(f"| {share:.0%} | {effective:.0f} | {refused / given.replications:.0%} | {cells} |", flush=True)
        kept &= refused > given.replications / 2 or found["DR"][2] >= LEAST_COVERAGE
        kept &= share != 0.2 or found["DR"][0] <= 0.75 * found["IPS"][0]
    print(f"\ntargets kept: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
