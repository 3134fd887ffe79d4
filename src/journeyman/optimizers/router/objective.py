"""What the operator wants of a choice, in the operator's words.

    quality - 20*cost                                       20 successes are worth a dollar for every request
    quality - 20*cost - 0.01*p95                            and 0.01 of a success a second of the slowest answers
    quality where cost <= 0.002 and p95 <= 3                the best for $0.002 a request on average, 95 of 100 within 3 s
    -cost where quality >= 0.9                              the cheapest that is good enough
    I pay $0.05 and 20 seconds for one more success         quality - cost/0.05 - p50/20

Nothing is evaluated: the words are read as a linear expression and refused if they are anything else.
"""

import ast
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from journeyman.core.errors import InputError
from journeyman.stats import Floats

_NAMES = {
    "quality": "quality",
    "success": "quality",
    "accuracy": "quality",
    "cost": "cost",
    "p50": "p50",
    "latency": "p50",
    "seconds": "p50",
    "p95": "p95",
}
"""What may be said, and what it means."""

_LIMITS = {("cost", ast.LtE): "max_cost", ("p95", ast.LtE): "deadline", ("quality", ast.GtE): "min_quality"}

_PAY = re.compile(
    r"i(?: would|'d)? pay (?:\$\s*(?P<dollars>[\d.e+-]+))?(?: and )?(?:(?P<seconds>[\d.e+-]+)\s*s(?:ec(?:ond)?s?)?)?"
    r" (?:for one more success|a success|per success)\.?"
)

_LONGEST = 400
"""Characters: longer words are no objective, and deep nesting would cost the reader its stack."""

_HELP = 'write it like "quality - 20*cost", "quality where cost <= 0.002 and p95 <= 3" or "-cost where quality >= 0.9"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The utility of an answer, in successes: its probability less cost, p50 and p95, each by its weight; and what must hold.

    Raises:
        InputError: A weight or limit that is negative or no number.
    """

    cost: float = 0.0
    """Successes that a US dollar a request is worth."""
    p50: float = 0.0
    """Successes that a second of the expected wait is worth."""
    p95: float = 0.0
    """Successes that a second of the 95 % quantile is worth."""
    max_cost: float | None = None
    """US dollars a request, on average."""
    min_quality: float | None = None
    """Probability of success beyond which more is worth nothing: the cheapest worker that reaches it is taken, and where none
    does, the best."""
    deadline: float | None = None
    """Seconds within which 95 of 100 answers of a worker must come."""
    allow: tuple[str, ...] = ()
    """The only workers that may be chosen; empty for all."""
    deny: tuple[str, ...] = ()
    unpriced: bool = False
    """Whether a worker with no known price may be chosen although money counts. It then counts as the dearest of the others."""
    safe: str = ""
    """The worker to fall back on when requests are not like those that were learned from; empty for the best single one."""

    def __post_init__(self) -> None:
        for name in ("cost", "p50", "p95", "max_cost", "min_quality", "deadline"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(f"an objective's {name} is a number that is not negative, not {value}")
        if self.min_quality is not None and self.min_quality > 1:
            raise InputError(f"an objective's min_quality is a probability, 0 to 1, not {self.min_quality}")
        if both := sorted(set(self.allow) & set(self.deny)):
            raise InputError(f"{both[0]!r} is both allowed and denied; leave it out of one of the lists")

    @property
    def money_counts(self) -> bool:
        """Whether a worker's price can change the choice."""
        return self.cost > 0 or self.max_cost is not None or self._cheapest

    @property
    def _cheapest(self) -> bool:
        """With a floor and no weights there is nothing but money to choose by."""
        return self.min_quality is not None and not (self.cost or self.p50 or self.p95)

    @property
    def weights(self) -> tuple[float, float, float]:
        """Of cost, p50 and p95, as a choice uses them."""
        return (1.0 if self._cheapest else self.cost), self.p50, self.p95

    def penalty(self, cost: Floats, seconds: Floats) -> Floats:
        """What answers cost in successes, any shape; an answer's own seconds stand for both of its quantiles.

        NaN where a part that counts is unknown; a part without weight need not be known.
        """
        cost_weight, p50, p95 = self.weights
        paid = np.zeros_like(cost)
        for weight, amounts in ((cost_weight, cost), (p50 + p95, seconds)):
            if weight:
                paid = paid + weight * amounts
        return paid

    def admits(self, worker: str) -> bool:
        """Whether the lists allow a worker."""
        return (not self.allow or worker in self.allow) and worker not in self.deny

    def __str__(self) -> str:
        """Words that `parse` reads back, without the lists."""
        weights = {"cost": self.cost, "p50": self.p50, "p95": self.p95}
        terms = "".join(f" - {weight!r}*{name}" for name, weight in weights.items() if weight)
        limits = {"cost <= ": self.max_cost, "quality >= ": self.min_quality, "p95 <= ": self.deadline}
        held = " and ".join(f"{words}{limit!r}" for words, limit in limits.items() if limit is not None)
        return f"quality{terms}" + (f" where {held}" if held else "")


