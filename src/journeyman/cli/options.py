"""Options of a command from the declaration of its settings: spelling, type, range, choices, default and help.

    @click.command()
    @options(TrainingConfig, leave_out=("sandbox",))
    def command(**given): config = configured(TrainingConfig, provided(given))

An option that is not given is not in what is `provided`: then the project's file or the environment decides, and else the
default, which the help shows.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin

import click

from journeyman.cli.shared import together
from journeyman.io.config import Declared

_Command = TypeVar("_Command", bound=Callable[..., Any])


class _Setting(click.Option):
    """Has no default of its own, and shows that of the setting."""

    shown = ""

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        return {**extra, "default": self.shown} if self.shown else extra


class _Whole(click.IntRange):
    """Shows its range; what lies outside is refused by the setting, in the same words from wherever it comes."""

    plain = "INTEGER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return click.INT.convert(value, param, ctx)


class _Choice(click.Choice[str]):
    """Shows its choices; another is refused by the setting, which says why."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return click.STRING.convert(value, param, ctx)


class _Number(click.FloatRange):
    plain = "FLOAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return click.FLOAT.convert(value, param, ctx)


def options(
    owner: type,
    *,
    only: Collection[str] | None = None,
    leave_out: Collection[str] = (),
    helps: Mapping[str, str] | None = None,
    names: Mapping[str, tuple[str, ...]] | None = None,
) -> Callable[[_Command], _Command]:
    """Gives a command the settings of a class as options, its own before those that it inherits.

    Args:
        only: The names of those that are wanted, in this order; without it all that are offered.
        leave_out: The names of those that are not.
        helps: Other words for a setting, where the command means something narrower by it.
        names: Other spellings, likewise.
    """
    declared = Declared.all(owner)
    wanted = only if only is not None else [name for name in _order(owner) if not declared[name].option.hidden]

    return together(
        *(_option(declared[name], (helps or {}).get(name), (names or {}).get(name)) for name in wanted if name not in leave_out)
    )


def provided(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was typed, without what was not."""
    return {name: value for name, value in given.items() if value is not None and value != ()}


def _order(owner: type) -> list[str]:
    """The fields of a class before those of the classes that it inherits from."""
    known = Declared.all(owner)
    names = (name for each in owner.__mro__ for name in vars(each).get("__annotations__", {}) if name in known)
    return list(dict.fromkeys(names))


def _option(declared: Declared, words: str | None, names: tuple[str, ...] | None) -> Callable[[_Command], _Command]:
    plain = f"--{declared.name.replace('_', '-')}"
    flag: dict[str, Any] = {}
    if declared.kind is bool:
        flag = {"is_flag": True}
        if declared.option.names and all(each.startswith("--no-") for each in declared.option.names):
            flag["flag_value"] = False
        elif declared.optional or declared.default:
            plain = f"{plain}/--no-{plain[2:]}"
    kind = _kind(declared)
    kinds = flag or {"type": kind, "metavar": declared.option.metavar or getattr(kind, "plain", None)}
    spelled = names or declared.option.names or (plain,)
    setting = type("Setting", (_Setting,), {"shown": _default(declared, spelled)})
    text = words or declared.help
    return click.option(*spelled, declared.name, cls=setting, default=None, multiple=declared.many, help=text, **kinds)


def _kind(declared: Declared) -> click.ParamType[Any]:
    if get_origin(declared.kind) is Literal:
        kind = _Choice if declared.option.why else click.Choice
        return kind([str(each) for each in get_args(declared.kind)])
    bounds: dict[str, Any] = {
        "min": declared.low, "max": declared.high, "min_open": declared.low_open, "max_open": declared.high_open,
    }  # fmt: skip
    # That a count begins at 1 goes without saying.
    bounded = (declared.low, declared.high) not in ((None, None), (1, None), (0, None))
    if declared.kind is int:
        return _Whole(**bounds) if bounded else click.INT
    if declared.kind is float:
        return _Number(**bounds) if bounded else click.FLOAT
    return click.STRING


def _default(declared: Declared, spelled: tuple[str, ...]) -> str:
    default = declared.default
    if declared.option.default:
        return declared.option.default
    if isinstance(default, bool):
        return spelled[0].partition("/")[0][2:] if default and "/" in spelled[0] else ""
    if default in (None, "", ()):
        return ""
    return f"{default:g}" if isinstance(default, float) else str(default)
