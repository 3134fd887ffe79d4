"""What learning costs whoever waits for an answer: two executors, one of which learns, with a reflector of half a minute.

    python -m benchmarks.bench_executor
    python -m benchmarks.bench_executor --quick --json

Both serve what is released and record into a store, with a skillbook of a hundred bullets; one learns from each goal, the other
is given the same goals as held out, from which nobody learns. The model is a server, which takes 20 ms for a goal and
`--reflector` seconds for a reflection. Each executor is a process of its own, and both work at the same time, a goal every
`--every` seconds, so that lessons are merged while goals are answered. What is told is the difference of the 99th percentiles,
the median over the rounds.
"""

import argparse
import asyncio
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman import create_ace_executor
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.task import Split, Task
from journeyman.optimizers.playbook import files
from journeyman.tasks.answers import Number
from tests.support.llm_server import Answer, completion, serving
from tests.support.pupil import REFLECTOR, question

ADDED_MS = 5.0
"""What an answer may take longer at the 99th percentile."""
GOAL_SECONDS = 0.02
BULLETS = 100
DOMAIN = "crates"
RULE = "Of crate {number}, whose label is {word}, count the plums and then the {word} pears, and add both before you reply."


def model(body: Mapping[str, Any], reflector: float) -> Answer:
    """It is wrong, and learns something new from each goal."""
    said = str(body["messages"])
    if REFLECTOR not in said:
        return replace(completion("I count.\nUsed: none\nAnswer: -1"), delay=GOAL_SECONDS)
    word = hashlib.sha256(said.encode()).hexdigest()[:16]
    rule = {"verdict": "helpful", "content": RULE.format(number=word[:4], word=word), "about": ""}
    return replace(completion(json.dumps({"insights": [rule], "shown": []})), delay=reflector)


async def work(url: str, goals: int, every: float, *, learns: bool) -> dict[str, Any]:
    """The seconds of each goal, and what was learned meanwhile."""
    production = Path("skillbook.json").read_bytes()
    name = f"openai:m@{url}"
    executor = create_ace_executor(
        model=name, reflector_model=name, skillbook_path="skillbook.json", verifier=Number(), agent="bench", domain=DOMAIN,
        releases=True,
    )  # fmt: skip
    seconds: list[float] = []
    split = Split.TRAIN if learns else Split.HELD_OUT
    begun = time.monotonic()
    for number in range(-5, goals):
        task = Task(id=f"g{number}", question=question(number), answer=str(number + number % 13), domain=DOMAIN, split=split)
        if number < 0:
            # What is loaded with the first goals is loaded once.
            await executor.aforward(replace(task, split=Split.HELD_OUT), session="first")
            begun = time.monotonic()
            continue
        await asyncio.sleep(max(0.0, begun + number * every - time.monotonic()))
        at = time.perf_counter()
        await executor.aforward(task, session=f"s-{number}")
        seconds.append(time.perf_counter() - at)
    learning = executor.stats.learning
    await executor.aclose(0)
    assert Path("skillbook.json").read_bytes() == production, "what is in production was changed"
    return {"seconds": seconds, "learned": learning.learned, "dropped": learning.dropped, "added": learning.added}


def skillbook(path: Path) -> None:
    words = [f"{number * 2654435761 % 2**32:08x}" for number in range(BULLETS)]
    bullets = [Bullet(id=f"b-{word}", content=RULE.format(number=word[:4], word=word), domain=DOMAIN) for word in words]
    files.save(Playbook(bullets=tuple(bullets)), path)


def one_round(url: str, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Both at the same time: what else the machine does meets both."""
    root = str(Path.cwd())
    paths = os.pathsep.join([f"{root}/src", root])
    environment = {**os.environ, "OPENAI_API_KEY": "sk-bench", "PYTHONPATH": paths}
    with tempfile.TemporaryDirectory() as folder:
        running = {}
        for name in ("off", "learning"):
            place = Path(folder) / name
            place.mkdir()
            skillbook(place / "skillbook.json")
            given = ["--work", url, "--goals", str(options.goals), "--every", str(options.every)]
            command = [sys.executable, "-m", "benchmarks.bench_executor", *given, *(["--learn"] if name == "learning" else [])]
            running[name] = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, env=environment)
        return {name: json.loads(process.communicate()[0]) for name, process in running.items()}


def percentile(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    return 1000 * sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--goals", type=int, default=200, help="of each executor in each round")
    parser.add_argument("--every", type=float, default=0.4, help="seconds from goal to goal")
    parser.add_argument("--reflector", type=float, default=30.0, help="seconds of a reflection")
    parser.add_argument("--quick", action="store_true", help="one round with a reflector of 3 s, a goal every 0.1 s")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--learn", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        print(json.dumps(asyncio.run(work(options.work, options.goals, options.every, learns=options.learn))))
        return 0
    if options.quick:
        options.rounds, options.reflector, options.every = 1, 3.0, 0.1
    with serving() as server:
        server.default = lambda body: model(body, options.reflector)
        rounds = [one_round(server.url, options) for _ in range(options.rounds)]
    sides = {name: [each[name]["seconds"] for each in rounds] for name in ("off", "learning")}
    found = {
        "reflector_seconds": options.reflector,
        "goals": options.goals * options.rounds,
        "merged": sum(each["learning"]["learned"] for each in rounds),
        "p50_ms": statistics.median(percentile(each, 0.5) for each in sides["off"]),
        "p99_ms": statistics.median(percentile(each, 0.99) for each in sides["off"]),
    }
    for name, share in (("added_p50_ms", 0.5), ("added_p99_ms", 0.99)):
        pairs = zip(sides["learning"], sides["off"], strict=True)
        differences = [percentile(learning, share) - percentile(off, share) for learning, off in pairs]
        found |= {name: statistics.median(differences), f"{name}_worst": max(differences)}
    kept = found["added_p99_ms"] <= ADDED_MS and found["merged"] > 0
    if options.json:
        print(json.dumps({**found, "passed": kept}))
        return 0 if kept else 1
    print(
        f"{found['goals']} goals, a reflector of {options.reflector:g} s: p50 {found['p50_ms']:.1f} ms "
        f"{found['added_p50_ms']:+.2f}, p99 {found['p99_ms']:.1f} ms {found['added_p99_ms']:+.2f} (worst of "
        f"{options.rounds} rounds {found['added_p99_ms_worst']:+.2f}) where it learns; {found['merged']} were learned meanwhile"
    )
    print(f"budget: {ADDED_MS:g} ms at the 99th percentile: {'kept' if kept else 'broken'}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
