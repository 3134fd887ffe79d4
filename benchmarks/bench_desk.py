"""Every shop of the order desk: nothing told, the true conventions told, and the learned playbook.

    python benchmarks/bench_desk.py [--model embedded:base] [--train 100] [--held-out 200] [--json]

Prints the share of held-out tasks that succeed. The bounds are the desk's promise for `embedded:base`: at most 40 % with an
empty playbook, at least 90 % with the true conventions, at least 85 % with what 100 training tasks taught.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from journeyman.agents.answer import Answer, Choose, nothing
from journeyman.agents.attempt import attempt_all
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split, Task
from journeyman.experiments import wiring
from journeyman.models import embedders
from journeyman.models import load as load_model
from journeyman.models.base import Model
from journeyman.optimizers.playbook.config import LearnConfig
from journeyman.optimizers.playbook.curator import Curator
from journeyman.optimizers.playbook.retrieval import chooser
from journeyman.optimizers.playbook.run import PlaybookRun
from journeyman.optimizers.playbook.trainer import TrainerTools, learn
from journeyman.tasks.base import Dataset
from journeyman.tasks.desk import load
from journeyman.tasks.desk.world import SHOPS, rules

BOUNDS = {"nothing": (0.0, 0.40), "told": (0.90, 1.0), "learned": (0.85, 1.0)}


async def share(model: Model, dataset: Dataset, tasks: Sequence[Task], choose: Choose) -> float:
    """Of the tasks, how many succeed at the first attempt."""
    agent = Answer(model=model, choose=choose)
    attempts = await attempt_all(agent, tasks, dataset.verifier, prefix="bench", clock=wiring.now)
    return sum(attempt.score.total == 1.0 for attempt in attempts) / len(tasks)


async def shop(model: Model, domain: str, train: int, held_out: int) -> dict[str, float | str]:
    """One row of the table."""
    started = time.monotonic()
    dataset = load(domain, sizes={Split.TRAIN: train, Split.HELD_OUT: held_out})
    examined = dataset.split(Split.HELD_OUT)
    told = tuple(Bullet(id=f"b-{i}", content=rule, domain=domain) for i, rule in enumerate(rules(SHOPS[domain])))
    embedder = embedders.load("hashing")
    with tempfile.TemporaryDirectory() as folder:
        tools = TrainerTools(
            generator=model,
            reflector=model,
            verifier=dataset.verifier,
            curator=Curator(embedder),
            embedder=embedder,
            clock=wiring.now,
            stamp=lambda: wiring.REPEATABLE,
            name=domain,
        )
        run = PlaybookRun.begin(Path(folder), {"name": domain}, Playbook())
        learned = await learn(dataset.split(Split.TRAIN), run, tools, LearnConfig())
    return {
        "shop": domain,
        "nothing": await share(model, dataset, examined, nothing),
        "told": await share(model, dataset, examined, lambda _: told),
        "learned": await share(model, dataset, examined, chooser(learned.playbook, embedder)),
        "bullets": len(learned.playbook.active),
        "seconds": round(time.monotonic() - started, 1),
    }


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded:base")
    parser.add_argument("--shops", nargs="*", default=list(SHOPS))
    parser.add_argument("--train", type=int, default=100)
    parser.add_argument("--held-out", type=int, default=200)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    model = load_model(given.model)
    rows = []
    print("| shop | nothing told | conventions told | learned playbook | bullets | seconds |\n|---|---|---|---|---|---|")
    for name in given.shops:
        row = await shop(model, name, given.train, given.held_out)
        rows.append(row)
        print(
            f"| {row['shop']} | {row['nothing']:.1%} | {row['told']:.1%} | {row['learned']:.1%} "
            f"| {row['bullets']} | {row['seconds']} |",
            flush=True,
        )
    kept = all(low <= float(row[kind]) <= high for row in rows for kind, (low, high) in BOUNDS.items())
    print(f"every shop within its bounds: {'yes' if kept else 'NO'}")
    if given.json:
        print(json.dumps({"model": given.model, "rows": rows, "kept": kept}))
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
