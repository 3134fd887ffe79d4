"""What the desk does with written calls, without a model: read them back, put them on a sheet, add up, see what is due.

Every house's forms differ from all others, so a call can be read without knowing whose it is.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from journeyman.errors import TaskError
from journeyman.tasks.desk.verify import ADDRESS_FIELDS
from journeyman.tasks.desk.world import CITIES, COLORS, ITEMS, MONTHS, NUMBERS, YEAR, Order

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
