"""A small world with something to route: one worker is good at sums, the other at verses, a third is dear and good at both."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RIGHT = {"counter": (0.85, 0.2), "poet": (0.2, 0.85), "sage": (0.98, 0.98)}
"""By worker, how often it is right at sums and at verses."""
COST = {"counter": 0.001, "poet": 0.001, "sage": 0.02}
_THINGS = ("apples", "mugs", "ships", "stars", "coins", "horses", "letters", "roses")


def lines(count: int, seed: int = 0) -> Iterator[dict[str, Any]]:
    """Wide rows of outcomes, sums and verses by turns."""
    draw = random.Random(seed)
    for at in range(count):
        one, other = draw.sample(_THINGS, 2)
        kind = at % 2
        ask = (
            f"How many are {draw.randrange(1000)} {one} plus {draw.randrange(1000)} {other}? Compute the sum.",
            f"Write verse number {draw.randrange(1000)} about {one} that dream of {other}, with a rhyme.",
        )[kind]
        yield {
            "request": ask,
            "type": ("sum", "verse")[kind],
            "outcomes": {
                name: {"success": int(draw.random() < RIGHT[name][kind]), "cost": COST[name], "seconds": 0.5 + draw.random()}
                for name in RIGHT
            },
        }


def write(path: Path, count: int, seed: int = 0) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines(count, seed)))
    return path
