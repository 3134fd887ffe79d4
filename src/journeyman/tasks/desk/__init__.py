"""The order desk as a data set: a seeded generator of tasks for each shop."""

import json
import random
from collections.abc import Mapping

from journeyman.core.errors import InputError
from journeyman.core.task import Split, Task
from journeyman.tasks.base import Dataset
from journeyman.tasks.desk.world import SHOPS, Desk, call, say

INSTRUCTIONS = """\
You are the clerk of an order desk. Turn the customer's sentence into one tool call and reply with that JSON object alone:
{"name": "order" or "quote", "arguments": {"sku": ..., "amount": ..., "city": ..., "date": ..., "price": ..., "rush": ...}}
Every value is a string. Leave out what the customer does not say. The year is 2026. A sku joins item and color; the price is \
for one piece; rush says whether it is urgent. The shop has house conventions on how each field is written and named; follow \
those you know."""

SIZES: Mapping[Split, int] = {Split.TRAIN: 400, Split.VALIDATION: 100, Split.HELD_OUT: 400}


def load(domain: str, *, sizes: Mapping[Split, int] = SIZES, seed: int = 0) -> Dataset:
    """The tasks of one shop.

    The same seed gives the same tasks, and a larger size more of them after the same first ones. No sentence, skeleton or
    combination of item, color and city stands in two splits.

    Raises:
        InputError: There is no such shop.
    """
    if not domain:
        raise InputError(f"the desk needs the name of a shop, such as --domain oslo; there are {', '.join(SHOPS)}")
    if domain not in SHOPS:
        raise InputError(f"no shop {domain!r} at the desk; there are {', '.join(SHOPS)}")
    tasks = [task for split, size in sizes.items() for task in _tasks(domain, split, size, seed)]
    return Dataset(name=f"desk:{domain}", tasks=tuple(tasks), verifier=Desk())


def _tasks(domain: str, split: Split, size: int, seed: int) -> list[Task]:
    chance = random.Random(f"{seed} {domain} {split}")
    found: dict[str, Task] = {}
    while len(found) < size:
        said = say(chance, split)
        found.setdefault(
            said.sentence,
            Task(
                id=f"{domain}-{split.value}-{len(found):04d}",
                question=said.sentence,
                answer=json.dumps(call(said.order, SHOPS[domain])),
                domain=domain,
                split=split,
                instructions=INSTRUCTIONS,
            ),
        )
    return list(found.values())
