"""Personal data of every kind that is masked, made up anew each time."""

import random
import string

PLANTED = ("email", "phone", "card", "iban")
_NAMES = ("ada", "grace", "linus", "margaret", "alan", "barbara", "ken", "frances")
_ENDINGS = ("example.org", "mail.example.com", "uni-hamburg.de", "shop.co.uk", "company.io")
_CARDS = (("4", 16), ("51", 16), ("55", 16), ("34", 15), ("37", 15), ("6011", 16))
_ACCOUNTS = {"DE": 18, "FR": 23, "GB": 18, "NL": 14, "ES": 20, "AT": 16, "CH": 17}


def _digits(chance: random.Random, count: int) -> str:
    return "".join(chance.choices(string.digits, k=count))


def _phone(chance: random.Random) -> str:
    some = _digits(chance, 20)
    area = chance.choice("23456789") + some[:2]
    return chance.choice(
        (
            f"+49 {chance.choice(('30', '40', '171', '89'))} {some[:7]}",
            f"+1 {area}-{some[2:5]}-{some[5:9]}",
            f"+44 20 {some[:4]} {some[4:8]}",
            f"+33 {chance.choice('1234567')} {some[:2]} {some[2:4]} {some[4:6]} {some[6:8]}",
            f"({area}) {some[2:5]}-{some[5:9]}",
            f"{area}-{some[2:5]}-{some[5:9]}",
            f"{area}.{some[2:5]}.{some[5:9]}",
            f"030 {chance.choice('123456789')}{some[:6]}",
            f"0171/{chance.choice('123456789')}{some[:6]}",
            f"0{chance.choice('1234567')} {some[:2]} {some[2:4]} {some[4:6]} {some[6:8]}",
        )
    )


def _card(chance: random.Random) -> str:
    while True:
        prefix, length = chance.choice(_CARDS)
        body = prefix + _digits(chance, length - len(prefix) - 1)
        doubled = [int(digit) * (2 - place % 2) for place, digit in enumerate(reversed(body))]
        number = body + str(-sum(each - 9 if each > 9 else each for each in doubled) % 10)
        if len(set(number)) >= 3:
            break
    sep = chance.choice(("", " ", "-"))
    if length == 15:
        return sep.join((number[:4], number[4:10], number[10:]))
    return sep.join(number[at : at + 4] for at in range(0, 16, 4))


def _iban(chance: random.Random) -> str:
    country = chance.choice(list(_ACCOUNTS))
    body = "".join(chance.choice("ABCDEFGH") for _ in range(4)) if country in ("GB", "NL") else ""
    body += _digits(chance, _ACCOUNTS[country] - len(body))
    rest = int("".join(str(int(char, 36)) for char in f"{body}{country}00")) % 97
    whole = f"{country}{98 - rest:02}{body}"
    return whole if chance.random() < 0.5 else " ".join(whole[at : at + 4] for at in range(0, len(whole), 4))


def planted(kind: str, chance: random.Random) -> tuple[str, str]:
    """A text as it may stand in a conversation, and the part of it that must not be kept."""
    if kind == "email":
        name = chance.choice(_NAMES) + chance.choice((".", "_", "+", "")) + chance.choice((*_NAMES, "7"))
        value = f"{name}@{chance.choice(_ENDINGS)}"
    else:
        value = {"phone": _phone, "card": _card, "iban": _iban}[kind](chance)
    return chance.choice(
        (f"reach me: {value}", f"it is {value}, thanks", f"<{value}>", f"({value})" if kind != "phone" else value)
    ), value
