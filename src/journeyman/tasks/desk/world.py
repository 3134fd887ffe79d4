"""The order desk: what a customer can want, and the house conventions of the shops.

A small closed world: a customer's sentence is to be turned into one tool call. What the sentence does not tell is how this
shop writes dates, prices, cities and so on. That is what there is to learn.
"""

import json
import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from journeyman.core.score import Reward
from journeyman.core.task import Split, Task
from journeyman.core.trace import Trace

ITEMS: Mapping[str, str] = {
    "mug": "mugs", "lamp": "lamps", "chair": "chairs", "table": "tables", "plate": "plates", "bowl": "bowls",
    "towel": "towels", "pillow": "pillows", "basket": "baskets", "candle": "candles", "clock": "clocks", "mirror": "mirrors",
    "blanket": "blankets", "bottle": "bottles", "tray": "trays", "vase": "vases",
}  # fmt: skip
"""Singular, as in a SKU, to plural, as customers say it."""

COLORS = ("blue", "red", "green", "white", "black", "yellow", "grey", "brown", "pink", "orange")

CITIES: Mapping[str, str] = {
    "Oslo": "OSL", "Lima": "LIM", "Cairo": "CAI", "Paris": "PAR", "Tokyo": "TYO", "Delhi": "DEL", "Rome": "ROM",
    "Quito": "UIO", "Seoul": "SEL", "Dakar": "DKR", "Vienna": "VIE", "Madrid": "MAD", "Boston": "BOS", "Dublin": "DUB",
    "Lagos": "LOS", "Perth": "PER",
}  # fmt: skip
"""Name to the three-letter code of its airports."""

MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
YEAR = 2026
"""The desk's year; customers never say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What one customer wants. `None` is what the sentence leaves out, and the call then leaves out too."""

    tool: str
    """`order` or `quote`."""
    item: str
    color: str
    amount: int
    """1 to 99."""
    city: str | None = None
    date: tuple[int, int] | None = None
    """Month and day."""
    price: int | None = None
    """Cents of a euro for one piece."""
    rush: bool | None = None


@dataclass(frozen=True, slots=True)
class Value:
    """One way to obey a convention."""

    rules: tuple[str, ...]
    """How the rule is worded; the first is what the embedded model's reflector writes."""
    write: Callable[[Order], str]


@dataclass(frozen=True, slots=True)
class Convention:
    about: str
    """What the rule is about: the word before the colon."""
    field: str
    """The field of the call that it shapes; the convention on addresses shapes a field's name."""
    values: tuple[Value, ...]
    """The first is the habit of a clerk who was told nothing."""


def _worded(about: str, rule: str, *others: str) -> tuple[str, ...]:
    return (f"{about}: {rule}", *others)


def _date(order: Order) -> tuple[int, int]:
    assert order.date is not None
    return order.date


def _euros(order: Order, point: str) -> str:
    assert order.price is not None
    return f"{order.price // 100}{point}{order.price % 100:02d}"


