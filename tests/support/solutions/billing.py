"""Solves the subscription invoice."""

import csv
import io
import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

_COLUMNS = ("plan", "price", "seats")


def read_plans(text: str) -> dict[str, dict[str, int]]:
    rows = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True)
    header = [name.strip() for name in next(rows, [])]
    for column in _COLUMNS:
        if column not in header:
            raise ValueError(f"line 1: no column {column}")
    plans: dict[str, dict[str, int]] = {}
    for row in rows:
        if not any(value.strip() for value in row):
            continue
        values = dict(zip(header, (value.strip() for value in row), strict=False))
        price, seats = values.get("price", ""), values.get("seats", "")
        whole = len(row) == len(header) and values["plan"] and values["plan"] not in plans
        numbers = re.fullmatch(r"\d+(\.\d{1,2})?", price, re.ASCII) and re.fullmatch(r"0*[1-9]\d*", seats, re.ASCII)
        if not whole or not numbers:
            raise ValueError(f"line {rows.line_num}: {row} is no plan")
        plans[values["plan"]] = {"cents": int(Decimal(price) * 100), "seats": int(seats)}
    return plans


def prorate(cents: int, used: int, days: int) -> int:
    if days <= 0 or not 0 <= used <= days:
        raise ValueError(f"{used} of {days} days")
    return _rounded(Fraction(cents * used, days))


def _rounded(value: Fraction) -> int:
    size = int(abs(value) + Fraction(1, 2))
    return -size if value < 0 else size


def change_plan(old: int, new: int, day: int, days: int) -> dict[str, int]:
    credit, charge = prorate(old, days - day, days), prorate(new, days - day, days)
    return {"credit": credit, "charge": charge, "due": charge - credit}


def invoice(lines: list[tuple[str, int]], tax: str) -> dict[str, int]:
    try:
        rate = Decimal(tax)
    except InvalidOperation:
        raise ValueError(f"{tax!r} is no tax") from None
    if not rate.is_finite() or not 0 <= rate <= 100:
        raise ValueError(f"{tax!r} is no tax")
    subtotal = sum(cents for _, cents in lines)
    taxed = _rounded(Fraction(rate) * subtotal / 100) if subtotal > 0 else 0
    return {"subtotal": subtotal, "tax": taxed, "total": subtotal + taxed}
