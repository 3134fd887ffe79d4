"""What it costs to choose bullets for a prompt and to write it, while the playbook grows.

    python benchmarks/bench_prompt.py            # a table
    python benchmarks/bench_prompt.py --json     # one object

The playbook has 10,000 bullets, about 200 of which contradict another, and is embedded by `hashing`. "whole" reads it for the
first time, "revision" is the first prompt after a batch of 100 changes (of them 50 new bullets), and "prompt" any other: the
best ten bullets chosen and rendered. Medians but for the whole. Set OMP_NUM_THREADS=1 to see one core.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

from journeyman.agents.answer import answer
from journeyman.core.playbook import Add, Batch, Bullet, Delta, Playbook, Vote, bullet_id
from journeyman.core.task import Task
from journeyman.models import embedders
from journeyman.optimizers.playbook.retrieval import Chooser, tokens

LIMITS = {"revision": 0.05, "prompt": 0.02}
"""Seconds."""


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def word(number: int) -> str:
    return "".join("abcdefghij"[int(digit)] for digit in str(number))


def bullet(number: int) -> Bullet:
    words = " ".join(word((number * 31 + place * 17) % 997 + 1000) for place in range(8))
    # Every hundredth says the opposite of the one before it.
    least = number - (number % 100 == 1)
    text = f"{'Never' if least < number else 'Always'} check {word(least + 5000)} when the order mentions {words}."
    if least < number:
        text = bullet(least).content.replace("Always", "Never")
    return Bullet(id=bullet_id("general", text), content=text)


def rendering(size: int, rounds: int = 5) -> dict[str, float]:
    playbook = Playbook(bullets=tuple(map(bullet, range(size))))
    chooser = Chooser(embedders.load("hashing"), budget=10 * tokens(playbook.bullets[0]))

    def prompt(playbook: Playbook, number: int) -> object:
        question = f"Does the order mention {word(number % 997 + 1000)} and {word(number % 991 + 1000)}?"
        task = Task(id="t", question=question)
        return answer(task, chooser.of(playbook)(task), "full")

    whole = seconds(lambda: prompt(playbook, 0))
    revisions, prompts = [], []
    for turn in range(rounds):
        new: list[Delta] = [Add(bullet=bullet(size + turn * 50 + number)) for number in range(50)]
        votes = [Vote(bullet_id=playbook.bullets[turn * 50 + number].id, helpful=1) for number in range(50)]
        playbook = playbook.apply(Batch(id=str(turn), deltas=(*new, *votes)))
        revisions.append(seconds(lambda now=playbook: prompt(now, 0)))  # type: ignore[misc]
        prompts += [seconds(lambda now=playbook, number=number: prompt(now, number)) for number in range(1, 20)]  # type: ignore[misc]
    return {"bullets": size, "whole": whole, "revision": statistics.median(revisions), "prompt": statistics.median(prompts)}


def main() -> None:
    parser = argparse.ArgumentParser(description="What choosing bullets for a prompt costs.")
    parser.add_argument("--json", action="store_true", help="print one object instead of a table")
    options = parser.parse_args()
    found = rendering(10_000)
    if options.json:
        print(json.dumps({**found, "limits": LIMITS}))
        return
    print(f"reading a playbook with {found['bullets']:,} bullets for the first prompt: {found['whole']:.2f} s")
    print(
        f"the first prompt after a batch of 100 changes: {found['revision'] * 1e3:.1f} ms (limit {LIMITS['revision'] * 1e3:g})"
    )
    each = f"{found['prompt'] * 1e3:.1f} ms (limit {LIMITS['prompt'] * 1e3:g})"
    print(f"rendering a prompt with {found['bullets']:,} bullets in the playbook: {each}")


if __name__ == "__main__":
    main()
