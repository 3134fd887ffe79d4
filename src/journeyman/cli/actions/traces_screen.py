"""Traces for people to read: a table of many, one as a conversation and as a tree. Data, so on stdout.

What stands in a trace was written by anybody: nothing in it is taken for markup, or for a command to the terminal.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from journeyman.cli.console import Column, console, fitted
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk
from journeyman.stores.traces.base import AUTO, Given, Label, Statistics, StatisticsGroup, ToolStatistics, TraceSummary
from journeyman.tracing.base import NO_TIME

if TYPE_CHECKING:
    from journeyman.stores.traces.labels import LabelAgreement

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Without tab and line feed. With what turns the direction of writing, which can make a line read as another."""
_SHORT = 100
_LONG = 2_000
"""Characters of a message that are shown unless all was asked for."""
_STYLES = {"user": "bold cyan", "assistant": "bold green", "system": "dim", "tool": "yellow"}


def plain(text: str) -> str:
    """The text with what a terminal would obey made visible."""
    return _CONTROL.sub(lambda found: "" if found[0] == "\r" else f"\\x{ord(found[0]):02x}", text)


def short(text: str, length: int = _SHORT) -> str:
    line = plain(" ".join(text.split()))
    return line if len(line) <= length else line[: length - 1] + "…"


def table(lines: Iterable[TraceSummary]) -> None:
    columns = (
        Column(name="id", words=True, least=12),
        Column(name="begun", words=True, least=11, spare=4),
        Column(name="agent", words=True, least=8, spare=5),
        Column(name="what was asked", words=True, least=24),
        *(Column(name=name, spare=spare) for name, spare in (("calls", 8), ("tools", 7), ("tokens", 3), ("cost", 6))),
        *(Column(name=name, spare=spare) for name, spare in (("time", 3), ("reward", 2), ("label", 1))),
    )
    styles = []
    for line in lines:
        failed = f" ({line.failed_tool_calls}✗)" if line.failed_tool_calls else ""
        cells = (
            short(line.id, 20),
            moment(line.started_at, "%m-%d %H:%M"),
            short(line.agent or "", 16),
            ("✗ " if line.error else "") + (short(line.title) or f"({short(line.task_id)})"),
            str(line.model_calls),
            f"{line.tool_calls}{failed}",
            tokens(line.input_tokens, line.output_tokens) if line.model_calls else "",
            dollars(line.cost) if line.model_calls or line.cost else "",
            duration(line.seconds),
            "" if line.reward is None else f"{line.reward:.2f}",
            verdict(line.label, line.labelled_by),
        )
        for column, cell in zip(columns, cells, strict=True):
            column.cells.append(Text(cell))
        styles.append("red" if line.error else None)
    screen = console()
    screen.print(fitted(columns, screen.width, styles))


def show(trace: Trace, labels: Sequence[Label], given: Sequence[Given], *, full: bool) -> None:
    """The head, the conversation, and the steps as a tree."""
    screen = console()
    for name, value in _head(trace):
        screen.print(Text.assemble((f"{name:<9}", "dim"), plain(value)))
    for label in labels:
        word = "taken back" if label.good is None else verdict(label.good, None)
        sure = "" if label.probability is None else f", {label.probability:.0%} sure"
        screen.print(Text(f"{'label':<9}{word} ({short(label.who)}{sure}, {label.at.astimezone():%Y-%m-%d %H:%M})"))
    by = {each.reward: each.by for each in given}
    for reward in trace.rewards:
        value = "unknown" if reward.value is None else f"{reward.value:g}"
        source = f" [{short(by[reward])}]" if reward in by else ""
        screen.print(Text(f"{'reward':<9}{short(reward.name)} {value}{source}  {short(reward.evidence, 400)}"))
    screen.print()
    for text in conversation(trace, full=full):
        screen.print(text, soft_wrap=True)
    screen.print()
    screen.print(tree(trace))


