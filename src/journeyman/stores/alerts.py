"""What alerts there were and are, what is silenced, whom is still to be told, and how busy the machine was.

Changes of alerts are added, never changed, and of two monitors that find the same change one keeps it. With a change that is
told, what each channel is to be told is written in the same transaction. Who sends it claims the try first: of two, one does.
A claim lapses, so that a sender that was killed does not keep an alert from being told; where it was killed between sending and
saying so, the alert is told twice.
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from journeyman.core.alert import Alert, AlertChange, AlertState, Severity, Silence, acknowledged
from journeyman.core.errors import InputError
from journeyman.io.retry import RetryPolicy
from journeyman.stores.assignments import LeaseStore
from journeyman.stores.base import utc
from journeyman.stores.engine import PATIENCE
from journeyman.stores.measures import Measures
from journeyman.stores.tables import ALERTS, OUTBOX, SAMPLES, SILENCES
from journeyman.stores.traces.writing import insert, take_turn
from journeyman.stores.urls import as_url

Row = sa.Row[Any]
CLAIM_SECONDS = 60.0
"""For which a try that was begun is left to who began it: longer than any channel may take."""
RETRY = RetryPolicy(first_wait=5.0, longest_wait=900.0)
"""A channel that is away is asked again for ever, at last every quarter of an hour."""
MACHINE = "machine"
"""The process of a sample that stands for all of them."""


class DeliveryStatus(StrEnum):
    WAITING = "waiting"
    CLAIMED = "claimed"
    FAILED = "failed"
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"
    """Nobody is told of it any more."""


class Delivery(NamedTuple):
    """What a channel is to be told."""

    alert: Alert
    channel: str
    attempts: int
    """Tries that were begun."""
    due_at: datetime
    detail: str
    """Why the last try failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSample:
    """How busy a machine, or a process on it, was at a moment. `None` where nobody can tell: unknown is not zero."""

    at: datetime
    host: str
    process: str = MACHINE
    """`machine`, or what the process is there for."""
    cpu: float | None = None
    """The share of all processors."""
    memory: float | None = None
    """The share of the memory that there is, or may be used."""
    memory_bytes: int | None = None
    gpu: float | None = None
    gpu_memory: float | None = None
    disk: float | None = None
    """The share that is used where the project is."""


