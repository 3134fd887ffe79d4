"""Does reinforcement choose better workers than supervised learning? On recorded outcomes, where each answer is known.

    python benchmarks/bench_reinforce.py DATA [--sets …] [--interactions 1000 5000 20000] [--seeds 3] [--labels 1000]

Of the training rows some are labelled: the outcomes of all models are known. On them a linear model for each worker is fitted;
its decision is the supervised policy, and its expectations over a temperature are the logits that PPO begins with. The others
are a stream: who learns there chooses one model for a request and sees that one's outcome alone; 20,000 interactions go through
it several times. PPO from scratch and Thompson sampling see the stream only. All are judged greedily on held-out requests
(LLMRouter's own 500; 40 % of RouteLLM's clean rows, drawn by the seed), by the share that is right. "All labels" is the
supervised policy that knows all models' outcomes for the whole stream too: what no bandit sees.

The last columns: the gain over the supervised policy with its 95 % interval over held-out requests, seeds averaged, and whether
the gate finds it better than both the supervised policy and the best single model. Costs and latencies are not recorded there,
so the utility is success alone. The 49 configurations of BFCL that others measured this on are not in the data.
Exits with 1 when PPO from the supervised policy is more than 0.01 below it after the last interaction, on any of the sets.
"""

import argparse
import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans

from journeyman.core.evaluation import Evaluation, Pair
from journeyman.core.gate import BetterOnHeldOut
from journeyman.experiments.planner.environment import compared
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.exploration import Thompson, ThompsonConfig
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.planner.config import PPOConfig
from journeyman.optimizers.planner.policy import ModelSelector
from journeyman.optimizers.planner.ppo import TableReplay, train, worths
from journeyman.rewards.utility import Utility
from journeyman.stats import Floats, bootstrap_interval

UTILITY = Utility()
"""Success alone: neither costs nor latencies are recorded."""
MOST_LOST = 0.01


@dataclass(frozen=True, kw_only=True)
class Split:
    labelled: Table
    stream: Table
    held_out: Table
    vectors: Mapping[str, Floats]
    """By request."""

    def of(self, table: Table) -> Floats:
        return np.stack([self.vectors[request] for request in table.requests])


def lines(path: Path) -> list[dict[str, object]]:
    with gzip.open(path, "rt") as file:
        return [json.loads(line) for line in file]


def llmrouter(data: Path) -> Table:
    rows = lines(data / "llmrouter_ulab" / "rows.jsonl.gz")
    workers = sorted(rows[0]["scores"])  # type: ignore[call-overload]
    success = np.asarray([[float(row["scores"][worker]) for worker in workers] for row in rows])  # type: ignore[index]
    splits = tuple("held_out" if row["split"] == "test" else "train" for row in rows)
    types = tuple(str(row["task_name"]) for row in rows)
    return Table.judged([str(row["question"]) for row in rows], success, workers, types=types, splits=splits)


def routellm(data: Path, name: str) -> Table:
    rows = [row for row in lines(data / "routellm" / f"{name}.jsonl.gz") if not row["contaminated"]]
    success = np.asarray([[float(str(row["weak_correct"])), float(str(row["strong_correct"]))] for row in rows])
    types = tuple(str(row["domain"]) for row in rows)
    return Table.judged([str(row["prompt"]) for row in rows], success, ("weak", "strong"), types=types)


def split(whole: Table, vectors: Mapping[str, Floats], labels: int, seed: int) -> Split:
    chance = np.random.default_rng([seed, 11])
    order = chance.permutation(len(whole))
    if whole.splits:
        held = np.asarray([whole.splits[at] == "held_out" for at in range(len(whole))])
        training, tested = order[~held[order]], np.flatnonzero(held)
    else:
        cut = int(0.6 * len(whole))
        training, tested = order[:cut], np.sort(order[cut:])
    labels = min(labels, len(training) // 3)
    return Split(
        labelled=whole.take(training[:labels]),
        stream=whole.take(training[labels:]),
        held_out=whole.take(tested),
        vectors=vectors,
    )


def expectations(seen: Floats, wanted: Floats, asked: Floats, penalty: float = 10.0) -> Floats:
    """A ridge regression for each worker."""
    middle, level = seen.mean(axis=0), wanted.mean(axis=0)
    centred = seen - middle
    weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(seen.shape[1]), centred.T @ (wanted - level))
    expected: Floats = (asked - middle) @ weights + level
    return expected


