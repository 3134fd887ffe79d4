"""Alerts: what is watched, what was measured, and what follows from it. Pure: clock and measurements are handed in.

An alert begins as pending, fires when what was measured stays bad for as long as its rule says, and is resolved when it is good
again. What cannot be measured changes nothing: it neither fires nor resolves; what is pending lapses then after a while.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import uuid4

from journeyman.core.errors import InputError

ANYTHING = "*"


class Severity(StrEnum):
    PAGE = "page"
    """Somebody should look now."""
    TICKET = "ticket"
    """Somebody should look these days."""


class AlertState(StrEnum):
    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"


class AlertChange(StrEnum):
    """What happened to an alert."""

    PENDING = "pending"
    FIRING = "firing"
    REPEATED = "repeated"
    """It fires still, and is told again."""
    ACKNOWLEDGED = "acknowledged"
    """Somebody sees to it: it is not told again."""
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """What is watched. It stands ready without any setting."""

    name: str
    says: str
    """What it watches, in one sentence."""
    severity: Severity = Severity.PAGE
    hold: timedelta = timedelta(0)
    """For so long it must be bad before it fires."""
    repeat: timedelta | None = None
    """After so long it is told again; `None`: once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What was found of a rule at one moment."""

    rule: str
    subject: str = ""
    """Of what: a resource, a pair of windows, a rollout. Each has an alert of its own."""
    breached: bool | None
    """`None` where nobody can tell."""
    value: float | None = None
    bound: float | None = None
    says: str
    """What was found, in one sentence."""
    slot: str = ""
    severity: Severity | None = None
    """Where it is not the rule's."""
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """The same for the same rule and subject, for ever."""
        return hashlib.sha256(f"{self.rule}\0{self.subject}".encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert after a change. Its story is all of them, in the order of their numbers."""

    fingerprint: str
    number: int
    rule: str
    subject: str
    slot: str
    severity: Severity
    state: AlertState
    change: AlertChange
    tells: bool
    """Whether channels are told of this change."""
    value: float | None
    bound: float | None
    says: str
    evidence: Mapping[str, Any]
    began_at: datetime
    """Since when it is bad."""
    fired_at: datetime | None
    told_at: datetime | None
    """When channels were last told that it fires; `None` where they never were."""
    acknowledged_by: str
    at: datetime
    who: str

    @property
    def name(self) -> str:
        """The rule, and of what."""
        return f"{self.rule} ({self.subject})" if self.subject else self.rule

    @property
    def is_open(self) -> bool:
        return self.state is not AlertState.RESOLVED

    def as_json(self) -> dict[str, Any]:
        times = {name: None if at is None else at.isoformat() for name in ("began_at", "fired_at", "told_at", "at")
                 for at in (getattr(self, name),)}  # fmt: skip
        words = {name: getattr(self, name) for name in ("fingerprint", "number", "rule", "subject", "slot")}
        found = {"value": self.value, "bound": self.bound, "says": self.says, "evidence": dict(self.evidence)}
        states = {"severity": self.severity.value, "state": self.state.value, "change": self.change.value}
        return {**words, **states, "tells": self.tells, **found, **times, "acknowledged_by": self.acknowledged_by or None,
                "who": self.who}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Alerts that are not told for a while. They still fire, and are seen."""

    id: str
    rule: str = ANYTHING
    about: str = ANYTHING
    """A subject, or a slot."""
    until: datetime
    who: str
    why: str
    at: datetime
    lifted_by: str = ""

    def __post_init__(self) -> None:
        if not self.why.strip():
            raise InputError("a silence needs a reason: say why in one sentence, as it is kept")
        if not self.lifted_by and self.until <= self.at:
            raise InputError("a silence ends after it begins")

    @classmethod
    def begun(cls, rule: str, about: str, length: timedelta, by: tuple[str, str], now: datetime) -> "Silence":
        """One that begins now.

        Args:
            by: Who says so, and why.
        """
        who, why = by
        return cls(id=uuid4().hex[:12], rule=rule, about=about, until=now + length, who=who, why=why, at=now)

    def covers(self, rule: str, subject: str, slot: str, now: datetime) -> bool:
        about = self.about == ANYTHING or self.about in (subject, slot)
        return about and self.rule in (ANYTHING, rule) and self.at <= now < self.until

    def lifted(self, who: str, now: datetime) -> "Silence":
        return replace(self, until=min(self.until, now), lifted_by=who)

    def as_json(self) -> dict[str, Any]:
        said = {name: getattr(self, name) for name in ("id", "rule", "about", "who", "why")}
        return {**said, "at": self.at.isoformat(), "until": self.until.isoformat(), "lifted_by": self.lifted_by or None}


def step(
    rule: AlertRule, before: Alert | None, found: Measurement, now: datetime, silences: Iterable[Silence] = ()
) -> Alert | None:
    """The alert after a measurement; `None` where nothing changes.

    Args:
        before: The last change of the same fingerprint.
    """
    goes_on = before if before is not None and before.is_open else None
    if found.breached is None and goes_on is not None and _lapsed(rule, goes_on, now):
        return _after(rule, before, found, now, AlertChange.RESOLVED, tells=False)
    quiet = any(each.covers(found.rule, found.subject, found.slot, now) for each in silences)
    if found.breached is None or (not found.breached and goes_on is None):
        return None
    if not found.breached and goes_on is not None:
        # Whoever was told that it fires is told that it is over, silenced or not.
        return _after(rule, before, found, now, AlertChange.RESOLVED, tells=goes_on.told_at is not None)
    if goes_on is not None and goes_on.state is AlertState.FIRING:
        return _again(rule, goes_on, found, now, quiet=quiet)
    if now - (goes_on.began_at if goes_on else now) >= rule.hold:
        return _after(rule, before, found, now, AlertChange.FIRING, tells=not quiet)
    return None if goes_on else _after(rule, before, found, now, AlertChange.PENDING, tells=False)


def _lapsed(rule: AlertRule, before: Alert, now: datetime) -> bool:
    """Whether what is pending has not been known for longer than it must be bad: had it been seen bad by then, it would
    fire."""
    return before.state is AlertState.PENDING and now - before.began_at > 2 * rule.hold


def _again(rule: AlertRule, firing: Alert, found: Measurement, now: datetime, *, quiet: bool) -> Alert | None:
    if quiet or firing.acknowledged_by:
        return None
    if firing.told_at is not None and (rule.repeat is None or now - firing.told_at < rule.repeat):
        return None
    return _after(rule, firing, found, now, AlertChange.REPEATED, tells=True)


_STATES = {
    AlertChange.PENDING: AlertState.PENDING,
    AlertChange.FIRING: AlertState.FIRING,
    AlertChange.REPEATED: AlertState.FIRING,
    AlertChange.RESOLVED: AlertState.RESOLVED,
}


def _after(
    rule: AlertRule, before: Alert | None, found: Measurement, now: datetime, change: AlertChange, *, tells: bool
) -> Alert:
    goes_on = before if before is not None and before.is_open else None
    state = _STATES[change]
    fires = change in (AlertChange.FIRING, AlertChange.REPEATED)
    fired_at = goes_on.fired_at if goes_on else None
    return Alert(
        fingerprint=found.fingerprint,
        number=before.number + 1 if before else 1,
        rule=found.rule,
        subject=found.subject,
        slot=found.slot,
        severity=found.severity or rule.severity,
        state=state,
        change=change,
        tells=tells,
        value=found.value,
        bound=found.bound,
        says=found.says,
        evidence=found.evidence,
        began_at=goes_on.began_at if goes_on else now,
        fired_at=fired_at or (now if fires else None),
        told_at=now if fires and tells else goes_on.told_at if goes_on else None,
        acknowledged_by=goes_on.acknowledged_by if goes_on else "",
        at=now,
        who="monitor",
    )


def acknowledged(alert: Alert, who: str, now: datetime) -> Alert:
    """The alert once somebody sees to it.

    Raises:
        InputError: It does not fire.
    """
    if alert.state is not AlertState.FIRING:
        raise InputError(f"{alert.name} is {alert.state}; only what fires is acknowledged")
    return replace(
        alert, number=alert.number + 1, change=AlertChange.ACKNOWLEDGED, tells=False, acknowledged_by=who, at=now, who=who
    )


# An alert as others are told of it: the webhook of Alertmanager, version 4.

NEVER = "0001-01-01T00:00:00Z"
"""The end of what goes on."""


def webhook_body(alert: Alert, receiver: str) -> dict[str, Any]:
    """What Alertmanager would send of it, for JSON."""
    status = "resolved" if alert.state is AlertState.RESOLVED else "firing"
    labels = {"alertname": f"journeyman_{alert.rule}", "severity": alert.severity.value, "rule": alert.rule}
    labels |= {"subject": alert.subject} if alert.subject else {}
    labels |= {"journeyman_slot": alert.slot} if alert.slot else {}
    annotations = {"summary": alert.says}
    numbers = {"value": alert.value, "bound": alert.bound}
    annotations |= {name: f"{number:g}" for name, number in numbers.items() if number is not None}
    one = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": (alert.fired_at or alert.began_at).isoformat(),
        "endsAt": alert.at.isoformat() if status == "resolved" else NEVER,
        "generatorURL": "",
        "fingerprint": alert.fingerprint,
    }
    return {
        "version": "4",
        "groupKey": f'{{}}:{{alertname="{labels["alertname"]}"}}',
        "truncatedAlerts": 0,
        "status": status,
        "receiver": receiver,
        "groupLabels": {"alertname": labels["alertname"]},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": "",
        "alerts": [one],
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class OutsideAlert:
    """One alert of a webhook that came from elsewhere."""

    firing: bool
    labels: Mapping[str, str]
    summary: str

    @property
    def name(self) -> str:
        return _short(self.labels.get("alertname", "")) or "an alert without a name"


_MOST = 1000


def _short(text: str) -> str:
    """On one line, and no book."""
    return " ".join(text.split())[:500]


def read_webhook(body: Any) -> tuple[OutsideAlert, ...]:
    """
    Raises:
        InputError: It is not what Alertmanager sends, version 4.
    """
    if not isinstance(body, Mapping) or body.get("version") != "4":
        raise InputError('the body is no webhook of Alertmanager: an object with "version": "4" and a list of alerts')
    told = body.get("alerts")
    if not isinstance(told, list) or not told or len(told) > _MOST:
        raise InputError(f"alerts is a list of 1 to {_MOST} alerts")
    return tuple(_outside(each) for each in told)


def _outside(told: Any) -> OutsideAlert:
    if not isinstance(told, Mapping) or told.get("status") not in ("firing", "resolved"):
        raise InputError("an alert is an object whose status is firing or resolved")
    labels, notes = told.get("labels", {}), told.get("annotations", {})
    for name, each in (("labels", labels), ("annotations", notes)):
        if not isinstance(each, Mapping) or not all(isinstance(value, str) for value in each.values()):
            raise InputError(f"{name} of an alert is an object of texts")
    summary = notes.get("summary") or notes.get("description") or ""
    return OutsideAlert(firing=told["status"] == "firing", labels=labels, summary=_short(summary))
