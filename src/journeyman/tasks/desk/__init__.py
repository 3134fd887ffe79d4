"""The order desk as a data set: a seeded generator of tasks for each shop, and of notes that several shops work on.

A note of the head clerk is an instruction of several steps, with the plan that does them and what each step must give.

    For Oslo: Please send three blue mugs by 5 March. Cairo desk: Quote me 12 red trays, thanks. Pass it on to Rome.
    Write a receipt for everything.

Each customer's sentence is turned into a call by that shop's clerk, which takes a model. What was written can be passed on to
another shop, whose clerk then has nothing but the first one's call to go by; sheets, totals, due dates and receipts need the
calls, and no model. Sentences, their skeletons and the notes' own skeletons are dealt to the splits by a hash.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from journeyman.core.errors import InputError, PlanError, TaskError
from journeyman.core.plan import Plan, Subtask
from journeyman.core.task import Split, Task
from journeyman.tasks.base import Dataset
from journeyman.tasks.desk.world import (
    ADDRESS_FIELDS,
    CITIES,
    COLORS,
    ITEMS,
    MONTHS,
    NUMBERS,
    SHOPS,
    YEAR,
    Desk,
    Order,
    Utterance,
    call,
    say,
    split_of,
)

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


# What the desk does with written calls, without a model: read them back, put them on a sheet, add up, see what is due.
#
# Every house's forms differ from all others, so a call can be read without knowing whose it is.

Call = Mapping[str, Any]
"""`{"shop": …, "name": …, "arguments": {…}}`."""

_WORDS = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_TOWNS = {form.casefold(): city for city, code in CITIES.items() for form in (city, code)}
_SHORT = {month[:3].lower(): number for number, month in enumerate(MONTHS, start=1)}
_URGENT = {"yes": True, "true": True, "high": True, "1": True, "no": False, "false": False, "low": False, "0": False}
_DATES: Sequence[tuple[str, Callable[[Sequence[str]], tuple[int, int]]]] = (
    (rf"{YEAR}-(\d\d)-(\d\d)", lambda found: (int(found[0]), int(found[1]))),
    (rf"(\d\d)\.(\d\d)\.{YEAR}", lambda found: (int(found[1]), int(found[0]))),
    (rf"(\d\d)/(\d\d)/{YEAR}", lambda found: (int(found[0]), int(found[1]))),
    (r"(\d{1,2})-([a-z]{3})", lambda found: (_SHORT[found[1]], int(found[0]))),
)


def parse(reply: str, shop: str) -> Call:
    """A clerk's reply as a call of its shop.

    Raises:
        TaskError: It is no JSON object with a name and arguments.
    """
    try:
        call = json.loads(reply)
    except ValueError:
        raise TaskError(f"{shop} wrote no JSON object: {reply[:60]!r}") from None
    if not (isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)):
        raise TaskError(f"{shop} wrote no call with a name and arguments: {reply[:60]!r}")
    return {"shop": shop, "name": call["name"], "arguments": call["arguments"]}


def read(call: Call) -> Order:
    """What the customer wants, from the call in whichever house's forms.

    Raises:
        TaskError: A field is written as no house writes it.
    """
    given = {name: str(value) for name, value in call["arguments"].items()}
    try:
        place = next((given[name] for name in given if name in ADDRESS_FIELDS), None)
        item, color = _sku(given["sku"])
        return Order(
            tool=str(call["name"]),
            item=item,
            color=color,
            amount=int(_only(r"\D*(\d+)\D*", given["amount"])),
            city=None if place is None else _TOWNS[place.casefold()],
            date=_date(given["date"]) if "date" in given else None,
            price=_cents(given["price"]) if "price" in given else None,
            rush=_URGENT[given["rush"]] if "rush" in given else None,
        )
    except (KeyError, ValueError) as error:
        raise TaskError(f"the call {json.dumps(call)} cannot be read: {error}") from None


def plain(order: Order) -> str:
    """The order in a customer's plain words."""
    words = ["Please quote" if order.tool == "quote" else "Please send", str(order.amount), order.color]
    words.append(ITEMS[order.item] if order.amount > 1 else order.item)
    if order.city is not None:
        words.append(f"to {order.city}")
    if order.date is not None:
        words.append(f"by {order.date[1]} {MONTHS[order.date[0] - 1]}")
    if order.price is not None:
        words.append(f"at {order.price // 100}.{order.price % 100:02d} each")
    if order.rush is not None:
        words.append("it is urgent" if order.rush else "no hurry")
    return " ".join(words) + "."


def said(call: Call) -> str:
    """A call in a customer's plain words, for another shop's clerk."""
    return plain(read(call))


