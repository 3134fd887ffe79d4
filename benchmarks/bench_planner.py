"""How well the planner plans on published task graphs, beside what needs no training.

    python benchmarks/bench_planner.py --data DIR                                  # every set, MiniLM, 3 seeds
    python benchmarks/bench_planner.py --data DIR --set sealtools --embedder hashing --cache /tmp/vectors

Node-F1, edge-F1 and exact match, means over the test examples. Retrieval takes the tools whose descriptions are nearest to
the request, as many as plans usually have; 1-NN copies the plan of the nearest request. The interval is of the mean difference
in node-F1 from the better of the two, paired by example, from 2,000 bootstrap draws of the examples, each the mean over seeds.

sealtools: trained on `dev` (700), tested on both test sets with all 4,076 tools to choose from; those of `out_domain` are in no
training plan. tmdb: 5-fold cross-validation of 100 examples. huggingface, multimedia: TaskBench's gold graphs are not here, so
the plans are predictions of Mistral-7B, silver at best; a fifth is tested on, another for each seed. The planner's own
validation is a fifth of its training examples; LOG.md says what was looked at while it was made. Ends with 1 where the planner
is not above the better of retrieval and 1-NN copy.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from journeyman.core.plan import Plan, Subtask
from journeyman.models.embedders import Cached, Embedder, load
from journeyman.optimizers.planner.config import SupervisedConfig
from journeyman.optimizers.planner.data import Example, TrainingData, sealtools, tool_graph
from journeyman.optimizers.planner.memory import CardEmbeddings
from journeyman.optimizers.planner.policy import LearnedPlanner
from journeyman.optimizers.planner.supervised import agreement, train

SETS = ("tmdb", "multimedia", "huggingface", "sealtools")
METRICS = ("node_f1", "edge_f1", "exact")
METHODS = ("retrieval", "1-NN copy", "planner")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What is trained on once, and tested on."""

    training: TrainingData
    tests: dict[str, Sequence[tuple[int, Example]]]
    """By name; each example with its number, to be paired over the seeds."""


def trials(name: str, data: Path, seed: int) -> Iterator[Trial]:
    if name == "sealtools":
        folder, tools = data / "plan_sealtools", data / "plan_sealtools" / "tool.jsonl.gz"
        names = ("test_in_domain", "test_out_domain")
        tests = {f"sealtools {n}": sealtools(folder / f"{n}_parsed.jsonl.gz").examples for n in names}
        dev = sealtools(folder / "dev_parsed.jsonl.gz", tools)
        yield Trial(training=dev, tests={test: tuple(enumerate(rows)) for test, rows in tests.items()})
        return
    if name == "tmdb":
        everything = tool_graph(data / "plan_tmdb" / "data.jsonl.gz", data / "plan_tmdb" / "tool_desc.json")
    else:
        folder = data / "taskbench_partial"
        rows = folder / f"predictions_{name}_mistral-7b.jsonl.gz"
        everything = tool_graph(rows, folder / f"{name}_tool_desc.json")
    order = np.random.default_rng(seed).permutation(len(everything.examples)).tolist()
    for fold in range(5 if name == "tmdb" else 1):
        tested = set(order[fold::5])
        kept = tuple(example for at, example in enumerate(everything.examples) if at not in tested)
        test = tuple((at, everything.examples[at]) for at in sorted(tested))
        yield Trial(training=replace(everything, examples=kept), tests={name: test})


def plans_of(trial: Trial, embedder: Embedder, seed: int, epochs: int) -> Iterator[tuple[str, str, list[Plan]]]:
    """Test, method and a plan for each of its examples."""
    deck = CardEmbeddings.of(trial.training.tools, embedder)
    known = [example.plan for example in trial.training.examples]
    vectors = embedder.embed([plan.instruction for plan in known])
    usual = round(float(np.mean([len(plan.subtasks) for plan in known])))
    with tempfile.TemporaryDirectory() as folder:
        model = train(trial.training, embedder, Path(folder), SupervisedConfig(seed=seed, epochs=epochs)).model
    planner = LearnedPlanner(model, hires=False)
    for test, rows in trial.tests.items():
        requests = [example.plan.instruction for _, example in rows]
        queries = embedder.embed(requests)
        nearest = np.argsort(-(queries @ deck.vectors.T), axis=1)[:, :usual]
        yield (
            test,
            "retrieval",
            [_bag(text, [deck.names[at] for at in row]) for text, row in zip(requests, nearest, strict=True)],
        )
        yield test, "1-NN copy", [known[at] for at in np.argmax(queries @ vectors.T, axis=1)]
        yield test, "planner", planner.plans(requests)