def parse(words: str) -> Objective:
    """What the words say; lists and the safe worker are set with `dataclasses.replace`.

    Raises:
        InputError: In one sentence: what could not be read, and how it is written.
    """
    text = " ".join(words.split())
    if not text or len(text) > _LONGEST:
        raise InputError(f"an objective of {len(text)} characters cannot be read: {_HELP}")
    if paid := _PAY.fullmatch(text.lower()):
        return _paid(text, paid)
    utility, _, limits = re.sub(r"\b(?:subject to|such that|with)\b", "where", text, count=1).partition(" where ")
    held = _limits(limits, text)
    return replace(_weighed(text, _form(_tree(utility, text), text), floor="min_quality" in held), **held)


def _paid(text: str, said: re.Match[str]) -> Objective:
    try:
        amounts = {name: float(value) for name, value in said.groupdict().items() if value}
    except ValueError:
        raise InputError(f"the objective {text!r} holds an amount that is no number") from None
    if not amounts or not all(math.isfinite(amount) and amount > 0 for amount in amounts.values()):
        raise InputError(f"the objective {text!r} says no amount above 0: what would you pay for one more success?")
    weights = {name: 1 / amount for name, amount in amounts.items()}
    return Objective(cost=weights.get("dollars", 0.0), p50=weights.get("seconds", 0.0))


def _weighed(text: str, form: Mapping[str, float], *, floor: bool) -> Objective:
    """Divided by the weight of a success, so that utilities are counted in successes."""
    quality = form.get("quality", 0.0)
    cost, p50, p95 = (-form.get(name, 0.0) for name in ("cost", "p50", "p95"))
    if wrong := [name for name, weight in (("cost", cost), ("p50", p50), ("p95", p95)) if weight < 0]:
        raise InputError(f"the objective {text!r} wants more {wrong[0]}; subtract it: {_HELP}")
    if quality < 0 or not (quality or (floor and (cost or p50 or p95))):
        raise InputError(f"the objective {text!r} gives quality neither a weight above 0 nor a floor: {_HELP}")
    # With a floor and no weight for success the scale is anybody's: only the order counts.
    scale = quality or 1.0
    return Objective(cost=cost / scale, p50=p50 / scale, p95=p95 / scale)


def _limits(said: str, text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in re.split(r" and |,|;", said) if said else ():
        tree = _tree(part, text)
        if not (isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.left, ast.Name)):
            raise InputError(f"the objective {text!r} holds a limit that cannot be read, {part.strip()!r}: {_HELP}")
        name = _NAMES.get(tree.left.id, "")
        limit = _LIMITS.get((name, type(tree.ops[0])))
        value = _form(tree.comparators[0], text)
        if limit is None or set(value) - {""}:
            raise InputError(f"a limit is cost <= a number, p95 <= a number or quality >= a number, not {part.strip()!r}")
        if limit in found:
            raise InputError(f"the objective {text!r} sets two limits on {name}; leave one")
        found[limit] = value.get("", 0.0)
    return found


def _tree(expression: str, text: str) -> ast.expr:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(f"the objective {text!r} cannot be read at {expression.strip()!r}: {_HELP}") from None


def _form(node: ast.expr, text: str) -> dict[str, float]:
    """Weight by name, the plain number under ""."""
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return {"": _number(value, text)}
        case ast.Name(id=name) if name in _NAMES:
            return {_NAMES[name]: 1.0}
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as sign, operand=operand):
            return _scaled(_form(operand, text), -1.0 if isinstance(sign, ast.USub) else 1.0)
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(_form(left, text), op, _form(right, text), text)
        case ast.Name(id=name):
            raise InputError(f"the objective {text!r} names {name!r}, which is none of quality, cost, p50 and p95")
    raise InputError(f"the objective {text!r} is no sum of quality, cost and seconds: {_HELP}")


def _combined(left: dict[str, float], op: ast.operator, right: dict[str, float], text: str) -> dict[str, float]:
    match op:
        case ast.Add() | ast.Sub():
            sign = 1.0 if isinstance(op, ast.Add) else -1.0
            return {name: left.get(name, 0.0) + sign * right.get(name, 0.0) for name in {*left, *right}}
        case ast.Mult() if not set(left) - {""}:
            return _scaled(right, left[""])
        case ast.Mult() if not set(right) - {""}:
            return _scaled(left, right[""])
        case ast.Div() if not set(right) - {""} and right[""]:
            return _scaled(left, 1 / right[""])
    raise InputError(f"the objective {text!r} is no sum of quality, cost and seconds, each times a number: {_HELP}")


def _scaled(form: Mapping[str, float], factor: float) -> dict[str, float]:
    return {name: weight * factor for name, weight in form.items()}


def _number(value: float, text: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"the objective {text!r} holds a number that is too large") from None
