"""Measures what the router's predictors are worth on recorded outcomes, beside what was published and what is simple.

    JOURNEYMAN_DATA=/data python benchmarks/bench_router.py --cache vectors/
    JOURNEYMAN_DATA=/data python benchmarks/bench_router.py --only gsm8k --embedder hashing --seeds 3

RouteLLM's records (two models): APGR, CPT(50 %) and CPT(80 %) as the paper defines them (arXiv 2406.18665), contaminated rows
dropped; the request's text is all that is known, subjects serve the line "subject known" alone. Its 1,500 labels come from
MMLU's validation part; here they are drawn from the file that the test rows come from, and its judge labels for GSM8K are no
outcomes of GSM8K. So a line here says what outcomes of one's own traffic are worth, not that a small encoder beats a large one.
LLMRouter's records (nine models): the authors' split; a call's cost is that of its request at four letters a token and 250
tokens of answer, since tokens were not recorded. 119 of the 500 test questions also stand among the training rows.

Settings of the predictors were chosen on splits with seeds 0 to 12, on LLMRouter within the training rows; reported are fresh
ones, from seed 40. The rows of RouteLLM are the same, split otherwise. Ranges are mean and 95 % interval over seeds (t). On
LLMRouter, whose split is fixed, a bootstrap over the test questions of the first seed is beside it. The exit code is 1 where a
target is missed.
"""

import argparse
import gzip
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from journeyman.experiments.router.evaluation import aiq, apgr, cpt, ece, saving
from journeyman.models.embedders import Cached, Vectors, load
from journeyman.optimizers.outcome_table import Table
from journeyman.optimizers.router.fit import RouterFitConfig, fit
from journeyman.optimizers.router.predict import Forecasts
from journeyman.stats import Floats

Places = NDArray[np.int64]
ALONE = ("linear", "clusters", "neighbours", "network")
FIRST = 40
"""The first seed that is reported."""
WORDS_OUT = 250
"""Tokens of an answer, assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One way to route, and its figures for each seed."""

    what: str
    figures: dict[str, list[float]]
    targets: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def missed(self) -> list[str]:
        return [name for name, least in self.targets.items() if np.mean(self.figures[name]) < least]

    def __str__(self) -> str:
        shown = "  ".join(f"{name} {_range(values)}" for name, values in self.figures.items())
        wanted = "".join(
            f"  {name} >= {least:g} {'MISSED' if name in self.missed else 'kept'}" for name, least in self.targets.items()
        )
        return f"  {self.what:34} {shown}{wanted}{self.note}"


def _range(values: Sequence[float]) -> str:
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / len(values) ** 0.5 if len(values) > 1 else 0.0
    size = ".3f" if abs(np.mean(values)) < 2 else ".1f"
    return f"{np.mean(values):{size}}" + (f" ±{half:{size}}" if len(values) > 1 else "")