def _head(trace: Trace) -> Iterator[tuple[str, str]]:
    models = Counter(call.model for call in trace.calls)
    yield "trace", trace.id
    yield "task", f"{trace.task_id} ({trace.domain})"
    yield from ((name, value) for name, value in (("agent", trace.agent), ("session", trace.session)) if value)
    begun = moment(trace.started_at, "%Y-%m-%d %H:%M:%S") or "unknown"
    yield "begun", f"{begun}, took {duration(trace.seconds) or 'unknown'}"
    if models:
        yield "models", ", ".join(f"{model} ({count})" for model, count in models.most_common())
        yield "tokens", tokens(trace.input_tokens, trace.output_tokens) + f", cost {dollars(trace.cost)}"
    yield "in force", ", ".join(trace.candidate_ids) + (f", came in by {trace.source}" if trace.source else "")
    set_itself = (("created", trace.tasks_created), ("done", trace.tasks_completed), ("failed", trace.tasks_failed))
    yield from ((name, "; ".join(short(task) for task in tasks)) for name, tasks in set_itself if tasks)
    if trace.error:
        yield "error", trace.error


def conversation(trace: Trace, *, full: bool) -> Iterator[Text]:
    """What was said, in the order of the steps. What a tool answered stands with its call, not again as a message."""
    answered = {step.id for step in trace.tool_calls if step.id}
    if trace.input is not None and not trace.calls:
        yield _said("user", trace.input, 0, full=full)
    for depth, step in walk(trace.steps):
        match step:
            case ModelCall():
                yield from _exchange(step, answered, depth, full=full)
            case ToolCall():
                yield _tool(step, depth, full=full)
            case Reasoning():
                yield _said("thinking", step.text, depth, full=full)
            case AgentCall():
                yield Text("  " * depth + f"▸ agent {short(step.agent)}  {short(step.input)}", style="magenta")
    # The last call's reply has been shown.
    if trace.output is not None and trace.output != (trace.calls[-1].reply if trace.calls else None):
        yield _said("answer", trace.output, 0, full=full)


def _exchange(call: ModelCall, answered: set[str], depth: int, *, full: bool) -> Iterator[Text]:
    messages = call.messages or ((Message(role="prompt", text=call.prompt),) if call.prompt else ())
    for message in messages:
        if message.role != "tool" or message.answers not in answered:
            yield _said(message.role, message.text, depth, full=full)
    if call.reply:
        yield _said("assistant", call.reply, depth, full=full)
    if call.error:
        yield Text("  " * depth + f"✗ {short(call.error, 400)}", style="red")


def _said(role: str, text: str, depth: int, *, full: bool) -> Text:
    text = plain(text).rstrip()
    if not full and len(text) > _LONG:
        text = f"{text[:_LONG]}… (+{len(text) - _LONG} characters: --full)"
    margin = "  " * depth
    body = "\n".join(f"{margin}  {line}" for line in text.splitlines())
    return Text.assemble(margin, (plain(role), _STYLES.get(role, "bold")), "\n", body)


def _tool(call: ToolCall, depth: int, *, full: bool) -> Text:
    margin, mark = "  " * depth, "→" if call.ok else "✗"
    style = "yellow" if call.ok else "red"
    answer = call.error if call.error and not call.result else call.result
    if not full:
        return Text(f"{margin}⚒ {short(call.tool, 40)}({short(call.arguments, 60)}) {mark} {short(answer, 80)}", style=style)
    parts = ((call.arguments, "  "), (f"{mark} {answer}", "  "))
    body = [f"{margin}{indent}{line}" for text, indent in parts for line in plain(text).splitlines()]
    return Text("\n".join([f"{margin}⚒ {short(call.tool, 200)}", *body]), style=style)


def tree(trace: Trace) -> Table:
    """Every step below the one that caused it, with what it took."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("step", no_wrap=True, overflow="ellipsis", ratio=1)
    for name in ("tokens", "cost", "time"):
        shown.add_column(name, justify="right", no_wrap=True)
    for depth, step in walk(trace.steps):
        bad = not step.ok if isinstance(step, ToolCall) else not isinstance(step, Reasoning) and step.error is not None
        what = Text("  " * depth + _named(step), style="red" if bad else "")
        used = tokens(step.input_tokens, step.output_tokens) if isinstance(step, ModelCall) else ""
        cost = dollars(step.cost) if isinstance(step, ModelCall) or (isinstance(step, ToolCall) and step.cost) else ""
        shown.add_row(what, used, cost, duration(step.seconds))
    return shown


def _named(step: Step) -> str:
    match step:
        case ModelCall():
            return f"model {short(step.model, 40)}  {short(step.error or step.reply, 60)}"
        case ToolCall():
            return f"tool {short(step.tool, 40)}" + ("" if step.ok else f"  failed: {short(step.error or step.result, 60)}")
        case Reasoning():
            return f"thinking  {short(step.text, 60)}"
        case AgentCall():
            return f"agent {short(step.agent, 40)}" + (f"  {short(step.error, 60)}" if step.error else "")


def moment(time: datetime, form: str) -> str:
    """On this machine's clock; nothing for the time that stands for none."""
    return "" if time == NO_TIME else f"{time.astimezone():{form}}"