def unsaid(sentence: str, call: Call) -> tuple[str, ...]:
    """Fields of a call that the sentence does not bear out, without knowing what is right: it names another item, or a date
    where nobody said one. How the house writes it is not looked at.

    Raises:
        TaskError: The call cannot be read.
    """
    order = read(call)
    words = set(_WORDS.findall(sentence.lower()))
    month, day = order.date or (0, 0)
    euros, cents = divmod(order.price or 0, 100)
    prices = {f"{euros}.{cents:02d}"} | ({str(euros)} if cents == 0 else set())
    count = NUMBERS[order.amount - 1] if 0 < order.amount <= len(NUMBERS) else ""
    borne_out = {
        "name": ("quote" in words) == (order.tool == "quote"),
        "sku": order.color in words and not words.isdisjoint((order.item, ITEMS[order.item])),
        "amount": not words.isdisjoint((str(order.amount), count)),
        "city": _borne_out(order.city, words, {city.lower() for city in CITIES}),
        "date": _borne_out(MONTHS[month - 1] if month else None, words, {name.lower() for name in MONTHS})
        and (not day or str(day) in words),
        "price": order.price is None or not words.isdisjoint(prices),
    }
    return tuple(field for field, fine in borne_out.items() if not fine)


def sheet(calls: Sequence[Call]) -> str:
    """A line for each call, as its shop wrote it."""
    return "\n".join(" | ".join([call["shop"], call["name"], *map(str, call["arguments"].values())]) for call in calls)


def total(calls: Sequence[Call]) -> str:
    """Euros of all that has a price."""
    orders = [read(call) for call in calls]
    cents = sum(order.amount * order.price for order in orders if order.price is not None)
    return f"{cents // 100}.{cents % 100:02d} EUR"


def due(calls: Sequence[Call]) -> str:
    """The shop whose call has the earliest date, the first of several, and that date; "none" where no call has one."""
    dated = [(date, at) for at, call in enumerate(calls) if (date := read(call).date) is not None]
    if not dated:
        return "none"
    (month, day), at = min(dated)
    return f"{calls[at]['shop']} on {YEAR}-{month:02d}-{day:02d}"


def receipt(sheet: str, total: str) -> str:
    """Sheet and total on one paper."""
    return f"{sheet}\n{total}"


def _borne_out(said: str | None, words: set[str], any_of: set[str]) -> bool:
    """Whether that one of its kind is named in the words; with none, that none is."""
    return said.lower() in words if said is not None else words.isdisjoint(any_of)


def _sku(text: str) -> tuple[str, str]:
    first, second = _only(r"([a-z]+)[-/.]([a-z]+)", text, groups=True)
    item, color = (second, first) if first in COLORS else (first, second)
    if item not in ITEMS or color not in COLORS:
        raise ValueError(f"no sku {text!r}")
    return item, color


def _date(text: str) -> tuple[int, int]:
    for form, parts in _DATES:
        if found := re.fullmatch(form, text):
            return parts(found.groups())
    raise ValueError(f"no date {text!r}")


def _cents(text: str) -> int:
    if re.fullmatch(r"\d+", text):
        return int(text)
    euros, cents = _only(r"(\d+)[.,](\d\d)(?: EUR)?", text, groups=True)
    return int(euros) * 100 + int(cents)


def _only(form: str, text: str, *, groups: bool = False) -> Any:
    found = re.fullmatch(form, text)
    if found is None:
        raise ValueError(f"{text!r} is written as no house writes it")
    return found.groups() if groups else found.group(1)


TOOLS: Mapping[str, tuple[str, tuple[str, ...], str]] = {
    "read": ("Says in plain words what a written call asks for", ("call",), "sentence"),
    "sheet": ("Puts calls on one sheet, a line each", ("call",), "sheet"),
    "total": ("Adds up the prices of calls", ("call",), "total"),
    "due": ("Finds which call is due first", ("call",), "due"),
    "receipt": ("Writes a receipt of a sheet and its total", ("sheet", "total"), "receipt"),
}
"""What needs no model: its description, what it takes, what it gives."""

OPENERS = (
    "", "Good morning.", "The post is in.", "Here are today's letters.", "Please see to these.", "This is for today.",
)  # fmt: skip
LEADS = ("For {shop}:", "{shop}:", "{shop} desk:", "At {shop}:", "To the {shop} desk:", "From {shop}'s customer:")
PASSES = ("Pass it on to {shop}.", "The same again for {shop}.", "Hand that to {shop} too.", "Forward it to {shop}.")
CLOSERS: Mapping[str, Sequence[str]] = {
    "sheet": (
        "Then put {all} on one sheet.",
        "Make one sheet of {all}.",
        "Fill in the sheet for {all}.",
        "I want a sheet of {all}.",
    ),
    "total": ("Add up {all}.", "Tell me the total of {all}.", "What is the sum of {all}?", "Work out the total for {all}."),
    "due": ("Which of {all} is due?", "Find the earliest date of {all}.", "Say what is due, of {all}."),
    "receipt": ("Write a receipt for {all}.", "And a receipt for {all}, please.", "Close with a receipt for {all}."),
}
EVERYTHING = ("everything", "all of them", "the lot")
BREAKS = (" ", "\n")