def _bag(request: str, tools: Sequence[str]) -> Plan:
    return Plan(instruction=request, subtasks=tuple(Subtask(id=str(at), text="", tool=tool) for at, tool in enumerate(tools)))


Found = dict[str, dict[str, dict[int, dict[int, tuple[float, float, float]]]]]
"""By test, method, example and each seed that tested on it: node-F1, edge-F1 and exact match."""


def measure(names: Sequence[str], data: Path, embedder: Embedder, seeds: int, epochs: int) -> Found:
    found: Found = {}
    for name in names:
        for seed in range(seeds):
            for trial in trials(name, data, seed):
                for test, method, plans in plans_of(trial, embedder, seed, epochs):
                    by_example = found.setdefault(test, {}).setdefault(method, {})
                    for (at, example), plan in zip(trial.tests[test], plans, strict=True):
                        scores = agreement(plan, example.plan)
                        by_example.setdefault(at, {})[seed] = (scores.node_f1, scores.edge_f1, scores.exact)
    return found


def summary(found: Found) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for test, methods in found.items():
        means = {
            method: np.array([np.mean([*scores.values()], axis=0) for _, scores in sorted(methods[method].items())])
            for method in METHODS
        }
        best = max(METHODS[:2], key=lambda method: float(means[method][:, 0].mean()))
        gain = means["planner"][:, 0] - means[best][:, 0]
        draws = np.random.default_rng(0).integers(0, len(gain), (2000, len(gain)))
        low, high = np.quantile(gain[draws].mean(1), [0.025, 0.975])
        planner = methods["planner"].values()
        seeds = [
            np.mean([scores[seed][0] for scores in planner if seed in scores])
            for seed in sorted({seed for scores in planner for seed in scores})
        ]
        rows.append(
            {
                "test": test,
                "examples": len(gain),
                "methods": {m: dict(zip(METRICS, means[m].mean(0).round(4).tolist(), strict=True)) for m in METHODS},
                "best_baseline": best,
                "gain": round(float(gain.mean()), 4),
                "interval": [round(float(low), 4), round(float(high), 4)],
                "node_f1_by_seed": [round(float(value), 4) for value in seeds],
            }
        )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data sets")
    parser.add_argument("--set", choices=SETS, action="append", help="only this one; may be repeated")
    parser.add_argument("--embedder", default="sentence")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()), help="folder for vectors made once")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    embedder = Cached(load(options.embedder), options.cache / f"planner-{options.embedder.replace(':', '-')}.npz")
    began = time.process_time()
    rows = summary(measure(options.set or SETS, options.data, embedder, options.seeds, options.epochs))
    embedder.save()
    seconds = time.process_time() - began
    if options.json:
        print(json.dumps({"embedder": options.embedder, "seeds": options.seeds, "cpu_seconds": round(seconds), "tests": rows}))
    else:
        show(rows, options.embedder, seconds)
    return int(any(float(str(row["gain"])) <= 0 for row in rows))


def show(rows: list[dict[str, object]], embedder: str, seconds: float) -> None:
    print(f"{embedder}, {seconds:.0f} s of CPU\n{'test':26}{'n':>5}  {'method':10}{'node-F1':>9}{'edge-F1':>9}{'exact':>8}")
    for row in rows:
        methods = row["methods"]
        assert isinstance(methods, dict)
        for at, (method, scores) in enumerate(methods.items()):
            head = f"{row['test'] if at == 0 else '':26}{row['examples'] if at == 0 else '':>5}"
            print(f"{head}  {method:10}" + "".join(f"{scores[name]:>9.3f}" for name in METRICS))
        print(f"{'':33}above {row['best_baseline']}: {row['gain']} {row['interval']}; seeds {row['node_f1_by_seed']}")


if __name__ == "__main__":
    raise SystemExit(main())