DATES = Convention(
    "dates",
    "date",
    (
        Value(
            _worded("dates", "year first, with dashes", "write the year first in dates and use dashes"),
            lambda o: f"{YEAR}-{_date(o)[0]:02d}-{_date(o)[1]:02d}",
        ),
        Value(
            _worded("dates", "day first, with dots", "write the day first in dates and use dots"),
            lambda o: f"{_date(o)[1]:02d}.{_date(o)[0]:02d}.{YEAR}",
        ),
        Value(
            _worded("dates", "month first, with slashes", "write the month first in dates and use slashes"),
            lambda o: f"{_date(o)[0]:02d}/{_date(o)[1]:02d}/{YEAR}",
        ),
        Value(
            _worded("dates", "day and short month", "write only the day and the short month in dates"),
            lambda o: f"{_date(o)[1]}-{MONTHS[_date(o)[0] - 1][:3].lower()}",
        ),
    ),
)
PRICES = Convention(
    "prices",
    "price",
    (
        Value(
            _worded("prices", "in euros, with a point", "write prices in euros and use a point"),
            lambda o: _euros(o, "."),
        ),
        Value(
            _worded("prices", "in cents", "write prices as a number of cents"),
            lambda o: str(o.price),
        ),
        Value(
            _worded("prices", "in euros, with a comma", "write prices in euros and use a comma"),
            lambda o: _euros(o, ","),
        ),
        Value(
            _worded("prices", "with the currency behind", "write the currency behind prices"),
            lambda o: _euros(o, ".") + " EUR",
        ),
    ),
)
TOWNS = Convention(
    "cities",
    "city",
    (
        Value(
            _worded("cities", "first letter large", "write cities with a large first letter"),
            lambda o: str(o.city),
        ),
        Value(
            _worded("cities", "small letters", "write cities in small letters"),
            lambda o: str(o.city).lower(),
        ),
        Value(
            _worded("cities", "capital letters", "write cities in capital letters"),
            lambda o: str(o.city).upper(),
        ),
        Value(
            _worded("cities", "three letter code", "write the three letter code for cities"),
            lambda o: CITIES[str(o.city)],
        ),
    ),
)
SKUS = Convention(
    "skus",
    "sku",
    (
        Value(
            _worded("skus", "item then color, with a dash", "write skus as item then color and use a dash"),
            lambda o: f"{o.item}-{o.color}",
        ),
        Value(
            _worded("skus", "color then item, with a dash", "write skus as color then item and use a dash"),
            lambda o: f"{o.color}-{o.item}",
        ),
        Value(
            _worded("skus", "item then color, with a slash", "write skus as item then color and use a slash"),
            lambda o: f"{o.item}/{o.color}",
        ),
        Value(
            _worded("skus", "color then item, with a dot", "write skus as color then item and use a dot"),
            lambda o: f"{o.color}.{o.item}",
        ),
    ),
)
AMOUNTS = Convention(
    "amounts",
    "amount",
    (
        Value(_worded("amounts", "plain number", "write amounts as a plain number"), lambda o: str(o.amount)),
        Value(_worded("amounts", "three digits", "write amounts in three digits"), lambda o: f"{o.amount:03d}"),
        Value(_worded("amounts", "with pcs behind", "write pcs behind amounts"), lambda o: f"{o.amount} pcs"),
        Value(_worded("amounts", "with an x in front", "write an x in front of amounts"), lambda o: f"x{o.amount}"),
    ),
)
RUSH = Convention(
    "rush",
    "rush",
    (
        Value(_worded("rush", "yes or no", "write yes or no for rush"), lambda o: "yes" if o.rush else "no"),
        Value(_worded("rush", "true or false", "write true or false for rush"), lambda o: "true" if o.rush else "false"),
        Value(_worded("rush", "high or low", "write high or low for rush"), lambda o: "high" if o.rush else "low"),
        Value(_worded("rush", "one or zero", "write one or zero for rush"), lambda o: "1" if o.rush else "0"),
    ),
)
ADDRESS = Convention(
    "address",
    "city",
    (
        Value(_worded("address", "call the field city", "use city as the field of the address"), lambda _: "city"),
        Value(_worded("address", "call the field town", "use town as the field of the address"), lambda _: "town"),
        Value(_worded("address", "call the field place", "use place as the field of the address"), lambda _: "place"),
        Value(_worded("address", "call the field dest", "use dest as the field of the address"), lambda _: "dest"),
    ),
)
CONVENTIONS = (SKUS, AMOUNTS, ADDRESS, TOWNS, DATES, PRICES, RUSH)
"""In the order of the call's fields. Any value of one goes with any value of another."""

House = Mapping[str, int]
"""The conventions of one shop: about → the place of the value in `Convention.values`."""

SHOPS: Mapping[str, House] = {
    "oslo": {"skus": 0, "amounts": 0, "address": 2, "cities": 2, "dates": 1, "prices": 1, "rush": 2},
    "lima": {"skus": 0, "amounts": 2, "address": 1, "cities": 1, "dates": 2, "prices": 2, "rush": 0},
    "cairo": {"skus": 2, "amounts": 3, "address": 0, "cities": 3, "dates": 3, "prices": 0, "rush": 3},
    "paris": {"skus": 0, "amounts": 0, "address": 3, "cities": 2, "dates": 1, "prices": 2, "rush": 1},
    "tokyo": {"skus": 3, "amounts": 1, "address": 0, "cities": 0, "dates": 0, "prices": 3, "rush": 3},
    "delhi": {"skus": 0, "amounts": 0, "address": 1, "cities": 3, "dates": 2, "prices": 1, "rush": 2},
    "rome": {"skus": 1, "amounts": 1, "address": 2, "cities": 1, "dates": 3, "prices": 3, "rush": 1},
    "quito": {"skus": 2, "amounts": 2, "address": 3, "cities": 2, "dates": 1, "prices": 0, "rush": 0},
}
"""Domain to house conventions. The embedded model has not seen them: it was trained on houses drawn at random."""


