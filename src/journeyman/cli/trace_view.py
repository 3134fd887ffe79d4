"""How traces are shown: a table of many, one as a conversation and as a tree, and statistics.

What stands in a trace was written by anybody: nothing in it is taken for markup, or for a command to the terminal.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from difflib import ndiff
from typing import TYPE_CHECKING

import click

from journeyman.cli import console
from journeyman.cli.console import Column, duration, minute, named_columns, number, plain, say, short, table, write
from journeyman.core.format import counted, money
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace, walk
from journeyman.stores.traces.base import AUTO, Given, Label, Statistics, StatisticsGroup, ToolStatistics, TraceSummary
from journeyman.tracing.base import NO_TIME

if TYPE_CHECKING:
    from journeyman.experiments.playground import StepAnswer
    from journeyman.rewards.calibration import IntervalEstimate
    from journeyman.rewards.signal_examination import JudgeFinding, SignalFinding, SignalReport

_LONG = 2_000
"""Characters of a message that are shown unless all was asked for."""
_COLOURS = {"user": "cyan", "assistant": "green", "tool": "yellow"}

_LIST = (
    Column(name="id", words=True, least=12),
    Column(name="started", words=True, least=11, spare=4),
    Column(name="agent", words=True, least=8, spare=5),
    Column(name="input", words=True, least=24),
    *(Column(name=name, spare=spare) for name, spare in (("calls", 8), ("tools", 7), ("tokens", 3), ("cost", 6))),
    *(Column(name=name, spare=spare) for name, spare in (("latency", 3), ("reward", 2), ("label", 1))),
)


def show_list(lines: Sequence[TraceSummary]) -> None:
    """On a terminal with the beginning of each id, which is enough to name it; elsewhere with the whole of it."""
    terminal = sys.stdout.isatty()
    columns = _LIST if terminal else (Column(name="id", words=True, least=_WHOLE), *_LIST[1:])
    rows = [_list_row(line, short(line.id, 20) if terminal else line.id) for line in lines]
    console.table(columns, rows, styles=["red" if line.error else None for line in lines])


def tail_line(line: TraceSummary) -> str:
    """One trace in one line, for a list that goes on."""
    id, begun, agent, asked, *_ = _list_row(line, line.id)
    took = [
        f"{line.tool_calls} tools" if line.tool_calls else "",
        money(line.cost) if line.cost else "",
        duration(line.seconds),
    ]
    return "  ".join(part for part in (begun, id, agent, asked, *took) if part)


_WHOLE = 1000


def _list_row(line: TraceSummary, id: str) -> tuple[str, ...]:
    failed = f" ({line.failed_tool_calls}✗)" if line.failed_tool_calls else ""
    return (
        id,
        _moment(line.started_at, "%m-%d %H:%M"),
        short(line.agent or "", 16),
        ("✗ " if line.error else "") + (short(line.title, 300) or f"({short(line.task_id)})"),
        str(line.model_calls),
        f"{line.tool_calls}{failed}",
        _tokens(line.input_tokens, line.output_tokens) if line.model_calls else "",
        money(line.cost) if line.model_calls or line.cost else "",
        duration(line.seconds),
        number(line.reward, ".2f", ""),
        _verdict(line.label, line.labelled_by),
    )


def show_trace(trace: Trace, labels: Sequence[Label], given: Sequence[Given], *, full: bool) -> None:
    """The head, the conversation, and the steps as a tree."""
    for name, value in _head(trace):
        click.echo(click.style(f"{name:<9}", dim=True) + plain(value))
    for label in labels:
        word = "taken back" if label.good is None else _verdict(label.good, None)
        sure = "" if label.probability is None else f", {label.probability:.0%} sure"
        click.echo(f"{'label':<9}{word} ({short(label.who)}{sure}, {minute(label.at)})")
    by = {each.reward: each.by for each in given}
    for reward in trace.rewards:
        source = f" [{short(by[reward])}]" if reward in by else ""
        value = number(reward.value, "g")
        click.echo(f"{'reward':<9}{short(reward.name)} {value}{source}  {short(reward.evidence, 400)}")
    click.echo()
    for text in conversation(trace, full=full):
        click.echo(text)
    click.echo()
    steps = list(walk(trace.steps))
    styles = ["red" if _is_bad(step) else None for _, step in steps]
    columns = [
        Column(name="step", words=True, least=24),
        *(Column(name=name, spare=1) for name in ("tokens", "cost", "latency")),
    ]
    console.table(columns, [_step_row(depth, step) for depth, step in steps], styles=styles)


def _head(trace: Trace) -> Iterator[tuple[str, str]]:
    models = Counter(call.model for call in trace.calls)
    yield "trace", trace.id
    yield "task", f"{trace.task_id} ({trace.domain})"
    yield from ((name, value) for name, value in (("agent", trace.agent), ("session", trace.session)) if value)
    begun = _moment(trace.started_at, "%Y-%m-%d %H:%M:%S") or "unknown"
    yield "started", f"{begun}, took {duration(trace.seconds) or 'unknown'}"
    if models:
        yield "models", ", ".join(f"{model} ({count})" for model, count in models.most_common())
        yield "tokens", _tokens(trace.input_tokens, trace.output_tokens) + f", cost {money(trace.cost)}"
    yield "in force", ", ".join(trace.candidate_ids) + (f", came in by {trace.source}" if trace.source else "")
    set_itself = (("created", trace.tasks_created), ("done", trace.tasks_completed), ("failed", trace.tasks_failed))
    yield from ((name, "; ".join(short(task) for task in tasks)) for name, tasks in set_itself if tasks)
    if trace.error:
        yield "error", trace.error
    if trace.said:
        verdict = trace.verdict
        yield "verdict", {True: "good: ", False: "bad: ", None: ""}[verdict.good] + verdict.reason


def conversation(trace: Trace, *, full: bool) -> Iterator[str]:
    """What was said, in the order of the steps. What a tool answered stands with its call, not again as a message."""
    answered = {step.id for step in trace.tool_calls if step.id}
    if trace.input is not None and not trace.calls:
        yield _message("user", trace.input, 0, full=full)
    for depth, step in walk(trace.steps):
        match step:
            case ModelCall():
                yield from _exchange(step, answered, depth, full=full)
            case ToolCall():
                yield _tool(step, depth, full=full)
            case Reasoning():
                yield _message("thinking", step.text, depth, full=full)
            case AgentCall():
                yield click.style("  " * depth + f"▸ agent {short(step.agent)}  {short(step.input)}", fg="magenta")
    # The last call's reply has been shown.
    if trace.output is not None and trace.output != (trace.calls[-1].reply if trace.calls else None):
        yield _message("answer", trace.output, 0, full=full)


def _exchange(call: ModelCall, answered: set[str], depth: int, *, full: bool) -> Iterator[str]:
    messages = call.messages or ((Message(role="prompt", text=call.prompt),) if call.prompt else ())
    for message in messages:
        if message.role != "tool" or message.answers not in answered:
            yield _message(message.role, message.text, depth, full=full)
    if call.reply:
        yield _message("assistant", call.reply, depth, full=full)
    if call.error:
        yield click.style("  " * depth + f"✗ {short(call.error, 400)}", fg="red")


def _message(role: str, text: str, depth: int, *, full: bool) -> str:
    text = plain(text).rstrip()
    if not full and len(text) > _LONG:
        text = f"{text[:_LONG]}… (+{len(text) - _LONG} characters: --full)"
    margin = "  " * depth
    body = "\n".join(f"{margin}  {line}" for line in text.splitlines())
    return f"{margin}{click.style(plain(role), fg=_COLOURS.get(role), bold=True)}\n{body}"


def _tool(call: ToolCall, depth: int, *, full: bool) -> str:
    margin, mark = "  " * depth, "→" if call.ok else "✗"
    colour = "yellow" if call.ok else "red"
    answer = call.error if call.error and not call.result else call.result
    if not full:
        line = f"{margin}⚒ {short(call.tool, 40)}({short(call.arguments, 60)}) {mark} {short(answer, 80)}"
        return click.style(line, fg=colour)
    parts = ((call.arguments, "  "), (f"{mark} {answer}", "  "))
    body = [f"{margin}{indent}{line}" for text, indent in parts for line in plain(text).splitlines()]
    return click.style("\n".join([f"{margin}⚒ {short(call.tool, 200)}", *body]), fg=colour)


def _is_bad(step: Step) -> bool:
    return not step.ok if isinstance(step, ToolCall) else not isinstance(step, Reasoning) and step.error is not None


def _step_row(depth: int, step: Step) -> tuple[str, ...]:
    """A step below the one that caused it, with what it took."""
    used = _tokens(step.input_tokens, step.output_tokens) if isinstance(step, ModelCall) else ""
    cost = money(step.cost) if isinstance(step, ModelCall) or (isinstance(step, ToolCall) and step.cost) else ""
    return "  " * depth + _named(step), used, cost, duration(step.seconds)


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


def _moment(time: datetime, form: str) -> str:
    """Nothing for the time that stands for none."""
    return "" if time == NO_TIME else console.local(time, form)


def _tokens(given: int | None, made: int | None) -> str:
    """Into the model → out of it."""
    return "?" if given is None and made is None else f"{_thousands(given)}→{_thousands(made)}"


def _thousands(count: int | None) -> str:
    if count is None:
        return "?"
    return str(count) if count < 10_000 else f"{count / 1e3:.0f}k" if count < 10_000_000 else f"{count / 1e6:.0f}M"


def _verdict(good: bool | None, by: str | None) -> str:
    """A label in a word; with a question mark when no person gave it."""
    return "" if good is None else ("good" if good else "bad") + ("?" if by == AUTO else "")


_GROUP: Mapping[str, tuple[int, Callable[[StatisticsGroup], str]]] = {
    "traces": (0, lambda group: str(group.traces)),
    "good": (5, lambda group: str(group.good or "")),
    "bad": (5, lambda group: str(group.bad or "")),
    "reward": (3, lambda group: number(group.mean_reward, unknown="")),
    "errors": (4, lambda group: str(group.errors)),
    "calls": (8, lambda group: str(group.model_calls)),
    "tools failed": (9, lambda group: f"{group.failed_tool_calls}/{group.tool_calls}"),
    "tokens": (6, lambda group: _group_tokens(group)),
    "cost": (1, lambda group: _group_cost(group)),
    "median": (2, lambda group: _group_time(group, group.median_seconds)),
    "p95": (7, lambda group: _group_time(group, group.p95_seconds)),
}
"""What is said of traces that belong together, by column, with when it is left out."""


def show_answers(before: "StepAnswer", after: "StepAnswer") -> None:
    """A recorded answer and a new one, side by side, each line of the new one marked that differs."""
    rows = [
        ("model", *(short(each.model) or "unknown" for each in (before, after))),
        ("tokens", *(_tokens(each.input_tokens, each.output_tokens) for each in (before, after))),
        ("cost", *(money(each.cost) for each in (before, after))),
        ("latency", *(duration(each.seconds) for each in (before, after))),
        ("verdict", *(short(each.judged) for each in (before, after))),
    ]
    table([Column(name="", words=True), *(Column(name=name, words=True) for name in ("recorded", "asked again"))], rows)
    write(
        "", *(plain(line.rstrip("\n")) for line in ndiff(before.text.splitlines(), after.text.splitlines()) if line[:1] != "?")
    )


def show_statistics(found: Statistics) -> None:
    """A table of all, then one for each way to group them."""
    _show_groups("", [found.all])
    for title, groups in (
        ("agent", found.by_agent),
        ("model", found.by_model),
        ("release", found.by_candidate),
        ("day (UTC)", found.by_day),
    ):
        if groups:
            click.echo()
            _show_groups(title, groups)
    if found.tools:
        click.echo()
        spare = {"share": 2, "mean time": 1}
        columns = [Column(name=name, spare=spare.get(name, 0)) for name in ("calls", "failed", "share", "mean time")]
        console.table([Column(name="tool", words=True), *columns], map(_tool_row, found.tools))
    without = [
        f"{counted(number, one, several)} {what}"
        for number, one, several, what in (
            (found.all.unpriced, "call has", "calls have", "no known price"),
            (found.all.uncounted, "call was", "calls were", "not counted in tokens"),
        )
        if number
    ]
    if without:
        click.echo(f"? unknown, + and more: {', '.join(without)}")


def show_signals(report: "SignalReport") -> None:
    """Each signal in a line, then each judge."""
    columns = [
        Column(name="signal", words=True, least=24),
        Column(name="of a", spare=2, words=True, least=7),
        Column(name="fires"),
        Column(name="AUC for failure"),
        Column(name="failed if it fires", spare=3),
        Column(name="failed if not", spare=4),
        Column(name="vote"),
        Column(name="why", words=True, wraps=True, least=30),
    ]
    console.table(columns, [_signal_row(found) for found in report.findings])
    known = f"of {counted(report.attempts, 'attempt')} {report.labelled} are known to be right or wrong, {report.failed} wrong"
    aside = f"; {counted(report.held_out, 'attempt')} at held-out tasks left aside" if report.held_out else ""
    say(f"{known}, in {counted(report.groups, 'group')}{aside}")
    if report.judges:
        names = named_columns("judge", "agent", "sessions", "AUC for success", "vote")
        console.table([*names, Column(name="why", words=True, wraps=True, least=30)], map(_judge_row, report.judges))


def _signal_row(found: "SignalFinding") -> tuple[str, ...]:
    vote = f"{found.signal.weight:g}" if found.votes else "none"
    return (
        found.signal.name,
        found.signal.granularity.value,
        f"{found.fires / found.known:.0%}",
        _within(found.auc),
        _within(found.fail_if_fires),
        _within(found.fail_if_not),
        vote,
        found.reason,
    )


def _judge_row(found: "JudgeFinding") -> tuple[str, ...]:
    from journeyman.rewards.signal_examination import refusal

    why = refusal(found)
    vote = "its own P" if why is None else "none"
    return short(found.name), short(found.agent or ""), str(found.sessions), _within(found.standing.auc), vote, why or ""


def _within(found: "IntervalEstimate | None") -> str:
    return "" if found is None else f"{found.value:.2f} [{found.low:.2f}, {found.high:.2f}]"


def _show_groups(title: str, groups: Sequence[StatisticsGroup]) -> None:
    columns = [
        Column(name=title, words=True, least=16),
        *(Column(name=name, spare=spare) for name, (spare, _) in _GROUP.items()),
    ]
    rows = ([short(group.name, 40) or "unknown", *(cell(group) for _, cell in _GROUP.values())] for group in groups)
    console.table(columns, rows)


def _tool_row(tool: ToolStatistics) -> tuple[str, ...]:
    share = f"{tool.failures / tool.calls:.1%}" if tool.calls else ""
    return short(tool.tool, 40), str(tool.calls), str(tool.failures), share, duration(tool.mean_seconds)


def _group_tokens(group: StatisticsGroup) -> str:
    if not group.model_calls:
        return ""
    return _tokens(group.input_tokens, group.output_tokens) + (
        "+" if group.uncounted and group.input_tokens is not None else ""
    )


def _group_time(group: StatisticsGroup, seconds: float | None) -> str:
    """Of so many, where of others no time is known."""
    return (
        f"{duration(seconds)} (of {group.timed})" if seconds is not None and group.timed < group.traces else duration(seconds)
    )


def _group_cost(group: StatisticsGroup) -> str:
    if not group.model_calls:
        return ""
    return money(group.cost) + ("+" if group.unpriced and group.cost is not None else "")