class AlertStore(LeaseStore):
    """Keeps alerts in one database. May be used by several threads and processes at once."""

    @property
    def measures(self) -> Measures:
        """What was recorded, counted."""
        return Measures(self._database)

    # Alerts.

    def latest(self) -> Mapping[str, Alert]:
        """The last change of each alert, by its fingerprint; of those that are resolved, too."""
        last = sa.select(sa.func.max(ALERTS.c.seq)).group_by(ALERTS.c.fingerprint)
        with self._database.read() as connection:
            rows = connection.execute(sa.select(ALERTS).where(ALERTS.c.seq.in_(last)).order_by(ALERTS.c.seq)).all()
        return {row.fingerprint: _alert(row) for row in rows}

    def firing(self) -> Sequence[Alert]:
        """What fires now, oldest first."""
        return firing_of(self.latest().values())

    def pending(self) -> Sequence[Alert]:
        """What is bad, and not yet for long enough."""
        return pending_of(self.latest().values())

    def acknowledge(self, alert: Alert, who: str, now: datetime) -> Alert:
        """Keep that somebody sees to it.

        Raises:
            InputError: It does not fire, or is not any more as it was looked at.
        """
        seen = acknowledged(alert, who, now)
        if not self.add([seen]):
            raise InputError(f"{alert.name} changed meanwhile; look again: journeyman alerts list")
        return seen

    def history(self, *, limit: int = 100, rule: str | None = None, fingerprint: str | None = None) -> Sequence[Alert]:
        """Changes, newest first."""
        found = sa.select(ALERTS).order_by(ALERTS.c.seq.desc()).limit(limit)
        found = found.where(ALERTS.c.rule == rule) if rule else found
        found = found.where(ALERTS.c.fingerprint == fingerprint) if fingerprint else found
        with self._database.read() as connection:
            return [_alert(row) for row in connection.execute(found)]

    def add(self, alerts: Iterable[Alert], channels: Sequence[str] = ()) -> Sequence[Alert]:
        """Keep changes, and for each that is told what every channel is to be told; those that somebody else had kept before
        are left out of what is given back."""
        kept: list[Alert] = []
        with self._database.write() as connection:
            take_turn(connection)
            for each in alerts:
                if insert(connection, ALERTS, [_row(each)]):
                    kept.append(each)
                    waiting = [_try((each, name, 0), DeliveryStatus.WAITING, each.at, each.at) for name in channels]
                    insert(connection, OUTBOX, waiting if each.tells else [])
        return kept

    # What is still to be told.

    def deliveries(self, now: datetime) -> Sequence[Delivery]:
        """What is due, oldest first: of one alert to one channel, only what comes next."""
        return [each for each in self.undelivered() if each.due_at <= utc(now)]

    def undelivered(self) -> Sequence[Delivery]:
        """What is still to be told; of one alert to one channel, only what comes next."""
        begun, done = OUTBOX.alias(), OUTBOX.alias()
        same = [done.c[name] == begun.c[name] for name in ("fingerprint", "number", "channel")]
        told = sa.exists().where(*same, done.c.status.in_((DeliveryStatus.DELIVERED.value, DeliveryStatus.GIVEN_UP.value)))
        waiting = sa.select(begun.c.fingerprint, begun.c.number, begun.c.channel).where(begun.c.attempt == 0, ~told)
        nexts: dict[tuple[str, str], int] = {}
        with self._database.read() as connection:
            for row in connection.execute(waiting.order_by(begun.c.seq)):
                nexts.setdefault((row.fingerprint, row.channel), row.number)
            return [
                found
                for (fingerprint, channel), number in nexts.items()
                if (found := _delivery(connection, fingerprint, number, channel)) is not None
            ]

    def claim(self, delivery: Delivery, now: datetime) -> bool:
        """Begin a try; whether it is this caller's to make."""
        due = utc(now) + timedelta(seconds=CLAIM_SECONDS)
        row = _try((delivery.alert, delivery.channel, delivery.attempts + 1), DeliveryStatus.CLAIMED, due, utc(now))
        with self._database.write() as connection:
            return bool(insert(connection, OUTBOX, [row]))

    def told(self, delivery: Delivery, now: datetime, fault: str = "") -> None:
        """Say how a try that was claimed ended: delivered, or why it was not. Then it is tried again, after waits that
        double."""
        tries = delivery.attempts + 1
        wait = timedelta(seconds=RETRY.backoff(tries, random.Random(f"{delivery.alert.fingerprint}{tries}")) if fault else 0)
        status = DeliveryStatus.FAILED if fault else DeliveryStatus.DELIVERED
        row = _try((delivery.alert, delivery.channel, tries), status, utc(now) + wait, utc(now), fault)
        with self._database.write() as connection:
            insert(connection, OUTBOX, [row])

    def give_up(self, delivery: Delivery, now: datetime, why: str) -> None:
        """Try no more."""
        key = (delivery.alert, delivery.channel, delivery.attempts)
        with self._database.write() as connection:
            insert(connection, OUTBOX, [_try(key, DeliveryStatus.GIVEN_UP, now, now, why)])

    def given_up(self, since: datetime) -> Sequence[Delivery]:
        """What nobody was told of, and is not tried any more, since then; newest first."""
        ended = sa.select(OUTBOX).where(OUTBOX.c.status == DeliveryStatus.GIVEN_UP.value, OUTBOX.c.at >= utc(since))
        with self._database.read() as connection:
            rows = connection.execute(ended.order_by(OUTBOX.c.seq.desc())).all()
            found = (_delivery(connection, row.fingerprint, row.number, row.channel) for row in rows)
            return [each for each in found if each is not None]

    # Silences.

    def silences(self, now: datetime | None = None) -> Sequence[Silence]:
        """Newest first; those that hold at a moment, or all that there were."""
        with self._database.read() as connection:
            rows = connection.execute(sa.select(SILENCES).order_by(SILENCES.c.seq)).all()
        latest = {row.id: _silence(row) for row in rows}
        found = reversed(latest.values())
        return [each for each in found if now is None or each.at <= now < each.until]

    def silence(self, silence: Silence) -> None:
        self._say(silence, 1)

    def lift(self, id: str, who: str, now: datetime) -> Silence:
        """
        Raises:
            InputError: There is none of that id that still holds, or several begin so.
        """
        found = [each for each in self.silences(now) if id and each.id.startswith(id)]
        if len(found) != 1:
            said = (
                "more than one silence has an id that begins so" if found else "no silence that holds has an id that begins so"
            )
            raise InputError(f"{id}: {said}; journeyman alerts list shows them")
        lifted = found[0].lifted(who, now)
        self._say(lifted, 2)
        return lifted

    def _say(self, silence: Silence, number: int) -> None:
        row = {**asdict(silence), "number": number, "until": utc(silence.until), "at": utc(silence.at)}
        with self._database.write() as connection:
            insert(connection, SILENCES, [row])

    # Samples.

    def add_samples(self, samples: Iterable[ResourceSample]) -> None:
        with self._database.write(swift=True) as connection:
            insert(connection, SAMPLES, [{**asdict(each), "at": utc(each.at)} for each in samples])

    def samples(self, since: datetime, *, process: str | None = None, limit: int = 50_000) -> Sequence[ResourceSample]:
        """From then on, oldest first; of more than `limit` the newest."""
        found = sa.select(SAMPLES).where(SAMPLES.c.at >= utc(since)).order_by(SAMPLES.c.at.desc(), SAMPLES.c.seq).limit(limit)
        found = found if process is None else found.where(SAMPLES.c.process == process)
        with self._database.read() as connection:
            return _samples(reversed(connection.execute(found).all()))

    def newest_samples(self, since: datetime) -> Sequence[ResourceSample]:
        """The last since then of each machine, and of each process on one."""
        last = sa.select(sa.func.max(SAMPLES.c.seq)).where(SAMPLES.c.at >= utc(since))
        found = sa.select(SAMPLES).where(SAMPLES.c.seq.in_(last.group_by(SAMPLES.c.host, SAMPLES.c.process)))
        with self._database.read() as connection:
            return _samples(connection.execute(found.order_by(SAMPLES.c.at, SAMPLES.c.seq)).all())

    def highest_samples(self, since: datetime, step: timedelta) -> Sequence[ResourceSample]:
        """The highest of each number since then of each machine in each `step`, which is when a sample begins; oldest first."""
        begin = _slot(step)
        highest = [sa.func.max(SAMPLES.c[name]).label(name) for name in _MEASURED]
        found = sa.select(SAMPLES.c.host, SAMPLES.c.process, sa.type_coerce(begin, SAMPLES.c.at.type).label("at"), *highest)
        found = found.where(SAMPLES.c.process == MACHINE, SAMPLES.c.at >= utc(since))
        with self._database.read() as connection:
            return _samples(connection.execute(found.group_by(SAMPLES.c.host, SAMPLES.c.process, begin).order_by(begin)).all())

    def thin_samples(self, now: datetime) -> int:
        """Leave every one of the last week, one in five minutes of the last ninety days, and none of before; how many went."""
        table = SAMPLES
        week, quarter = utc(now) - timedelta(days=7), utc(now) - timedelta(days=90)
        first = sa.select(sa.func.min(table.c.seq)).where(table.c.at < week)
        kept = first.group_by(table.c.host, table.c.process, _slot(timedelta(minutes=5)))
        with self._database.write() as connection:
            gone = connection.execute(sa.delete(table).where(table.c.at < quarter)).rowcount
            return int(gone + connection.execute(sa.delete(table).where(table.c.at < week, ~table.c.seq.in_(kept))).rowcount)


