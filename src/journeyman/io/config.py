"""Classes of settings: what a field may be stands in its type, and is checked wherever the value comes from.

    @config
    class GateSettings(Config):
        alpha: Annotated[float, Field(gt=0, lt=1)] = 0.05
        \"\"\"How often something that is no better may pass.\"\"\"

They are frozen dataclasses, made by keywords, and inherit from each other; `replace` and `asdict` of `dataclasses` work on
them. A value that cannot be used is a `SettingError`: one sentence with the name of the setting, for which a command puts its
option.
"""

import ast
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache
from itertools import pairwise
from textwrap import dedent
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Self,
    TypeVar,
    Union,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as validated
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from journeyman.core.errors import InputError, SettingError

Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Names = Annotated[tuple[str, ...], Field(strict=False)]
"""Several, as a tuple; a list is taken, too."""

_RULES = ConfigDict(extra="forbid", strict=True, defer_build=True, arbitrary_types_allowed=True)
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """Beside the type of a field: how a command offers it, where that does not follow from the field."""

    names: tuple[str, ...] = ()
    """As they are typed; without any, the field's own with dashes."""
    metavar: str | None = None
    default: str = ""
    """What stands for a default that is worked out, such as "by method and size"."""
    hidden: bool = False
    """Not offered: set by the program, or known from elsewhere."""
    why: str = ""
    """Said to whoever gives what cannot be."""


def option(*names: str, metavar: str | None = None, default: str = "", why: str = "") -> Option:
    """How a field's option is spelled otherwise."""
    return Option(names=names, metavar=metavar, default=default, why=why)


HIDDEN = Option(hidden=True)


class _Checked(type):
    """What is made by keywords: names of earlier versions are taken, and what is wrong is said in one sentence."""

    if not TYPE_CHECKING:

        def __call__(cls, **given: Any) -> Any:
            try:
                return super().__call__(**_by_todays_names(cls, given, warn=True))
            except ValidationError as error:
                raise _refused(cls, error.errors()[0]) from None