def greedy(values: Floats) -> Floats:
    chosen: Floats = (np.arange(values.shape[1]) == values.argmax(axis=1)[:, None]).astype(float)
    return chosen


Policies = dict[str, Floats]
"""By name, with what probability each worker is chosen for each held-out request."""


def supervised(of: Split) -> Policies:
    labelled, everything = of.labelled.success, np.vstack([of.labelled.success, of.stream.success])
    seen, asked = of.of(of.labelled), of.of(of.held_out)
    known = np.vstack([seen, of.of(of.stream)])
    return {
        "best single": np.tile(greedy(of.labelled.success.mean(axis=0)[None]), (len(of.held_out), 1)),
        "oracle": greedy(of.held_out.success),
        "supervised": greedy(expectations(seen, labelled, asked)),
        "supervised, all labels": greedy(expectations(known, everything, asked)),
    }


def reinforced(of: Split, marks: list[int], config: PPOConfig, temperature: float | None) -> Policies:
    """PPO's policies after so many interactions, from the supervised policy or, without a temperature, from scratch."""
    seen, streamed, asked = of.of(of.labelled), of.of(of.stream), of.of(of.held_out)
    many = len(of.stream.workers)
    priors = [np.zeros((len(rows), many)) for rows in (streamed, asked)]
    if temperature is not None:
        priors = [expectations(seen, of.labelled.success, rows) / temperature for rows in (streamed, asked)]
    stream = TableReplay.of(of.stream, streamed, UTILITY, prior=priors[0])
    examined = TableReplay.of(of.held_out, asked, UTILITY, prior=priors[1])
    states = [examined.state(row) for row in range(len(examined))]
    selector = ModelSelector(np.eye(many), streamed.shape[1], seed=config.seed)
    found: Policies = {}

    def heard(episodes: int) -> None:
        for mark in marks:
            if episodes >= mark and str(mark) not in found:
                found[str(mark)] = greedy(selector.probabilities(states))

    train(stream, selector, replace(config, episodes=max(marks)), heard=lambda update: heard(update.episodes))
    return found