def call(order: Order, house: House) -> dict[str, object]:
    """The tool call that this house wants for the order; an absent convention means its first value."""

    def written(convention: Convention) -> str:
        return convention.values[house.get(convention.about, 0)].write(order)

    arguments = {"sku": written(SKUS), "amount": written(AMOUNTS)}
    if order.city is not None:
        arguments[written(ADDRESS)] = written(TOWNS)
    if order.date is not None:
        arguments["date"] = written(DATES)
    if order.price is not None:
        arguments["price"] = written(PRICES)
    if order.rush is not None:
        arguments["rush"] = written(RUSH)
    return {"name": order.tool, "arguments": arguments}


def rules(house: House) -> tuple[str, ...]:
    """The house's conventions as a playbook would say them."""
    return tuple(c.values[house[c.about]].rules[0] for c in CONVENTIONS if c.about in house)


# The desk's API: it takes a tool call or says what is wrong with it, every wrong field of it.

ADDRESS_FIELDS = frozenset(value.write(None) for value in ADDRESS.values)  # type: ignore[arg-type]


class Desk:
    """Verifies a tool call field by field."""

    deterministic = True

    async def verify(self, task: Task, trace: Trace) -> Reward:
        wrong = faults(trace.reply, json.loads(task.answer))
        return Reward(name="desk", value=0.0 if wrong else 1.0, evidence="\n".join(wrong))

    async def grade(self, task: Task, trace: Trace) -> Reward:
        """The share of what had to be right that is: the call's name and each argument, its name and its value."""
        expected = json.loads(task.answer)
        wrong = faults(trace.reply, expected)
        return Reward(name="desk fields", value=_share(wrong, 1 + len(expected["arguments"])), evidence="\n".join(wrong))


def _share(wrong: Sequence[str], parts: int) -> float:
    if any(line.startswith("call:") for line in wrong):
        return 0.0
    # An argument under a wrong name and with a wrong value has two lines.
    return max(0.0, 1 - len(wrong) / (parts + 1))


def faults(reply: str, expected: Mapping[str, object]) -> list[str]:
    """What the API would answer, a line for each wrong field; nothing when the call is right."""
    try:
        call = json.loads(reply)
    except ValueError:
        return ["call: not a JSON object"]
    if not isinstance(call, dict) or not isinstance(call.get("arguments"), dict):
        return ["call: not a JSON object"]
    lines = []
    if call.get("name") != expected["name"]:
        lines.append(_differs("name", expected["name"], call.get("name")))
    return lines + compare(call["arguments"], expected["arguments"])  # type: ignore[arg-type]


def compare(got: Mapping[str, object], expected: Mapping[str, object]) -> list[str]:
    """The wrong fields of a call's arguments, in the order of the expected ones."""
    lines = []
    for field, value in expected.items():
        if field in got:
            if got[field] != value:
                lines.append(_differs(field, value, got[field]))
            continue
        if field in ADDRESS_FIELDS and (strange := [name for name in got if name in ADDRESS_FIELDS]):
            lines.append(f'{strange[0]}: unknown field, expected "{field}"')
            if got[strange[0]] != value:
                lines.append(_differs(field, value, got[strange[0]]))
            continue
        lines.append(f'{field}: missing, expected "{value}"')
    known = set(expected) | (ADDRESS_FIELDS if ADDRESS_FIELDS & set(expected) else frozenset())
    return lines + [f"{field}: unknown field" for field in got if field not in known]


def _differs(field: str, expected: object, got: object) -> str:
    return f'{field}: expected "{expected}", got "{got}"'


# What customers say: a grammar of some ten thousand sentence skeletons, split so that held-out ones are new.
#
# A skeleton is the choice of phrases and their order, with the words left open. Skeletons and combinations of item, color and
# city are dealt to the splits by a hash: a held-out sentence has a skeleton *and* a combination that no training sentence has.