class Config(metaclass=_Checked):
    """What every class of settings can do."""

    renamed: ClassVar[Mapping[str, str]] = {}
    """Names of earlier versions, and what they are called now; those of the classes above hold too."""
    converted: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """For names of earlier versions under which something else was counted, how the value of today follows."""

    @classmethod
    def known(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Of what was kept, perhaps by an earlier version, that which is a setting of this class, by its name of today."""
        names = {each.name for each in fields(cls)}  # type: ignore[arg-type]  # every subclass is a dataclass
        return {name: value for name, value in _by_todays_names(cls, values).items() if name in names}

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From what was kept, perhaps by an earlier version.

        Raises:
            InputError: It holds what no setting is, or what none can be.
        """
        return cls(**_by_todays_names(cls, values))


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def config(cls: type[_Made]) -> type[_Made]:
    """Makes a class of settings."""
    return cast(type[_Made], validated(cls, frozen=True, kw_only=True, config=_RULES))


def renamed(cls: type) -> Mapping[str, str]:
    """Names of earlier versions of the settings of a class, and what they are called now."""
    return {old: new for each in reversed(cls.__mro__) for old, new in vars(each).get("renamed", {}).items()}


def _by_todays_names(cls: type, given: Mapping[str, Any], *, warn: bool = False) -> dict[str, Any]:
    today = renamed(cls)
    made = dict(given)
    for old in given.keys() & today.keys():
        if warn:
            warnings.warn(f"{old} is called {today[old]} now", DeprecationWarning, stacklevel=4)
        value, convert = made.pop(old), getattr(cls, "converted", {}).get(old)
        made.setdefault(today[old], convert(value) if convert else value)
    return made


def _refused(cls: type, error: ErrorDetails) -> InputError:
    """What is wrong with a setting of a class, in one sentence."""
    name = str(error["loc"][0])
    if error["type"] == "unexpected_keyword_argument":
        (near,) = get_close_matches(name, [each.name for each in fields(cls)], n=1, cutoff=0.0)
        return InputError(f"there is no setting {name!r} in {cls.__name__}; did you mean {near}?")
    return SettingError(name, f"{{}}{complaint(cls, name, error)}")


_MUST = {
    "int_type": "be a whole number",
    "int_from_float": "be a whole number",
    "float_type": "be a number",
    "bool_type": "be true or false",
    "string_type": "be text",
    "tuple_type": "be a list of names",
    "dataclass_type": "be a table",
    "dict_type": "be a table",
}


def complaint(cls: type, name: str, error: ErrorDetails) -> str:
    """What is wrong with the value of a setting, as it follows upon the name."""
    kind = error["type"]
    if kind == "value_error":
        # A check of our own has its own words, and may be about a secret.
        said = str(error["ctx"]["error"])
        return f" {said}" if said.startswith(("must ", "is ")) else f": {said}"
    if kind == "missing":
        return " must be given"
    declared = Declared.of(cls, name)
    verb = "holds" if declared.many and len(error["loc"]) > 1 and not isinstance(error["input"], str) else "is"
    why = f": {declared.option.why}" if declared.option.why else ""
    if _may_hold_a_secret(cls, declared, kind):
        return f" must {_must(declared, error)}{why}"
    return f" {verb} {error['input']!r}, and must {_must(declared, error)}{why}"


def _may_hold_a_secret(cls: type, declared: "Declared", kind: str) -> bool:
    """Whether what was given is better not repeated: a store's address, or a key where the name of its variable belongs."""
    if kind in ("dataclass_type", "dict_type") or declared.name.endswith("_env"):
        return True
    return not next(each for each in fields(cls) if each.name == declared.name).repr


def _must(declared: "Declared", error: ErrorDetails) -> str:
    kind = error["type"]
    if kind == "literal_error":
        *others, last = [repr(str(each)) for each in get_args(declared.kind)]
        return f"be {', '.join(others)} or {last}"
    if kind in _MUST:
        return _MUST["tuple_type"] if declared.many else f"{_MUST[kind]}{' or None' if declared.optional else ''}"
    return _within(declared, kind) or f"be something else: {error['msg'][:1].lower()}{error['msg'][1:]}"


def _within(declared: "Declared", kind: str) -> str:
    low, high = declared.low, declared.high
    if declared.kind is float and low is not None and high is not None:
        if declared.low_open == declared.high_open:
            return f"lie between {low:g} and {high:g}"
        return f"lie above {low:g} and at most at {high:g}" if declared.low_open else f"lie from {low:g} to below {high:g}"
    if kind == "greater_than_equal":
        return "not be negative" if low == 0 else f"be at least {low:g}"
    limits = {"greater_than": f"be above {low}", "less_than_equal": f"be at most {high}", "less_than": f"be below {high}"}
    return limits.get(kind, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A setting as its class declares it."""

    name: str
    kind: Any
    """The plain type: `int`, `float`, `str`, `bool`, an enumeration, a `Literal`, or another."""
    many: bool = False
    """Several of the kind."""
    optional: bool = False
    """It may be `None`."""
    default: Any
    help: str
    """The docstring of the field, on one line."""
    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False
    option: Option

    @classmethod
    def all(cls, owner: type) -> "Mapping[str, Declared]":
        """By name, in the order of the declaration."""
        return _declared(owner)

    @classmethod
    def of(cls, owner: type, name: str) -> "Declared":
        return _declared(owner)[name]


@cache
def _declared(owner: type) -> Mapping[str, Declared]:
    hints = get_type_hints(owner, include_extras=True)
    spoken = {name: text for each in reversed(owner.__mro__) for name, text in docstrings(each).items()}
    made = {}
    for each in fields(owner):
        default = each.default_factory() if callable(each.default_factory) else each.default
        parts = list(_parts(hints[each.name]))
        made[each.name] = Declared(name=each.name, default=default, help=spoken.get(each.name, ""), **_read(parts))
    return made


def _parts(hint: Any) -> Iterator[Any]:
    """A hint taken apart: its plain types, and what stands beside them."""
    if get_origin(hint) is Annotated:
        inner, *beside = get_args(hint)
        yield from _parts(inner)
        for each in beside:
            yield from each.metadata if isinstance(each, FieldInfo) else (each,)
    elif get_origin(hint) in (Union, UnionType):
        for each in get_args(hint):
            yield from _parts(each)
    elif get_origin(hint) is tuple:
        yield tuple
        yield from _parts(get_args(hint)[0])
    else:
        yield hint


def _read(parts: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"option": Option()}
    for part in parts:
        match type(part).__name__:
            case "Ge" | "Gt":
                found |= {"low": getattr(part, type(part).__name__.lower()), "low_open": type(part).__name__ == "Gt"}
            case "Le" | "Lt":
                found |= {"high": getattr(part, type(part).__name__.lower()), "high_open": type(part).__name__ == "Lt"}
            case "Option":
                found["option"] = part
        if part is tuple:
            found["many"] = True
        elif part is NoneType:
            found["optional"] = True
        elif isinstance(part, type) or get_origin(part) is not None:
            found.setdefault("kind", part)
    return {"kind": str, **found}


@cache
def docstrings(cls: type) -> Mapping[str, str]:
    """The strings below the fields of a class, each on one line. Read from its source, when they are asked for."""
    if cls.__module__ == "builtins":
        return {}
    try:
        tree = _parsed(cls.__module__)
    except (OSError, TypeError):
        return {}
    body = next((node.body for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == cls.__name__), [])
    return {
        above.target.id: " ".join(below.value.value.split())
        for above, below in pairwise(body)
        if isinstance(above, ast.AnnAssign)
        and isinstance(above.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse(dedent(inspect.getsource(sys.modules[module])))


@config
class BudgetSettings(Config):
    """What may be spent."""

    max_cost: Annotated[float | None, Field(gt=0), option(metavar="USD")] = None
    """Stop cleanly once this is spent, or once the cost of a call is not known."""


@config
class SeedSettings(Config):
    """What is drawn at random can be drawn again."""

    seed: int = 0
    """Of shuffles and samples."""