def rows(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def two_models(path: Path) -> Table:
    found = [row for row in rows(path) if not row["contaminated"]]
    success = np.array([[row["weak_correct"], row["strong_correct"]] for row in found], np.float64)
    types = tuple(row["domain"] for row in found)
    return Table.judged([row["prompt"] for row in found], success, ("weak", "strong"), types=types)


def untyped(known: Table) -> Table:
    """The text is all that is known."""
    return Table.judged(known.requests, known.success, known.workers, cost=known.cost)


# --- two models ------------------------------------------------------------


def recovered(scores: Floats, test: Table) -> dict[str, float]:
    weak, strong = test.success.T
    return {
        "APGR": apgr(scores, weak, strong),
        "CPT50": cpt(scores, weak, strong, 0.5),
        "CPT80": cpt(scores, weak, strong, 0.8),
    }


@dataclass(frozen=True, slots=True)
class Split:
    """Rows to learn from and rows to look at, for one seed."""

    train: Places
    test: Places
    seed: int


def drawn(known: Table, labels: int) -> Callable[[int], Split]:
    def split(seed: int) -> Split:
        order = np.random.default_rng(seed).permutation(len(known))
        return Split(order[:labels], order[labels:], seed)

    return split


def subjects_apart(known: Table, apart: int) -> Callable[[int], Split]:
    def split(seed: int) -> Split:
        subjects = np.random.default_rng(seed).permutation(sorted(set(known.types)))[:apart]
        unseen = np.isin(known.types, subjects)
        return Split(np.flatnonzero(~unseen), np.flatnonzero(unseen), seed)

    return split


def subject_mean(known: Table, split: Split) -> Floats:
    gaps, types = known.success[:, 1] - known.success[:, 0], np.array(known.types)
    overall = float(gaps[split.train].mean())
    means = {}
    for subject in sorted(set(known.types)):
        mine = gaps[split.train][types[split.train] == subject]
        means[subject] = (mine.sum() + 5 * overall) / (len(mine) + 5)
    return np.array([means[subject] for subject in types[split.test]])


def gap(known: Table, vectors: Vectors, split: Split, config: RouterFitConfig | None = None) -> tuple[Floats, Forecasts]:
    fitted = fit(known.take(split.train), vectors[split.train], config, split.seed)
    test = known.take(split.test)
    said = fitted.forecast(vectors[split.test], test.requests, [""] * len(test))
    return said.success[:, 1] - said.success[:, 0], said


def route_two(known: Table, vectors: Vectors, splits: list[Split], least: float, others: bool = True) -> Iterator[Line]:
    """The lines of one protocol. The target is on APGR; 0 is none."""
    plain = untyped(known)
    collected: dict[str, list[dict[str, float]]] = {}
    for split in splits:
        test = known.take(split.test)

        def add(what: str, scores: Floats, test: Table = test, **more: float) -> None:
            collected.setdefault(what, []).append({**recovered(scores, test), **more})

        add("random", np.random.default_rng(split.seed).random(len(test)))
        scores, said = gap(plain, vectors, split)
        add("router", scores, ECE=ece(said.success, test.success))
        for name in ALONE if others else ():
            add(f"  {name} alone", gap(plain, vectors, split, RouterFitConfig(members=(name,)))[0])
        if len(set(known.types)) > 1:
            add("subject known: its mean", subject_mean(known, split))
        add("oracle", test.success[:, 1] - test.success[:, 0])
    for what, found in collected.items():
        figures = {name: [figure[name] for figure in found] for name in found[0]}
        yield Line(what=what, figures=figures, targets={"APGR": least} if least and what == "router" else {})


# --- nine models ------------------------------------------------------------


def nine_models(folder: Path) -> tuple[Table, Split]:
    found = rows(folder / "rows.jsonl.gz")
    prices = json.loads((folder / "llm_prices.json").read_text(encoding="utf-8"))
    workers = sorted(found[0]["scores"])
    success = np.array([[row["scores"].get(worker, np.nan) for worker in workers] for row in found], np.float64)
    letters = np.array([len(row["question"]) for row in found])
    into, out = (np.array([prices[worker][name] for worker in workers]) for name in ("input_price", "output_price"))
    cost = (letters[:, None] / 4 * into + WORDS_OUT * out) / 1e6
    types = tuple(row["task_name"] for row in found)
    known = Table.judged([row["question"] for row in found], success, workers, types=types, cost=cost)
    train = np.array([row["split"] == "train" for row in found])
    return known, Split(np.flatnonzero(train), np.flatnonzero(~train), 0)


def along_prices(success: Floats, cost: Floats, test: Table) -> tuple[Floats, Floats]:
    """Mean cost and quality for each rate at which money is set against success; no money counts at the first."""
    each = np.arange(len(test))
    chosen = [(success - rate * cost).argmax(1) for rate in (0.0, *np.geomspace(1, 1e5, 60))]
    return (
        np.array([test.cost[each, choice].mean() for choice in chosen]),
        np.array([test.success[each, choice].mean() for choice in chosen]),
    )


def of_nine(success: Floats, cost: Floats, test: Table, single: int) -> dict[str, float]:
    costs, qualities = along_prices(success, cost, test)
    means = test.cost.mean(0)
    saved = saving(costs, qualities, float(means[single]), float(test.success[:, single].mean()))
    return {
        "accuracy": float(qualities[0]),
        "AIQ": aiq(costs, qualities, (float(means.min()), float(means.max()))),
        "saved": saved if saved is not None else float("nan"),
    }


def route_nine(known: Table, split: Split, vectors: Vectors, seeds: Sequence[int], targets: bool) -> Iterator[Line]:
    test, learned = known.take(split.test), known.take(split.train)
    plain = untyped(known)
    single = int(np.nanmean(learned.success, 0).argmax())
    types = np.array(learned.types)
    means = {name: learned.success[types == name].mean(0) for name in sorted(set(learned.types))}
    constant = np.tile(learned.success.mean(0), (len(test), 1))
    simple = {
        "best single": constant,
        "task known: its mean": np.array([means[name] for name in test.types]),
        "oracle": test.success,
    }
    ways: dict[str, RouterFitConfig | None] = {
        "router": None,
        **{f"  {name} alone": RouterFitConfig(members=(name,)) for name in ALONE},
    }
    for what, config in ways.items():
        found, first = [], None
        for seed in seeds:
            fitted = fit(plain.take(split.train), vectors[split.train], config, seed)
            said = fitted.forecast(vectors[split.test], test.requests, [""] * len(test))
            first = first or said
            found.append({**of_nine(said.success, said.cost, test, single), "ECE": ece(said.success, test.success)})
        best = float(test.success[:, single].mean())
        wanted = {"accuracy": best + 0.02, "AIQ": 0.515} if what == "router" and targets else {}
        note = f"  {_above_single(first, test, single)}" if first and what == "router" else ""
        yield Line(what=what, figures={name: [one[name] for one in found] for name in found[0]}, targets=wanted, note=note)
    for what, success in simple.items():
        yield Line(what=what, figures={name: [value] for name, value in of_nine(success, test.cost, test, single).items()})


def _above_single(said: Forecasts, test: Table, single: int) -> str:
    """The gain in accuracy over the best single model, with its interval by a paired bootstrap over the questions."""
    each = np.arange(len(test))
    gains = test.success[each, said.success.argmax(1)] - test.success[:, single]
    draws = np.random.default_rng(0).integers(0, len(gains), (4_000, len(gains)))
    low, high = np.quantile(gains[draws].mean(1), (0.025, 0.975))
    return f"(above best single {gains.mean():+.3f}, {low:+.3f} to {high:+.3f})"


# --- all of it ------------------------------------------------------------


def protocols(only: str, data: Path, vectors: Callable[[str, Table], Vectors], options: argparse.Namespace) -> Iterator[Any]:
    seeds, held = range(FIRST, FIRST + options.seeds), options.embedder == "sentence"
    if only == "gsm8k":
        known = two_models(data / "routellm" / "gsm8k.jsonl.gz")
        splits = [drawn(known, int(0.6 * len(known)))(seed) for seed in seeds]
        yield "GSM8K, 60 % labelled", route_two(known, vectors(only, known), splits, 0.64 * held)
        yield "  published: causal LLM 8B 0.622 / 33.6 / 63.3, BERT 0.531, matrix factorisation 0.565", ()
    elif only == "mmlu":
        known = two_models(data / "routellm" / "mmlu.jsonl.gz")
        found = vectors(only, known)
        for what, split, least in (
            ("MMLU, 1,500 labelled", drawn(known, 1_500), 0.65),
            ("MMLU, 17 of 57 subjects unseen", subjects_apart(known, 17), 0.57),
            ("MMLU, 60 % labelled", drawn(known, int(0.6 * len(known))), 0.0),
        ):
            yield what, route_two(known, found, [split(seed) for seed in seeds], least * held, others=what.endswith("labelled"))
        yield (
            "  published, 1,500 labels: SW 0.603 / 35.4 / 71.6, causal LLM 8B 0.600 / 35.5 / 70.3, random 0.500 / 50.1 / 79.9",
            (),
        )
    else:
        known, theirs = nine_models(data / "llmrouter_ulab")
        yield "LLMRouter, 9 models, the authors' split", route_nine(known, theirs, vectors(only, known), list(seeds), held)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("JOURNEYMAN_DATA"), help="else JOURNEYMAN_DATA")
    parser.add_argument("--only", choices=("gsm8k", "llmrouter", "mmlu"), action="append")
    parser.add_argument("--embedder", default="sentence", choices=("sentence", "hashing"), help="targets are for sentence")
    parser.add_argument("--cache", type=Path, help="a folder in which vectors are kept")
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    if options.data is None:
        parser.error("where is the data? Say --data, or set JOURNEYMAN_DATA")
    embedder = load(options.embedder)

    def vectors(name: str, known: Table) -> Vectors:
        path = options.cache / f"{options.embedder}-{name}.npz" if options.cache else None
        cached = Cached(embedder, path)
        made = cached.embed(known.requests)
        if cached.misses:
            cached.save()
        return made

    missed = 0
    started = time.process_time()
    for only in options.only or ("gsm8k", "llmrouter", "mmlu"):
        for title, lines in protocols(only, options.data, vectors, options):
            print(title if not lines else f"{title}; {embedder.name}; seeds {FIRST} to {FIRST + options.seeds - 1}", flush=True)
            for line in lines:
                print(line, flush=True)
                missed += len(line.missed)
    print(f"{missed} targets missed; {time.process_time() - started:.0f} CPU seconds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