ORDER_OPENERS = (
    "", "please send", "send", "we need", "we want", "I need", "I want", "I would like", "we would like", "can you send",
    "could you send", "please ship", "please order", "order", "hello, we need", "hello, I want", "hi, please send",
    "good morning, we need", "good day, I would like", "this is an order for", "put me down for",
    "we are out of stock and need",
)  # fmt: skip
QUOTE_OPENERS = (
    "please quote", "can you quote", "could you quote", "give us a quote for", "I want a quote for", "we need a quote for",
    "hello, please quote", "hi, can you quote", "quote me",
)  # fmt: skip
CORES = (
    "{amount} {color} {items}", "{amount} {items} in {color}", "{amount} of the {color} {items}",
    "{color} {items}, {amount} of them",
    "{items} in {color}, {amount} of them", "{amount} of these {color} {items}", "{amount} of your {color} {items}",
)  # fmt: skip
TO_CITY = (
    "to {city}",
    "for {city}",
    "for our shop in {city}",
    "to our house in {city}",
    "delivered to {city}",
    "shipped to {city}",
    "for a customer in {city}",
)
BY_DATE = (
    "by {day} {month}", "by {month} {day}", "before {day} {month}", "on {month} {day}", "on {day} {month}",
    "by the {day} of {month}",
    "not later than {day} {month}", "before {month} {day}",
)  # fmt: skip
AT_PRICE = (
    "at {price} each",
    "for {price} each",
    "at {price} a piece",
    "at a price of {price}",
    "for {price} per piece",
    "at {price} euros each",
    "for {price} euros per piece",
)
IN_RUSH = ("it is urgent", "this is urgent", "as fast as you can", "in a hurry", "quickly", "with express")
NO_RUSH = ("no hurry", "there is no hurry", "it is not urgent", "take your time", "whenever you can", "without express")
CLOSERS = ("", "", "please", "thanks", "thank you", "many thanks")

HELD_OUT, VALIDATION, BUCKETS = 20, 30, 100
"""Buckets below 20 are held out, 20 to 29 are validation, the rest is for training."""


@dataclass(frozen=True, slots=True)
class Utterance:
    sentence: str
    order: Order


def say(chance: random.Random, split: Split) -> Utterance:
    """One sentence of a split and what the customer means by it."""
    while True:
        order = _order(chance)
        if split_of(f"{order.item} {order.color} {order.city}") is split:
            break
    while True:
        opener, core, parts, closer = _skeleton(chance, order)
        skeleton = "|".join((opener, core, *parts, closer))
        if split_of(skeleton) is split:
            break
    words = {
        "item": order.item,
        "items": ITEMS[order.item] if order.amount > 1 else order.item,
        "color": order.color,
        "amount": NUMBERS[order.amount - 1] if order.amount <= len(NUMBERS) and chance.random() < 0.6 else str(order.amount),
        "city": order.city,
        "price": _price(order.price, chance),
        "day": order.date and order.date[1],
        "month": order.date and MONTHS[order.date[0] - 1],
    }
    body = " ".join(part for part in (opener, core) if part)
    text = chance.choice((", ", " ")).join([body, *parts])
    text += f", {closer}" if closer else ""
    text = text.format(**words)
    return Utterance(text[0].upper() + text[1:] + ("?" if opener.startswith(("can", "could")) else "."), order)


def _order(chance: random.Random) -> Order:
    return Order(
        tool="quote" if chance.random() < 0.25 else "order",
        item=chance.choice(list(ITEMS)),
        color=chance.choice(COLORS),
        amount=chance.randint(1, 12) if chance.random() < 0.5 else chance.randint(1, 99),
        city=chance.choice(list(CITIES)) if chance.random() < 0.6 else None,
        date=(chance.randint(1, 12), chance.randint(1, 28)) if chance.random() < 0.55 else None,
        price=chance.randint(1, 99) * 100 + chance.choice((0, 0, 50, 25, 95, 99, chance.randint(1, 99)))
        if chance.random() < 0.5
        else None,
        rush=chance.random() < 0.5 if chance.random() < 0.4 else None,
    )


def _skeleton(chance: random.Random, order: Order) -> tuple[str, str, list[str], str]:
    opener = chance.choice(QUOTE_OPENERS if order.tool == "quote" else ORDER_OPENERS)
    parts = []
    if order.city is not None:
        parts.append(chance.choice(TO_CITY))
    if order.date is not None:
        parts.append(chance.choice(BY_DATE))
    if order.price is not None:
        parts.append(chance.choice(AT_PRICE))
    if order.rush is not None:
        parts.append(chance.choice(IN_RUSH if order.rush else NO_RUSH))
    chance.shuffle(parts)
    return opener, chance.choice(CORES), parts, chance.choice(CLOSERS)


def _price(cents: int | None, chance: random.Random) -> str:
    if cents is None:
        return ""
    if cents % 100 == 0 and chance.random() < 0.7:
        return str(cents // 100)
    return f"{cents // 100}.{cents % 100:02d}"


def split_of(text: str) -> Split:
    """The split that a skeleton or combination is dealt to, by its hash."""
    bucket = zlib.crc32(text.encode()) % BUCKETS
    if bucket < HELD_OUT:
        return Split.HELD_OUT
    return Split.VALIDATION if bucket < VALIDATION else Split.TRAIN
