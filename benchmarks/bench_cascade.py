"""What cascades and a router save on 14 models' recorded answers to GSM8K's test questions.

    python benchmarks/bench_cascade.py --data DIR                      # a table; five minutes on one core
    python benchmarks/bench_cascade.py --data DIR --seeds 1 --json     # one object, from one seed
    python benchmarks/bench_cascade.py --data DIR --embedder sentence --cache FILE

DIR holds `zeroeval-gsm8k-outputs` (WildEval/ZeroEval, Apache-2.0) and `gsm8k` (MIT). For each seed the 1,319 questions are cut
in half, and each half is tested with what was tuned on the other: orders, thresholds, skills, predictors, and who the best
single model is. At decision time nobody looks at the key. Intervals: 95 %, bootstrap over questions of the mean over the seeds.

Recorded are outputs, not tokens, so costs are estimated: a token is four characters, and a prompt is the question and the 200
tokens that ZeroEval's instructions have. What a reasoning model thought is not recorded, so o1-mini's cost is too low.
Exit code 1 where a target is missed.
"""

import argparse
import asyncio
import gzip
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.core.policy import Ending
from journeyman.experiments.router import evaluation
from journeyman.models import embedders
from journeyman.models.base import ModelRequest, PromptMessage
from journeyman.models.embedders import Cached, Vectors
from journeyman.models.recorded import RecordedModel as Replay
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.cascade import Ladder, RecordedAnswers, by_agreement, learn, search
from journeyman.optimizers.router.decide import decide
from journeyman.optimizers.router.fit import fit
from journeyman.optimizers.router.objective import Objective
from journeyman.stats import Floats, bootstrap_interval
from journeyman.tasks.answers import final_number, first_number, same_number, truth

PRICES = {
    "Meta-Llama-3-8B-Instruct": (0.03, 0.06, "openrouter"),
    "Meta-Llama-3.1-70B-Instruct": (0.72, 0.72, "openrouter"),
    "Meta-Llama-3.1-8B-Instruct": (0.05, 0.08, "openrouter"),
    "Mixtral-8x7B-Instruct-v0.1": (0.24, 0.24, "openrouter"),
    "Qwen2-7B-Instruct": (0.054, 0.054, "novita"),
    "claude-3-5-sonnet-20241022": (3.0, 15.0, "anthropic"),
    "claude-3-haiku-20240307": (0.25, 1.25, "anthropic"),
    "command-r": (0.15, 0.6, "cohere"),
    "gemma-2-2b-it": (0.07, 0.07, "not listed: counted as gemma-2-9b-it, which is larger"),
    "gemma-2-9b-it": (0.07, 0.07, "openrouter"),
    "gpt-3.5-turbo-0125": (0.5, 1.5, "openai"),
    "gpt-4o-2024-08-06": (2.5, 10.0, "openai"),
    "gpt-4o-mini-2024-07-18": (0.15, 0.6, "openai"),
    "o1-mini-2024-09-12": (1.1, 4.4, "openai"),
}
"""US dollars for a million input and output tokens by genai-prices 0.2.3, read on 2026-11-21, and whose price it is."""

Places = NDArray[np.int64]

CHARACTERS = 4.0
INSTRUCTIONS = 200.0
"""Tokens."""
DOLLARS = (0.0, 3.0, 10.0, 30.0, 50.0, 80.0, 120.0, 200.0, 500.0, 2000.0)
"""Successes that a dollar is worth: the settings of router and cascade."""

SAVED = 0.6
"""Target: of the best single model's cost, by the cascade that was as good as it on the rows where it was tuned."""
LOST = 0.005
"""Target: accuracy that it may lose to that model."""


@dataclass(frozen=True, kw_only=True)
class Pool:
    """All that was recorded."""

    questions: tuple[str, ...]
    recorded: RecordedAnswers
    endings: dict[str, dict[Ending, int]]
    vectors: Vectors

    def table(self, rows: Places) -> Table:
        """Rows to fit predictors to."""
        return Table.judged(
            [self.questions[row] for row in rows],
            self.recorded.success[rows],
            self.recorded.workers,
            ids=tuple(map(str, rows)),
            types=("gsm8k",) * len(rows),
            cost=self.recorded.cost[rows],
        )