def tokens(given: int | None, made: int | None) -> str:
    """Into the model → out of it."""
    return "?" if given is None and made is None else f"{_count(given)}→{_count(made)}"


def _count(number: int | None) -> str:
    if number is None:
        return "?"
    return str(number) if number < 10_000 else f"{number / 1e3:.0f}k" if number < 10_000_000 else f"{number / 1e6:.0f}M"


def dollars(cost: float | None) -> str:
    return "?" if cost is None else f"${cost:.2f}" if cost >= 1 or cost == 0 else f"${cost:.4f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def verdict(good: bool | None, by: str | None) -> str:
    """A label in a word; with a question mark when no person gave it."""
    return "" if good is None else ("good" if good else "bad") + ("?" if by == AUTO else "")


# What `journeyman traces stats` tells.


def agreement(found: "Sequence[LabelAgreement]") -> None:
    """How far every two people agree."""
    shown = Table("people", "both labelled", "agreed", "Cohen's κ", box=None, pad_edge=False, title_justify="left")
    for each in found:
        kappa = "unknown: all the same" if each.kappa is None else f"{each.kappa:.2f}"
        people = Text(" and ".join(map(short, each.people)))
        shown.add_row(people, str(each.traces), f"{each.agreed / each.traces:.0%}", kappa)
    console().print(shown)


def statistics(found: Statistics) -> None:
    """A table of all, then one for each way to group them."""
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


def _groups(title: str, groups: Sequence[StatisticsGroup], width: int) -> Table:
    known = [Text(short(group.name, 40) or "unknown") for group in groups]
    columns: dict[str, tuple[int, Callable[[StatisticsGroup], str]]] = {
        "traces": (0, lambda group: str(group.traces)),
        "good": (5, lambda group: str(group.good or "")),
        "bad": (5, lambda group: str(group.bad or "")),
        "reward": (3, lambda group: "" if group.mean_reward is None else f"{group.mean_reward:.3f}"),
        "errors": (4, lambda group: str(group.errors)),
        "calls": (8, lambda group: str(group.model_calls)),
        "tools failed": (9, lambda group: f"{group.failed_tool_calls}/{group.tool_calls}"),
        "tokens": (6, _group_tokens),
        "cost": (1, _group_cost),
        "median": (2, lambda group: duration(group.median_seconds)),
        "p95": (7, lambda group: duration(group.p95_seconds)),
    }
    numbers = (
        Column(name=name, spare=spare, cells=[Text(told(group)) for group in groups]) for name, (spare, told) in columns.items()
    )
    return fitted((Column(name=title, words=True, least=16, cells=known), *numbers), width)


def _group_tokens(group: StatisticsGroup) -> str:
    if group.uncounted and group.uncounted == group.model_calls:
        return "?"
    return tokens(group.input_tokens, group.output_tokens) + ("+" if group.uncounted else "")


def _group_cost(group: StatisticsGroup) -> str:
    if group.unpriced and group.unpriced == group.model_calls and not group.cost:
        return "?"
    return dollars(group.cost) + ("+" if group.unpriced else "")


def _tools(tools: Sequence[ToolStatistics], width: int) -> Table:
    return fitted(
        (
            Column(name="tool", words=True, cells=[Text(short(tool.tool, 40)) for tool in tools]),
            Column(name="calls", cells=[Text(str(tool.calls)) for tool in tools]),
            Column(name="failed", cells=[Text(str(tool.failures)) for tool in tools]),
            Column(
                name="share", spare=2, cells=[Text(f"{tool.failures / tool.calls:.1%}" if tool.calls else "") for tool in tools]
            ),
            Column(name="mean time", spare=1, cells=[Text(duration(tool.mean_seconds)) for tool in tools]),
        ),
        width,
    )
