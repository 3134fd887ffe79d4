"""Examples made from examples: said otherwise, a part of the plan, another tool of the same types.

They keep the group of what they were made from, so they never lie in another split, and are marked as synthetic.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from journeyman.learn.planner.base import Example
from journeyman.learn.planner.cards import words
from journeyman.learn.planner.encode import clauses
from journeyman.learn.planner.memory import group_of
from journeyman.plan import Plan
from journeyman.policy import Card

_OPENINGS = (
    "Please {0}",
    "I need you to {0}",
    "Could you {0}?",
    "Can you help me with this: {0}",
    "My task: {0}",
    "{0} Thanks in advance.",
    "Hi, {0}",
    "I would like you to {0}",
)
_LINK = re.compile(r"^(?:first|then|finally|next|lastly|after that|additionally|also),?\s+", re.IGNORECASE)
_POLITE = re.compile(r"^(?:please|could you|can you|i need you to|i would like you to|i want you to|help me)\s+", re.IGNORECASE)

Maker = Callable[[Example, Sequence[Card], random.Random], Example | None]


def augmented(examples: Sequence[Example], tools: Sequence[Card], most: int, seed: int = 0) -> list[Example]:
    """At most so many synthetic examples, made by turns in the three ways from examples that are not synthetic themselves."""
    real = [example for example in examples if not example.synthetic]
    chance = random.Random(seed)
    made: list[Example] = []
    seen = {example.plan.instruction for example in examples}
    makers: Sequence[Maker] = (_said_otherwise, _part, _swapped)
    # Not every way fits every example: as many tries as could be needed, then it is enough.
    for at in range(3 * most + 60 if real else 0):
        if len(made) == most:
            break
        found = makers[at % len(makers)](chance.choice(real), tools, chance)
        if found is not None and found.plan.instruction not in seen:
            seen.add(found.plan.instruction)
            made.append(found)
    return made


def _of(example: Example, plan: Plan) -> Example:
    return replace(example, plan=plan, group=group_of(example), synthetic=True)


def _said_otherwise(example: Example, tools: Sequence[Card], chance: random.Random) -> Example | None:
    said = _POLITE.sub("", example.plan.instruction.strip())
    if not said:
        return None
    opening = chance.choice(_OPENINGS)
    inside = not opening.startswith("{0}")
    lowered = said[0].lower() + said[1:] if inside and not said[:2].isupper() and said[:2] != "I " else said
    return _of(example, replace(example.plan, instruction=opening.format(lowered.rstrip(".?!") if "?" in opening else lowered)))


def _part(example: Example, tools: Sequence[Card], chance: random.Random) -> Example | None:
    """A step and all that it needs, asked for by those clauses that name them; only where the clauses can be told apart."""
    plan, parts = example.plan, clauses(example.plan.instruction)
    if len(plan.subtasks) < 2 or len(parts) != len(plan.subtasks):
        return None
    last = chance.choice(plan.subtasks)
    kept = {last.id}
    for subtask in reversed(plan.subtasks):
        if subtask.id in kept:
            kept.update(subtask.after)
    if len(kept) == len(plan.subtasks):
        return None
    at = [place for place, subtask in enumerate(plan.subtasks) if subtask.id in kept]
    said = [_LINK.sub("", parts[place]) for place in at]
    instruction = ". ".join(part[:1].upper() + part[1:] for part in said) + "."
    part = Plan(instruction=instruction, subtasks=tuple(plan.subtasks[place] for place in at))
    return replace(_of(example, part), cost=None, seconds=None)


def _swapped(example: Example, tools: Sequence[Card], chance: random.Random) -> Example | None:
    """Another tool that takes and gives the same, where the instruction names the first one by its words."""
    known = {card.name: card for card in tools}
    said = example.plan.instruction.lower()
    named = [subtask for subtask in example.plan.subtasks if subtask.tool in known and words(subtask.tool) in said]
    if not named:
        return None
    subtask = chance.choice(named)
    old = known[subtask.tool]
    alike = [card for card in tools if (card.takes, card.gives) == (old.takes, old.gives) and card.name != old.name]
    if not alike or not (old.takes or old.gives):
        return None
    new = chance.choice(alike)
    at = said.index(words(old.name))
    instruction = example.plan.instruction[:at] + words(new.name) + example.plan.instruction[at + len(words(old.name)) :]
    subtasks = tuple(replace(each, tool=new.name) if each.tool == old.name else each for each in example.plan.subtasks)
    return replace(_of(example, Plan(instruction=instruction, subtasks=subtasks)), cost=None, seconds=None)
