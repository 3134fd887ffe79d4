"""`journeyman alerts`: what fires, what is watched, and who is told."""

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import minute, rows_table, say
from journeyman.cli.lazy import LazyGroup
from journeyman.cli.shared import answering, emit, json_option, person, read_store_url
from journeyman.core.alert import ANYTHING, Alert, AlertRule, Measurement, Silence
from journeyman.core.errors import InputError

if TYPE_CHECKING:
    from journeyman.stores.alerts import AlertStore

_LATER = {"grafana": "Print a dashboard of Grafana for what /metrics tells."}


@click.group(cls=LazyGroup, lines=_LATER, homes={"grafana": "grafana:command"})
def command() -> None:
    """See what fires, say that you see to it, keep it quiet, and try who is told.

    The rules stand ready without any setting; bounds and channels stand under [alerts] in journeyman.toml. The monitor that
    journeyman serve starts measures and tells. As much of an alert's ID as tells it apart is enough.

    \b
    Examples:
      journeyman alerts list
      journeyman alerts ack 3f2a
      journeyman alerts test page
    """


def _opened(store: str | None, *, make: bool = False) -> "AlertStore":
    from journeyman.stores.alerts import open_alerts

    return open_alerts(read_store_url(store), make=make)


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also what was: each change, newest first.")
@click.option("--rule", metavar="NAME", help="Of this rule.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, metavar="N", help="So many changes at most.")
@answering
def list_(*, everything: bool, rule: str | None, limit: int, store: str | None, quiet: bool) -> dict[str, Any]:
    """List what fires, what may soon, and what is silenced.

    \b
    Examples:
      journeyman alerts list
      journeyman alerts list --all --rule error_rate
    """
    now = datetime.now(UTC)
    with _opened(store) as kept:
        now_open = [each for each in (*kept.firing(), *kept.pending()) if rule in (None, each.rule)]
        history = kept.history(limit=limit, rule=rule) if everything else ()
        silences, waiting, ended = kept.silences(now), kept.undelivered(), kept.given_up(now - timedelta(days=1))
    if not quiet:
        _rows(history if everything else now_open)
        if not (history if everything else now_open):
            say("Nothing fires." if not everything else "Nothing has ever fired.")
        for silence in silences:
            what = f"{silence.rule} about {silence.about}" if silence.about != ANYTHING else silence.rule
            say(f"silenced: {what} until {minute(silence.until)} by {silence.who}: {silence.why} ({silence.id})")
        for each in waiting:
            said = f" ({each.detail}; {each.attempts} tries)" if each.detail else ""
            say(f"still to be told: {each.alert.name} {each.alert.state} to {each.channel}{said}")
        for each in ended:
            say(f"told no more: {each.alert.name} {each.alert.state} to {each.channel} ({each.detail})")
    told = {"alerts": [each.as_json() for each in now_open], "silences": [each.as_json() for each in silences]}
    late, never = (
        [
            {"fingerprint": each.alert.fingerprint, "number": each.alert.number, "channel": each.channel,
             "attempts": each.attempts, "detail": each.detail} for each in some
        ] for some in (waiting, ended)
    )  # fmt: skip
    return (
        told
        | {"undelivered": late, "given_up": never}
        | ({"history": [each.as_json() for each in history]} if everything else {})
    )


def _rows(alerts: Sequence[Alert]) -> None:
    rows = [
        (
            each.fingerprint[:8],
            each.change.value,
            each.severity.value,
            each.name,
            minute(each.at),
            each.acknowledged_by,
            each.says,
        )
        for each in alerts
    ]
    if rows:
        rows_table(("id", "change", "severity", "rule", "at", "seen to by", "what"), rows)


@command.command("rules")
@answering
def rules(*, store: str | None, quiet: bool) -> dict[str, Any]:
    """List the rules, their bounds, and what each finds now. Nothing is kept or told.

    \b
    Example:
      journeyman alerts rules
    """
    from journeyman.experiments import settings
    from journeyman.serving.alerts.rules import Measurer
    from journeyman.serving.alerts.samples import Sampler

    project, now = settings.load(), datetime.now(UTC)
    measurer = Measurer(project.settings.alerts)
    with _opened(store) as kept:
        found = list(measurer.found(kept.measures, now, Sampler(project.folder, {}).look(now)[:1], ()))
    if not quiet:
        _rule_rows(measurer.rules.values(), found)
    return {"rules": [_rule_told(each, [one for one in found if one.rule == each.name]) for each in measurer.rules.values()]}


def _rule_rows(known: Iterable[AlertRule], found: Sequence[Measurement]) -> None:
    words = {True: "too much", False: "fine", None: "unknown"}
    rows = []
    for rule in known:
        now = [each for each in found if each.rule == rule.name]
        rows += [
            (rule.name, (each.severity or rule.severity).value, rule.says, words[each.breached], each.says) for each in now
        ] or [(rule.name, rule.severity.value, rule.says, "", "")]
    rows_table(("rule", "severity", "fires when", "now", "what"), rows)


def _rule_told(rule: AlertRule, found: Sequence[Measurement]) -> dict[str, Any]:
    names = ("subject", "severity", "breached", "value", "bound", "says")
    return {
        "rule": rule.name,
        "says": rule.says,
        "severity": rule.severity.value,
        "for_seconds": rule.hold.total_seconds(),
        "repeat_seconds": None if rule.repeat is None else rule.repeat.total_seconds(),
        "now": [{name: getattr(each, name) for name in names} for each in found],
    }


@command.command("ack")
@click.argument("alert", metavar="ALERT")
@click.option("--who", metavar="NAME", help="Who sees to it.  [default: $JOURNEYMAN_USER, else who is logged in]")
@answering
def ack(*, alert: str, who: str | None, store: str | None, quiet: bool) -> dict[str, Any]:
    """Say that you see to what fires: it is not told again until it is over.

    \b
    Example:
      journeyman alerts ack 3f2a
    """
    with _opened(store) as kept:
        seen = kept.acknowledge(_named(kept.firing(), alert), person(who), datetime.now(UTC))
    if not quiet:
        say(f"{seen.name}: {seen.acknowledged_by} sees to it")
    return {"done": True, "alert": seen.as_json()}


def _named(firing: Sequence[Alert], text: str) -> Alert:
    """What fires, by its ID or the name of its rule."""
    found = [each for each in firing if text and (each.fingerprint.startswith(text) or text in (each.rule, each.name))]
    if len(found) != 1:
        there = ", ".join(f"{each.fingerprint[:8]} {each.name}" for each in found or firing) or "nothing"
        raise InputError(f"{text}: {'several' if found else 'none'} of what fires is called so; what fires: {there}")
    return found[0]


@command.command("silence")
@click.argument("rule", metavar="[RULE]", default=ANYTHING)
@click.option("--about", default=ANYTHING, metavar="TEXT", help="Of this subject or slot alone.")
@click.option("--for", "span", default="1h", show_default=True, metavar="TIME", help="For so long: 30m, 4h, 3d.")
@click.option("--reason", required=True, metavar="TEXT", help="Why, in one sentence; it is kept.")
@click.option("--who", metavar="NAME", help="Who says so.  [default: $JOURNEYMAN_USER, else who is logged in]")
@answering
def silence(  # noqa: PLR0913 - a parameter an option
    *, rule: str, about: str, span: str, reason: str, who: str | None, store: str | None, quiet: bool
) -> dict[str, Any]:
    """Keep alerts from being told for a while. They still fire, and are seen.

    \b
    Examples:
      journeyman alerts silence latency --for 2h --reason "the model server is moved"
      journeyman alerts silence --about context:desk/oslo --reason "a drill"
    """
    from journeyman.experiments import settings
    from journeyman.serving.alerts.rules import rules as known

    names = known(settings.load().settings.alerts)
    if rule != ANYTHING and rule not in names:
        raise InputError(f"there is no rule {rule!r}; there are {', '.join(names)}")
    try:
        length = settings.duration(span)
    except ValueError as error:
        raise InputError(f"--for {span} {error}") from None
    made = Silence.begun(rule, about, length, (person(who), reason), datetime.now(UTC))
    # One that is said before anything was recorded holds, too.
    with _opened(store, make=True) as kept:
        kept.silence(made)
    if not quiet:
        say(f"silenced until {minute(made.until)} ({made.id})")
    return {"done": True, "silence": made.as_json()}


@command.command("unsilence")
@click.argument("silence", metavar="ID")
@click.option("--who", metavar="NAME", help="Who says so.  [default: $JOURNEYMAN_USER, else who is logged in]")
@answering
def unsilence(*, silence: str, who: str | None, store: str | None, quiet: bool) -> dict[str, Any]:
    """Let alerts be told again before their silence is over.

    \b
    Example:
      journeyman alerts unsilence 81c0
    """
    with _opened(store) as kept:
        lifted = kept.lift(silence, person(who), datetime.now(UTC))
    if not quiet:
        say(f"lifted: {lifted.rule} ({lifted.id})")
    return {"done": True, "silence": lifted.as_json()}


@command.command("test")
@click.argument("channel", metavar="CHANNEL")
@json_option
def test(channel: str, *, as_json: bool) -> int:
    """Send a test alert to a channel, and say whether it was delivered.

    \b
    Example:
      journeyman alerts test page
    """
    from journeyman.experiments import settings
    from journeyman.serving.alerts import channels
    from journeyman.serving.alerts.watch import trial

    known = settings.load().settings.alerts.channels
    if channel not in known:
        there = ", ".join(known) or "none; write one as [alerts.channels.NAME] with url_env"
        raise InputError(f"there is no channel {channel!r}; there are {there}")
    fault = ""
    try:
        channels.channel(channel, known[channel], os.environ).send(trial(datetime.now(UTC)))
    except channels.DeliveryFailed as error:
        fault = str(error)
    say(f"not delivered: {fault}" if fault else f"delivered to {channel}")
    emit({"channel": channel, "delivered": not fault, "reason": fault or None}, as_json=as_json)
    return int(bool(fault))