def read(data: Path, embedder: embedders.Embedder) -> Pool:
    """Outputs of all models, judged as the library judges numbers."""
    with gzip.open(data / "gsm8k" / "test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    questions = tuple(row["question"] for row in rows)
    truths = [first_number(truth(row["answer"])) for row in rows]
    answers, success, cost, endings = [], [], [], {}
    for name, (sent, written, _) in PRICES.items():
        outputs = asyncio.run(replies(Replay(str(data / "zeroeval-gsm8k-outputs" / f"{name}.jsonl.gz")), questions))
        found = [final_number(output) for output in outputs]
        right = [a is not None and b is not None and same_number(a, b) for a, b in zip(found, truths, strict=True)]
        answers.append(["" if number is None else f"{number.normalize():f}" for number in found])
        success.append([float(value) for value in right])
        tokens = [(INSTRUCTIONS + len(q) / CHARACTERS, len(o) / CHARACTERS) for q, o in zip(questions, outputs, strict=True)]
        cost.append([(sent * prompt + written * output) / 1e6 for prompt, output in tokens])
        unread = found.count(None)
        endings[name] = {Ending.RIGHT: sum(right), Ending.WRONG: len(right) - sum(right) - unread, Ending.FORMAT: unread}
    recorded = RecordedAnswers(
        workers=tuple(PRICES), answers=np.array(answers).T, success=np.array(success).T, cost=np.array(cost).T
    )
    return Pool(questions=questions, recorded=recorded, endings=endings, vectors=embedder.embed(questions))


async def replies(model: Replay, questions: Sequence[str]) -> list[str]:
    """What a model said to each question."""
    requests = [ModelRequest(messages=(PromptMessage(role="user", content=question),)) for question in questions]
    return [(await model.complete(request)).text for request in requests]


Outcomes = tuple[Floats, Floats]
"""Success and cost of each of the tested rows."""


def route(pool: Pool, train: Places, test: Places, seed: int) -> dict[str, Outcomes]:
    """The router at each price of a success."""
    predictor = fit(pool.table(train), pool.vectors[train], seed=seed)
    forecasts = predictor.forecast(pool.vectors[test], [pool.questions[row] for row in test], ["gsm8k"] * len(test))
    columns = np.array([pool.recorded.workers.index(name) for name in forecasts.workers])
    found = {}
    for dollar in DOLLARS:
        chosen = columns[decide(forecasts, Objective(cost=dollar)).chosen]
        found[f"router, ${dollar:g}"] = pool.recorded.success[test, chosen], pool.recorded.cost[test, chosen]
    return found


def escalate(pool: Pool, train: Places, test: Places) -> tuple[dict[str, Outcomes], str]:
    """Cascades tuned at each price of a success, and the cheapest that was as good as the best single model in training."""
    rows, tested = pool.recorded.take(train), pool.recorded.take(test)
    agreement = learn(rows.answers, rows.success)
    best = rows.success.mean(axis=0).max()
    found: dict[str, Outcomes] = {}
    kept = ""
    for dollar in DOLLARS:
        ladder, _ = search(rows, agreement, cost=dollar)
        columns = [rows.workers.index(name) for name in ladder.workers]

        def ends(on: RecordedAnswers, columns: list[int] = columns, ladder: Ladder = ladder) -> Outcomes:
            stages = by_agreement(on, columns, agreement)
            at = np.arange(len(stages.score)), ladder.stops(stages)
            return stages.success[at], stages.cost[at]

        found[f"cascade, ${dollar:g}"] = ends(tested)
        if ends(rows)[0].mean() >= best:
            found["cascade, kept"], kept = ends(tested), " > ".join(ladder.workers)
    return found, kept


def bounds(pool: Pool, train: Places, test: Places) -> dict[str, Outcomes]:
    """Single models, the one that was best in training, and whoever is right for the least."""
    success, cost = pool.recorded.success, pool.recorded.cost
    found = {name: (success[test, column], cost[test, column]) for column, name in enumerate(pool.recorded.workers)}
    best = int(success[train].mean(axis=0).argmax())
    found["best single"] = success[test, best], cost[test, best]
    cheapest = np.where(success[test] == success[test].max(axis=1, keepdims=True), cost[test], np.inf).argmin(axis=1)
    found["oracle"] = success[test, cheapest], cost[test, cheapest]
    return found


def measure(pool: Pool, seeds: int) -> tuple[dict[str, Outcomes], list[str]]:
    """Means over the seeds, each question tested once in each; and the cascades that were kept."""
    n = len(pool.questions)
    sums: dict[str, tuple[Floats, Floats]] = {}
    kept = []
    for seed in range(seeds):
        halves = np.array_split(np.random.default_rng(seed).permutation(n), 2)
        for train, test in (halves, halves[::-1]):
            cascades, name = escalate(pool, train, test)
            kept.append(name)
            for policy, (success, cost) in (bounds(pool, train, test) | route(pool, train, test, seed) | cascades).items():
                total = sums.setdefault(policy, (np.zeros(n), np.zeros(n)))
                total[0][test] += success / seeds
                total[1][test] += cost / seeds
    return sums, kept


def lines(found: dict[str, Outcomes]) -> list[dict[str, Any]]:
    """Each policy beside the best single model, on the same questions."""
    single, single_cost = found["best single"]
    made = []
    for policy, (success, cost) in found.items():
        low, high = bootstrap_interval((success - single).tolist())
        mean = bootstrap_interval(success.tolist())
        made.append(
            {
                "policy": policy,
                "right": float(success.mean()),
                "interval": mean,
                "dollars_per_1000": 1000 * float(cost.mean()),
                "difference": float((success - single).mean()),
                "difference_interval": (low, high),
                "saved": 1 - float(cost.mean() / single_cost.mean()),
            }
        )
    return made


def curve(found: dict[str, Outcomes], kind: Callable[[str], bool]) -> dict[str, float | None]:
    """AIQ over the single models' range of costs, and what is saved at the best single model's accuracy."""
    names = [name for name in found if kind(name)]
    costs, right = ([float(found[name][part].mean()) for name in names] for part in (1, 0))
    singles = [float(found[name][1].mean()) for name in PRICES]
    single, cost = (float(part.mean()) for part in found["best single"])
    return {
        "aiq": evaluation.aiq(costs, right, (min(singles), max(singles))),
        "saving": evaluation.saving(costs, right, cost, single),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--embedder", default="hashing")
    parser.add_argument("--cache", type=Path, help="file in which the questions' vectors are kept")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    embedder = Cached(embedders.load(options.embedder), options.cache)
    pool = read(Path(options.data), embedder)
    if options.cache:
        embedder.save()
    found, kept = measure(pool, options.seeds)
    kinds = {
        "single models": lambda name: name in PRICES,
        "router": lambda name: name.startswith("router"),
        "cascades": lambda name: name.startswith("cascade, $"),
        "oracle": lambda name: name == "oracle",
    }
    curves = {name: curve(found, kind) for name, kind in kinds.items()}
    table = lines(found)
    reached = next(line for line in table if line["policy"] == "cascade, kept")
    passed = reached["saved"] >= SAVED and reached["difference"] >= -LOST
    if options.json:
        print(json.dumps({"table": table, "curves": curves, "kept": kept, "endings": pool.endings, "passed": passed}))
        return 0 if passed else 1
    report(pool, table, curves, kept)
    wanted = f"{SAVED:.0%} saved at no more than {LOST:.3f} less than the best single model"
    print(f"\ntarget of the kept cascade, {wanted}: {'reached' if passed else 'missed'}")
    return 0 if passed else 1


def report(pool: Pool, table: list[dict[str, Any]], curves: dict[str, dict[str, float | None]], kept: list[str]) -> None:
    print(f"{len(pool.questions)} questions; {len(PRICES)} models, right, wrong and unreadable answers, and prices:")
    for name, (sent, written, source) in PRICES.items():
        counts = " ".join(f"{count:5}" for count in pool.endings[name].values())
        print(f"  {name:28} {counts}   ${sent:g} and ${written:g}, {source}")
    print(f"\n{'policy':28}  right  95 %             $/1,000  saved   against the best single model, 95 %")
    for line in table:
        low, high = line["interval"]
        less, more = line["difference_interval"]
        money = f"{line['dollars_per_1000']:8.4f} {line['saved']:6.1%}"
        against = f"{line['difference']:+.4f} ({less:+.4f} to {more:+.4f})"
        print(f"{line['policy']:28}  {line['right']:.4f} {low:.4f} to {high:.4f} {money}   {against}")
    print("\nAIQ, and saved at the best single model's accuracy:")
    for name, values in curves.items():
        saved = values["saving"]
        print(f"  {name:14} {values['aiq']:.4f}  {'not reached' if saved is None else f'{saved:.1%}'}")
    print("\nkept cascades: " + "; ".join(sorted(set(kept))))


if __name__ == "__main__":
    raise SystemExit(main())
