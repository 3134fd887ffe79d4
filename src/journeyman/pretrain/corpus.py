"""What the embedded model is trained on: clerks who obey the rules in their context, and reflectors who read error messages.

Houses are drawn at random, so the model learns to obey conventions and not which shop has which.
"""

import json
import random
from dataclasses import dataclass

from journeyman.agents.prompts import terse_rules
from journeyman.task import Split
from journeyman.tasks.desk.sentences import say
from journeyman.tasks.desk.verify import faults
from journeyman.tasks.desk.world import ADDRESS, CONVENTIONS, TOWNS, Convention, House, Order, call

HABIT = 0.7
"""How often a clerk who was told nothing writes the usual form. The rest is spread over the other forms, so that sampling
finds them: without that, reinforcement learning would have nothing to reinforce."""


@dataclass(frozen=True, slots=True)
class CorpusSample:
    """One exchange; only the reply is learned."""

    system: str
    user: str
    reply: str

    @property
    def prompt(self) -> str:
        """As the model's chat template renders it, with the turn of the assistant begun."""
        return f"<|im_start|>system\n{self.system}<|im_end|>\n<|im_start|>user\n{self.user}<|im_end|>\n<|im_start|>assistant\n"


def clerk(chance: random.Random, split: Split = Split.TRAIN, told: int | None = None) -> CorpusSample:
    """An order, some conventions in random order and wording, and the call that obeys them.

    Args:
        told: How many conventions stand in the context; drawn when not given, all of them in a quarter of the samples.
    """
    if told is None:
        told = len(CONVENTIONS) if chance.random() < 0.25 else chance.randint(0, len(CONVENTIONS))
    spoken = say(chance, split)
    known = chance.sample(CONVENTIONS, told)
    house = {c.about: chance.randrange(len(c.values)) if c in known or chance.random() > HABIT else 0 for c in CONVENTIONS}
    rules = [_worded(chance, c, house) for c in known]
    return CorpusSample(terse_rules(rules), spoken.sentence, _compact(call(spoken.order, house)))


def habit(chance: random.Random, split: Split = Split.TRAIN) -> CorpusSample:
    """The clerk who was told nothing and writes everything in the usual form: a fixed answer to measure by."""
    spoken = say(chance, split)
    return CorpusSample(terse_rules(()), spoken.sentence, _compact(call(spoken.order, {})))


def reflector(chance: random.Random, split: Split = Split.TRAIN, *, towns: float = 0.0) -> CorpusSample:
    """An error message with one to all of the fields wrong, and the rules that it teaches.

    Args:
        towns: How often a city, where there is one, is wrong for sure: sixteen cities in four forms are the slowest to learn.
    """
    spoken = say(chance, split)
    if chance.random() < 0.02:
        return CorpusSample("reflect", "\n".join([spoken.sentence, *faults("", {})]), "- none")
    house = {c.about: chance.randrange(len(c.values)) for c in CONVENTIONS}
    present = [c for c in CONVENTIONS if _applies(c, spoken.order)]
    wrong = chance.sample(present, chance.randint(1, len(present)))
    if towns and TOWNS in present and chance.random() < towns:
        wrong.append(TOWNS)
    attempted = {c.about: _other(chance, c, house) if c in wrong else house[c.about] for c in CONVENTIONS}
    got = call(spoken.order if chance.random() > 0.1 else say(chance, split).order, attempted)
    evidence = faults(json.dumps(got), call(spoken.order, house))
    return CorpusSample("reflect", "\n".join([spoken.sentence, *evidence]), "\n".join(_lessons(evidence, house)))


def _lessons(evidence: list[str], house: House) -> list[str]:
    """The rule behind each line that shows a right value, in the order of the lines."""
    lessons: list[str] = []
    for fault in evidence:
        field = fault.split(":")[0]
        if "unknown field, expected" in fault:
            taught = [ADDRESS]
        elif "expected" not in fault:
            taught = []
        else:
            names = {value.write(None) for value in ADDRESS.values}  # type: ignore[arg-type]
            taught = [TOWNS] if field in names else [c for c in CONVENTIONS if c.field == field]
        lessons += [f"- {c.values[house[c.about]].rules[0]}" for c in taught]
    return lessons or ["- none"]


def _applies(convention: Convention, order: Order) -> bool:
    value = getattr(order, {"sku": "item"}.get(convention.field, convention.field))
    return value is not None


def _other(chance: random.Random, convention: Convention, house: House) -> int:
    return chance.choice([i for i in range(len(convention.values)) if i != house[convention.about]])


def _worded(chance: random.Random, convention: Convention, house: House) -> str:
    words = convention.values[house[convention.about]].rules
    return words[0] if chance.random() < 0.7 else chance.choice(words)


def _compact(call: dict[str, object]) -> str:
    return json.dumps(call, separators=(",", ":"))
