"""What training itself costs per example, beside what the models take: a scripted model that answers at once, store on.

    python benchmarks/bench_trainer.py [--examples 1000] [--bullets 0 100 1000] [--json]

CPU milliseconds of this process for each example: prompts, votes, curating, journal, metrics, checkpoints and the SQLite store,
without the final evaluation. Every example is reflected on. The playbook is there from the beginning, so that its size is
what is varied; every tenth reflection brings a bullet that is new. Budget: 5 ms, with an empty playbook to begin with.
"""

import argparse
import cProfile
import json
import os
import pstats
import random
import sys
import tempfile
import time
from pathlib import Path

from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Task
from journeyman.experiments import wiring
from journeyman.experiments.playbook import training
from journeyman.models.base import Model, ModelRequest
from journeyman.models.scripted import Scripted
from journeyman.optimizers.playbook import files

BUDGET_MS = 5.0
SYLLABLES = ("ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "tu", "va", "ze")


def word(chance: random.Random) -> str:
    """Some words are on everybody's lips, most are rare: Zipf's law, over a vocabulary of some 1,700."""
    rank = int(12 ** (3 * chance.random()))
    return "".join(SYLLABLES[rank // base % 12] for base in (144, 12, 1))


def strategy(number: int) -> str:
    """A sentence of as many words as learned strategies have, always the same for a number."""
    chance = random.Random(number)
    said = [word(chance) for _ in range(12)]
    return f"When the {said[0]} is given, check the {' '.join(said[1:6])} before you {' '.join(said[6:])}."


def tasks(count: int) -> list[Task]:
    return [
        Task(id=f"t{n}", question=f"A shop sells {n} mugs at {n % 7} euros. What does it earn?", answer=str(n * (n % 7)))
        for n in range(count)
    ]


def model() -> Model:
    """Answers at once; as a reflector it writes something new one time in ten."""
    reflections = 0

    def say(request: ModelRequest) -> str:
        nonlocal reflections
        if request.schema is None:
            return "It is simple.\nUsed: none\nAnswer: 42"
        reflections += 1
        new = strategy(100_000 + reflections // 10)
        return json.dumps({"insights": [{"verdict": "helpful", "content": new, "about": ""}], "shown": []})

    made = Scripted(say)
    # Thousands of requests are not to be kept.
    made.requests = _Forgetful()
    return made


class _Forgetful(list[ModelRequest]):
    def append(self, _: ModelRequest) -> None:
        pass


def trained(examples: int, bullets: int) -> float:
    """CPU seconds of one run."""
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        initial = Playbook(bullets=tuple(Bullet(id=f"b-{n:012x}", content=strategy(n)) for n in range(bullets)))
        files.save(initial, "initial.json")
        trainer = training.create_offline_trainer(
            dataset_name="custom", num_examples=examples, generator_model="scripted", evaluate=False
        )
        trainer._custom_examples = tasks(examples)
        run = trainer.begin("initial.json")
        started = time.process_time()
        trainer.finish(run)
        return time.process_time() - started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--bullets", type=int, nargs="+", default=[0, 100, 1000])
    parser.add_argument("--profile", action="store_true", help="show where the time goes")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    wiring.connect = lambda name, **_: model()
    home = Path.cwd()
    trained(20, 0)  # What is imported on first use is not an example's cost.
    profile = cProfile.Profile()
    if options.profile:
        profile.enable()
    found = {bullets: 1000 * trained(options.examples, bullets) / options.examples for bullets in options.bullets}
    profile.disable()
    os.chdir(home)
    if options.profile:
        pstats.Stats(profile).sort_stats("cumulative").print_stats(45)
    within = found[min(found)] < BUDGET_MS
    if options.json:
        print(json.dumps({"cpu_ms_per_example": found, "budget_ms": BUDGET_MS, "passed": within}))
        return 0 if within else 1
    for bullets, cost in found.items():
        print(f"{options.examples} examples from {bullets:5} bullets: {cost:7.2f} ms CPU each {cost / found[min(found)]:6.1f}x")
    print(f"budget from {min(found)} bullets: {BUDGET_MS:.0f} ms, {'kept' if within else 'broken'}")
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