def firing_of(alerts: Iterable[Alert]) -> Sequence[Alert]:
    """Those that fire, oldest first."""
    return sorted((each for each in alerts if each.state is AlertState.FIRING), key=lambda each: each.fired_at or each.at)


def pending_of(alerts: Iterable[Alert]) -> Sequence[Alert]:
    """Those that are bad, and not yet for long enough."""
    return [each for each in alerts if each.state is AlertState.PENDING]


_MEASURED = tuple(field.name for field in fields(ResourceSample) if field.name not in ("at", "host", "process"))


def _samples(rows: Iterable[Row]) -> Sequence[ResourceSample]:
    return [ResourceSample(**{field.name: getattr(row, field.name) for field in fields(ResourceSample)}) for row in rows]


def _slot(step: timedelta) -> sa.ColumnElement[int]:
    """When the step begins that a sample is of, in microseconds: integer division, which is the same in both databases."""
    micros = sa.type_coerce(SAMPLES.c.at, sa.BigInteger)
    # Not a parameter: PostgreSQL takes two for different numbers, in what is selected and in what it is grouped by.
    return micros - micros % sa.literal(step // timedelta(microseconds=1), sa.BigInteger, literal_execute=True)


def open_alerts(url: str | Path, *, make: bool = True, patience: float = PATIENCE) -> AlertStore:
    """The alerts of the store at a URL or path, as `open_store` opens it.

    Args:
        patience: Seconds to wait for others who write.
    """
    return AlertStore(as_url(url), make=make, patience=patience)


def _row(alert: Alert) -> dict[str, Any]:
    names = [column.name for column in ALERTS.c if column.name != "seq"]
    row = {name: getattr(alert, name) for name in names}
    row |= {name: getattr(alert, name).value for name in ("severity", "state", "change")}
    times = {name: None if row[name] is None else utc(row[name]) for name in ("began_at", "fired_at", "told_at", "at")}
    return {**row, **times, "evidence": dict(alert.evidence)}


def _alert(row: Row) -> Alert:
    found = {name: value for name, value in row._mapping.items() if name != "seq"}
    words = {"severity": Severity(row.severity), "state": AlertState(row.state), "change": AlertChange(row.change)}
    return Alert(**{**found, **words})


def _silence(row: Row) -> Silence:
    return Silence(**{name: value for name, value in row._mapping.items() if name not in ("seq", "number")})


def _try(key: tuple[Alert, str, int], status: DeliveryStatus, due: datetime, now: datetime, detail: str = "") -> dict[str, Any]:
    """A row of a try: of which alert, to which channel, and which one it is."""
    alert, channel, attempt = key
    told = {"fingerprint": alert.fingerprint, "number": alert.number, "channel": channel, "attempt": attempt}
    return {**told, "status": status.value, "detail": detail, "due_at": utc(due), "at": utc(now)}


def _delivery(connection: sa.Connection, fingerprint: str, number: int, channel: str) -> Delivery | None:
    ours = (OUTBOX.c.fingerprint == fingerprint, OUTBOX.c.number == number, OUTBOX.c.channel == channel)
    tries = defaultdict[int, list[Row]](list)
    for row in connection.execute(sa.select(OUTBOX).where(*ours).order_by(OUTBOX.c.attempt, OUTBOX.c.seq)):
        tries[row.attempt].append(row)
    alert = connection.execute(sa.select(ALERTS).where(ALERTS.c.fingerprint == fingerprint, ALERTS.c.number == number)).first()
    if alert is None or not tries:
        return None
    last = tries[max(tries)][-1]
    return Delivery(_alert(alert), channel, max(tries), last.due_at, last.detail)
