"""What customers say: a grammar of some ten thousand sentence skeletons, split so that held-out ones are new.

A skeleton is the choice of phrases and their order, with the words left open. Skeletons and combinations of item, color and
city are dealt to the splits by a hash: a held-out sentence has a skeleton *and* a combination that no training sentence has.
"""

import random
import zlib
from dataclasses import dataclass

from journeyman.task import Split
from journeyman.tasks.desk.world import CITIES, COLORS, ITEMS, MONTHS, NUMBERS, Order

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
class Said:
    sentence: str
    order: Order


def say(chance: random.Random, split: Split) -> Said:
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
    return Said(text[0].upper() + text[1:] + ("?" if opener.startswith(("can", "could")) else "."), order)


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
