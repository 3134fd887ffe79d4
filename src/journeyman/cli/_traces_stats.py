"""`journeyman traces stats`, and how far people agree."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from rich.table import Table
from rich.text import Text

from journeyman.cli import _traces
from journeyman.cli import _traces_screen as screen
from journeyman.stats import cohens_kappa
from journeyman.stores.traces.base import AUTO, Group, Label, Statistics, TraceStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of two people on what both labelled."""

    people: tuple[str, str]
    traces: int
    agreed: int
    kappa: float | None
    """Cohen's; `None` when both always said the same one thing."""


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


def agreed(labels: Iterable[Label]) -> Sequence[Agreement]:
    """Every two people who labelled the same traces, those with the most in common first. Labels come oldest first."""
    said: dict[str, dict[str, bool]] = {}
    for label in labels:
        if label.who == AUTO:
            continue
        if label.good is None:
            said.get(label.who, {}).pop(label.trace_id, None)
        else:
            said.setdefault(label.who, {})[label.trace_id] = label.good
    found = []
    for one, other in combinations(sorted(said), 2):
        both = sorted(said[one].keys() & said[other].keys())
        first, second = [said[one][id] for id in both], [said[other][id] for id in both]
        if both:
            same = sum(map(bool.__eq__, first, second))
            found.append(Agreement(people=(one, other), traces=len(both), agreed=same, kappa=cohens_kappa(first, second)))
    return sorted(found, key=lambda each: -each.traces)


def print_agreement(found: Sequence[Agreement]) -> None:
    if not found:
        _traces.tell("No two people have labelled the same trace: journeyman traces label --others --who NAME")
        return
    shown = Table("people", "both labelled", "agreed", "Cohen's κ", box=None, pad_edge=False, title_justify="left")
    for each in found:
        kappa = "unknown: all the same" if each.kappa is None else f"{each.kappa:.2f}"
        people = Text(" and ".join(map(screen.short, each.people)))
        shown.add_row(people, str(each.traces), f"{each.agreed / each.traces:.0%}", kappa)
    screen.out().print(shown)


def _print(found: Statistics) -> None:
    out = screen.out()
    out.print(_groups("", [found.all]))
    for title, groups in (("agent", found.by_agent), ("model", found.by_model), ("day (UTC)", found.by_day)):
        if groups:
            out.print()
            out.print(_groups(title, groups))
    if found.tools:
        shown = _table("tool", "calls", "failed", "share", "mean time")
        for tool in found.tools:
            share = f"{tool.failures / tool.calls:.1%}" if tool.calls else ""
            name = Text(screen.short(tool.tool, 40))
            shown.add_row(name, str(tool.calls), str(tool.failures), share, screen.duration(tool.mean_seconds))
        out.print()
        out.print(shown)
    if found.all.unpriced or found.all.uncounted:
        out.print(Text(f"+ more: {found.all.unpriced} calls have no price, {found.all.uncounted} were not counted", "dim"))


def _groups(title: str, groups: Iterable[Group]) -> Table:
    shown = _table(
        title, "traces", "good", "bad", "reward", "errors", "calls", "tools failed", "tokens", "cost", "median", "p95"
    )
    for group in groups:
        more = "+" if group.unpriced else ""
        counted = "+" if group.uncounted else ""
        shown.add_row(
            Text(screen.short(group.name, 40)),
            str(group.traces),
            str(group.good),
            str(group.bad),
            "" if group.mean_reward is None else f"{group.mean_reward:.3f}",
            str(group.errors),
            str(group.model_calls),
            f"{group.failed_tool_calls}/{group.tool_calls}",
            screen.tokens(group.input_tokens, group.output_tokens) + counted,
            screen.dollars(group.cost) + more,
            screen.duration(group.median_seconds),
            screen.duration(group.p95_seconds),
        )
    return shown


def _table(first: str, *rest: str) -> Table:
    shown = Table(box=None, pad_edge=False)
    shown.add_column(first)
    for name in rest:
        shown.add_column(name, justify="right", no_wrap=True)
    return shown
