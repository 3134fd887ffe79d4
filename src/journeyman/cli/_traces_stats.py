"""`journeyman traces stats`, and how far people agree."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table
from rich.text import Text

from journeyman.cli import _traces
from journeyman.cli import _traces_screen as screen
from journeyman.cli._table import Column, console, fitted
from journeyman.stores.traces.agreement import Agreement, agreed
from journeyman.stores.traces.base import Group, Statistics, ToolUse, TraceStore


def statistics(url: str | None, filters: Mapping[str, Any], *, agreement: bool, quiet: bool) -> dict[str, Any]:
    with _traces.opened(url) as store:
        found = store.statistics(_traces.query(filters))
        agreements = agreed(store.labels()) if agreement else None
    if not quiet and found.all.traces:
        _print(found)
    told = asdict(found)
    if agreements is not None:
        if not quiet:
            print_agreement(agreements)
        told["agreement"] = [asdict(each) for each in agreements]
    return told


def agreement_of(store: TraceStore, *, quiet: bool) -> dict[str, Any]:
    found = agreed(store.labels())
    if not quiet:
        print_agreement(found)
    return {"agreement": [asdict(each) for each in found]}


def print_agreement(found: Sequence[Agreement]) -> None:
    if not found:
        _traces.tell("No two people have labelled the same trace: journeyman traces label --others --who NAME")
        return
    shown = Table("people", "both labelled", "agreed", "Cohen's κ", box=None, pad_edge=False, title_justify="left")
    for each in found:
        kappa = "unknown: all the same" if each.kappa is None else f"{each.kappa:.2f}"
        people = Text(" and ".join(map(screen.short, each.people)))
        shown.add_row(people, str(each.traces), f"{each.agreed / each.traces:.0%}", kappa)
    console().print(shown)


def _print(found: Statistics) -> None:
    out = console()
    out.print(_groups("", [found.all], out.width))
    for title, groups in (("agent", found.by_agent), ("model", found.by_model), ("day (UTC)", found.by_day)):
        if groups:
            out.print()
            out.print(_groups(title, groups, out.width))
    if found.tools:
        out.print()
        out.print(_tools(found.tools, out.width))
    if found.all.unpriced or found.all.uncounted:
        out.print(Text(f"+ more: {found.all.unpriced} calls have no price, {found.all.uncounted} were not counted", "dim"))


def _groups(title: str, groups: Sequence[Group], width: int) -> Table:
    known = [Text(screen.short(group.name, 40) or "unknown") for group in groups]
    columns: dict[str, tuple[int, Callable[[Group], str]]] = {
        "traces": (0, lambda group: str(group.traces)),
        "good": (5, lambda group: str(group.good or "")),
        "bad": (5, lambda group: str(group.bad or "")),
        "reward": (3, lambda group: "" if group.mean_reward is None else f"{group.mean_reward:.3f}"),
        "errors": (4, lambda group: str(group.errors)),
        "calls": (8, lambda group: str(group.model_calls)),
        "tools failed": (9, lambda group: f"{group.failed_tool_calls}/{group.tool_calls}"),
        "tokens": (6, _tokens),
        "cost": (1, _cost),
        "median": (2, lambda group: screen.duration(group.median_seconds)),
        "p95": (7, lambda group: screen.duration(group.p95_seconds)),
    }
    numbers = (
        Column(name=name, spare=spare, cells=[Text(told(group)) for group in groups]) for name, (spare, told) in columns.items()
    )
    return fitted((Column(name=title, words=True, least=16, cells=known), *numbers), width)


def _tokens(group: Group) -> str:
    if group.uncounted and group.uncounted == group.model_calls:
        return "?"
    return screen.tokens(group.input_tokens, group.output_tokens) + ("+" if group.uncounted else "")


def _cost(group: Group) -> str:
    if group.unpriced and group.unpriced == group.model_calls and not group.cost:
        return "?"
    return screen.dollars(group.cost) + ("+" if group.unpriced else "")


def _tools(tools: Sequence[ToolUse], width: int) -> Table:
    return fitted(
        (
            Column(name="tool", words=True, cells=[Text(screen.short(tool.tool, 40)) for tool in tools]),
            Column(name="calls", cells=[Text(str(tool.calls)) for tool in tools]),
            Column(name="failed", cells=[Text(str(tool.failures)) for tool in tools]),
            Column(
                name="share", spare=2, cells=[Text(f"{tool.failures / tool.calls:.1%}" if tool.calls else "") for tool in tools]
            ),
            Column(name="mean time", spare=1, cells=[Text(screen.duration(tool.mean_seconds)) for tool in tools]),
        ),
        width,
    )