def thompson(of: Split, marks: list[int], contexts: tuple[list[str], list[str]], seed: int, cap: float) -> Policies:
    bandit, chance = Thompson(workers=of.stream.workers, config=ThompsonConfig(cap=cap)), np.random.default_rng([seed, 12])
    order = np.concatenate([chance.permutation(len(of.stream)) for _ in range(1 + max(marks) // len(of.stream))])
    found: Policies = {}
    for at, row in enumerate(order[: max(marks)].tolist(), 1):
        context = contexts[0][row]
        worker = bandit.choose(context, chance).worker
        bandit.learn(context, worker, float(of.stream.success[row, of.stream.workers.index(worker)]))
        if at in marks:
            best = {name: bandit.best(name) for name in set(contexts[1])}
            found[str(at)] = np.asarray([[float(worker == best[name]) for worker in bandit.workers] for name in contexts[1]])
    return found


def contexts(of: Split, kind: str, seed: int) -> tuple[list[str], list[str]]:
    if kind == "none":
        return [""] * len(of.stream), [""] * len(of.held_out)
    if kind == "type":
        return list(of.stream.types), list(of.held_out.types)
    groups = KMeans(n_clusters=16, n_init=1, random_state=seed).fit(of.of(of.labelled))
    return [str(at) for at in groups.predict(of.of(of.stream))], [str(at) for at in groups.predict(of.of(of.held_out))]


def run(of: Split, given: argparse.Namespace, seed: int) -> Policies:
    found = supervised(of)
    measured, documented = PPOConfig.measured(seed=seed), PPOConfig(seed=seed)
    ways: dict[str, Callable[[], Policies]] = {
        "PPO from supervised": lambda: reinforced(of, given.interactions, measured, given.temperature),
        "PPO from supervised, as documented": lambda: reinforced(of, given.interactions, documented, given.temperature),
        "PPO from scratch": lambda: reinforced(of, given.interactions, measured, None),
        "Thompson, no context": lambda: thompson(of, given.interactions, contexts(of, "none", seed), seed, given.cap),
        "Thompson, type": lambda: thompson(of, given.interactions, contexts(of, "type", seed), seed, given.cap),
        "Thompson, k-means": lambda: thompson(of, given.interactions, contexts(of, "k-means", seed), seed, given.cap),
    }
    for name, way in ways.items():
        if not given.only or given.only in name:
            found |= {f"{name} @{mark}": policy for mark, policy in way().items()}
    return found


def compared_with_all(table: Table, policies: Policies, candidate: str) -> dict[str, Evaluation]:
    """The candidate against each other policy, by what each is expected to bring on each request."""
    worth = {name: (worths(table, UTILITY) * chances).sum(axis=1).tolist() for name, chances in policies.items()}
    return {name: compared(table.tasks, each, worth[candidate], UTILITY) for name, each in worth.items() if name != candidate}


def averaged(evaluations: list[Evaluation]) -> Evaluation:
    """Seeds are attempts at the same requests, so a request's pair is the mean over them."""
    pairs: dict[str, list[Pair]] = defaultdict(list)
    for evaluation in evaluations:
        for pair in evaluation.pairs:
            pairs[pair.task_id].append(pair)
    means = (
        Pair(
            task_id=id,
            baseline=float(np.mean([pair.baseline for pair in found])),
            candidate=float(np.mean([pair.candidate for pair in found])),
        )
        for id, found in pairs.items()
    )
    return Evaluation(pairs=tuple(means))


def report(name: str, splits: list[Split], runs: list[Policies]) -> bool:
    print(
        f"\n{name}: {len(splits[0].labelled)} labelled, {len(splits[0].stream)} in the stream, "
        f"{len(splits[0].held_out)} held out"
    )
    print("\n| policy | right, by seed | mean | over supervised | gate: over both |\n|---|---|---|---|---|")
    kept = True
    for policy in runs[0]:
        pairs = [compared_with_all(of.held_out, run, policy) for of, run in zip(splits, runs, strict=True)]
        each = [float((of.held_out.success * run[policy]).sum(axis=1).mean()) for of, run in zip(splits, runs, strict=True)]
        cells = ["", ""]
        if policy not in ("supervised", "oracle"):
            against = {
                other: averaged([one[other] for one in pairs]) for other in ("supervised", "best single") if other != policy
            }
            gain, interval = against["supervised"].gain, bootstrap_interval(against["supervised"].differences)
            passed = all(BetterOnHeldOut().decide(evaluation).passed for evaluation in against.values())
            cells = [f"{gain:+.4f} ({interval[0]:+.4f} to {interval[1]:+.4f})", "passes" if passed else "refused"]
            if policy.startswith("PPO from supervised @"):
                kept = (gain or 0.0) >= -MOST_LOST
        print(
            f"| {policy} | {' '.join(f'{value:.4f}' for value in each)} | {np.mean(each):.4f} | {cells[0]} | {cells[1]} |",
            flush=True,
        )
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=["llmrouter", "routellm-gsm8k"], help="Also routellm-mmlu.")
    parser.add_argument("--interactions", nargs="*", type=int, default=[1000, 5000, 20000])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--labels", type=int, default=1000)
    parser.add_argument("--temperature", type=float, default=0.05)
    parser.add_argument("--cap", type=float, default=0.2)
    parser.add_argument("--cache", type=Path, help="Where embeddings are kept.")
    parser.add_argument("--only", default="", help="Only ways of learning whose name holds this.")
    given = parser.parse_args()
    kept = True
    for name in given.sets:
        whole = llmrouter(given.data) if name == "llmrouter" else routellm(given.data, name.removeprefix("routellm-"))
        embedder = Cached(embedders.load("sentence"), given.cache / f"{name}.npz" if given.cache else None)
        requests = list(dict.fromkeys(whole.requests))
        vectors = dict(zip(requests, embedder.embed(requests).astype(np.float64), strict=True))
        embedder.save()
        splits = [split(whole, vectors, given.labels, seed) for seed in range(given.seeds)]
        kept &= report(name, splits, [run(of, given, seed) for seed, of in enumerate(splits)])
    print(f"\ntargets kept: {'yes' if kept else 'NO'}")
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