_MOST = 5
"""Customers in a note."""
_SHOP = "|".join(SHOPS)
_CLAUSES = re.compile(r"(?<=[.?!;])\s+|\n+")
_LEAD = re.compile(rf"(?:[a-z ]{{0,24}}\b)?({_SHOP})\b[a-z' ]{{0,20}}:\s*(.+)", re.IGNORECASE | re.DOTALL)
_NAMED = re.compile(rf"\b({_SHOP})\b", re.IGNORECASE)
_PASS = re.compile(r"\b(?:pass|same|hand|forward)\b", re.IGNORECASE)
_CLOSE = re.compile(r"\b(?:(receipt)|(sheet)|(total|add up|sum)|(due|earliest))\b", re.IGNORECASE)
_CLOSES = ("receipt", "sheet", "total", "due")
_PROPER = re.compile(rf"\b({'|'.join((*CITIES, *MONTHS))})\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Note:
    """One instruction, how it is done and what is right."""

    id: str
    split: Split
    plan: Plan
    """Who does a call is left open; the rest is done by the tools."""
    expected: Mapping[str, Any]
    """By subtask: the call as an object, or the paper as a text."""
    skeleton: str
    """The choice of phrases, without what customers and shops they are filled with. Never in two splits."""

    @property
    def text(self) -> str:
        return self.plan.instruction


def notes(split: Split, n: int, seed: int = 0) -> tuple[Note, ...]:
    """`n` different notes of a split. The same seed gives the same, and a larger `n` more of them after the same first ones."""
    chance = random.Random(f"notes {seed} {split}")
    found: dict[str, Note] = {}
    while len(found) < n:
        note = _note(chance, split, f"note-{split.value}-{seed}-{len(found):04d}")
        found.setdefault(note.text, note)
    return tuple(found.values())


def decompose(text: str) -> Plan:
    """The plan of somebody who knows the desk, by rules. Who does a call is left open.

    Raises:
        PlanError: There is no shop in it, or something that the desk does not do.
    """
    made = _Steps()
    for clause in (clause.strip() for clause in _CLAUSES.split(text)):
        if lead := _LEAD.fullmatch(clause):
            made.call(lead.group(1).lower(), _tidy(lead.group(2)))
        elif closes := _closes(clause):
            named = {shop.lower() for shop in _NAMED.findall(clause)}
            made.close(closes, named)
        elif _PASS.search(clause) and (shops := _NAMED.findall(clause)):
            for shop in shops:
                made.hand_on(shop.lower())
        elif made.calls and clause:
            raise PlanError(f"the desk does not know what to do with {clause!r}; it does {', '.join(_CLOSES)}, and passes on")
    if not made.calls:
        raise PlanError(f'no shop is named; begin each customer\'s sentence as in "For Oslo: …"; there are {", ".join(SHOPS)}')
    return Plan(instruction=text, subtasks=tuple(made.steps))


def carry_out(tool: str, inputs: Iterable[tuple[str, Any]]) -> str:
    """What a tool gives for its inputs, each with the type that it is of.

    Raises:
        TaskError: A call cannot be read.
        PlanError: There is no such tool, or it lacks an input.
    """
    given: dict[str, list[Any]] = {}
    for kind, value in inputs:
        given.setdefault(kind, []).append(value)
    if tool not in TOOLS:
        raise PlanError(f"the desk has no tool {tool!r}; there are {', '.join(TOOLS)}")
    if missing := [kind for kind in TOOLS[tool][1] if not given.get(kind)]:
        raise PlanError(f"{tool} needs a {missing[0]}, and no subtask before it gives one")
    if tool == "read":
        return said(given["call"][-1])
    if tool == "receipt":
        return receipt(given["sheet"][-1], given["total"][-1])
    return {"sheet": sheet, "total": total, "due": due}[tool](given["call"])


def expected(plan: Plan, orders: Mapping[str, Order]) -> Mapping[str, Any]:
    """What each subtask must give, when each call is for the order that is known by its id."""
    outputs: dict[str, Any] = {}
    for step in plan.subtasks:
        if step.tool:
            outputs[step.id] = carry_out(step.tool, [(plan.by_id[id].gives[0], outputs[id]) for id in step.after])
        else:
            outputs[step.id] = {"shop": step.type, **call(orders[step.id], SHOPS[step.type])}
    return outputs


@dataclass
class _Steps:
    """A plan while it is made."""

    steps: list[Subtask] = field(default_factory=list)
    calls: list[Subtask] = field(default_factory=list)
    done: dict[tuple[str, tuple[str, ...]], str] = field(default_factory=dict)
    """Which tool was used on which calls already."""

    def call(self, shop: str, sentence: str, after: tuple[str, ...] = ()) -> None:
        step = Subtask(
            id=f"call{len(self.calls) + 1}",
            text=sentence,
            type=shop,
            after=after,
            takes=("sentence",) if after else (),
            gives=("call",),
        )
        self.steps.append(step)
        self.calls.append(step)

    def hand_on(self, shop: str) -> None:
        if not self.calls:
            raise PlanError(f"nothing was written yet that could be passed on to {shop.capitalize()}")
        before = self.calls[-1]
        read = self._tool("read", (before.id,))
        self.call(shop, f"Write what {before.type.capitalize()} was asked for", (read,))

    def close(self, kinds: Sequence[str], shops: set[str]) -> None:
        """Let tools work on the calls of these shops; of all where none is named."""
        over = tuple(step.id for step in self.calls if not shops or step.type in shops)
        if not over:
            raise PlanError(f"{kinds[0]} needs calls, and none was written" + f" by {', '.join(sorted(shops))}" * bool(shops))
        for kind in kinds:
            needs = tuple(self._tool(part, over) for part in ("sheet", "total")) if kind == "receipt" else over
            self._tool(kind, needs)

    def _tool(self, tool: str, after: tuple[str, ...]) -> str:
        if (tool, after) not in self.done:
            text, takes, gives = TOOLS[tool]
            id = f"{tool}{1 + sum(step.tool == tool for step in self.steps)}"
            self.steps.append(Subtask(id=id, text=text, type=tool, tool=tool, after=after, takes=takes, gives=(gives,)))
            self.done[tool, after] = id
        return self.done[tool, after]


def _closes(clause: str) -> tuple[str, ...]:
    found = [_CLOSES[[*match.groups()].index(match.group())] for match in _CLOSE.finditer(clause)]
    return tuple(dict.fromkeys(found))


def _tidy(sentence: str) -> str:
    """As customers of the desk write: it begins large, names do too, and it ends."""
    text = _PROPER.sub(lambda match: match.group().capitalize(), sentence.strip().rstrip(";"))
    return text[0].upper() + text[1:] + ("" if text[-1] in ".?!" else ".")


def _note(chance: random.Random, split: Split, id: str) -> Note:
    while True:
        opener, lead, over, gap = chance.choice(OPENERS), chance.choice(LEADS), chance.choice(EVERYTHING), chance.choice(BREAKS)
        shape = _shape(chance)
        skeleton = "|".join((opener, lead, over, *(f"{kind}:{phrase}" for kind, phrase in shape)))
        if split_of(skeleton) is split:
            break
    steps, clauses = _Steps(), [opener] if opener else []
    orders: dict[str, Order] = {}
    for kind, phrase in shape:
        shop = chance.choice([each for each in SHOPS if not steps.calls or each != steps.calls[-1].type])
        if kind in CLOSERS:
            named = _some(chance, steps)
            steps.close([kind], named)
            clauses.append(phrase.format(all=" and ".join(each.capitalize() for each in sorted(named)) or over))
            continue
        if kind == "call":
            heard: Utterance = say(chance, split)
            steps.call(shop, heard.sentence)
            clauses.append(f"{lead.format(shop=shop.capitalize())} {heard.sentence}")
            order = heard.order
        else:
            steps.hand_on(shop)
            clauses.append(phrase.format(shop=shop.capitalize()))
        orders[steps.calls[-1].id] = order
    plan = Plan(instruction=gap.join(clauses), subtasks=tuple(steps.steps))
    return Note(id=id, split=split, plan=plan, expected=expected(plan, orders), skeleton=skeleton)


def _shape(chance: random.Random) -> list[tuple[str, str]]:
    """What is to be done in which order, and in which words."""
    shape: list[tuple[str, str]] = []
    for _ in range(chance.choices(range(1, _MOST + 1), (2, 4, 4, 2, 1))[0]):
        shape.append(("call", ""))
        if chance.random() < 0.2:
            shape.append(("pass", chance.choice(PASSES)))
    for kind in chance.choice(
        ((), ("sheet",), ("total",), ("due",), ("receipt",), ("sheet", "due"), ("total", "due"), ("receipt", "due"))
    ):
        shape.append((kind, chance.choice(CLOSERS[kind])))
    return shape


def _some(chance: random.Random, steps: _Steps) -> set[str]:
    """Two shops out of more, or none, which means all."""
    shops = sorted({step.type for step in steps.calls})
    return set(chance.sample(shops, 2)) if len(shops) > 2 and chance.random() < 0.3 else set()
