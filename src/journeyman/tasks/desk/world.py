"""The order desk: what a customer can want, and the house conventions of the shops.

A small closed world: a customer's sentence is to be turned into one tool call. What the sentence does not tell is how this
shop writes dates, prices, cities and so on. That is what there is to learn.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

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
