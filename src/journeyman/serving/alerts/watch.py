"""Looks at the rules again and again, keeps what changes, and sees to it that channels are told.

Several may run: a lease says who measures, and who sends something claims it first. While the store does not answer, that is
what is told: what happens then is kept in a file beside the project, else in memory, and goes into the store when it is back.
"""

import logging
import os
import socket
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from journeyman.core.alert import Alert, AlertChange, AlertState, Measurement, Severity, step
from journeyman.core.errors import JourneymanError, StoreError
from journeyman.experiments.settings import AlertSettings, duration
from journeyman.serving.alerts.channels import Channel, NoChannel, channels
from journeyman.serving.alerts.rules import STORE, Measurer
from journeyman.stores.alerts import MACHINE, AlertStore, Delivery, ResourceSample, open_alerts
from journeyman.stores.urls import MEMORY, as_url, redacted

log = logging.getLogger(__name__)

SAMPLED = timedelta(seconds=15)
THINNED = timedelta(hours=1)
SEEN = timedelta(minutes=2)
"""For which the last sample of a machine says how busy it is."""
AT_ONCE = 20
"""Messages in one round: a channel that does not answer must not keep the monitor from measuring."""
AWAY = "alerts-away.db"
"""What is kept of the time when the store was away, in the project's folder."""


class AlertRound(NamedTuple):
    """What came of one look."""

    found: Sequence[Measurement]
    changed: Sequence[Alert]
    firing: Sequence[Alert]
    away: str = ""
    """Why the store could not be reached."""
    elsewhere: bool = False
    """Whether another monitor measures: nothing was found here, and what fires is what that one found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What an alert monitor is given from outside, so that a test can give something else."""

    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    open: Callable[[str], AlertStore] = open_alerts
    """Opens the store."""
    look: Callable[[datetime], Sequence[ResourceSample]] | None = None
    """Samples the machine; without it nothing is known of it."""
    channels: Mapping[str, Channel] | None = None
    """Without them those that are set."""
    holder: str = ""


class AlertMonitor:
    """One who watches. Several may run; one at a time measures, and each tells."""

    def __init__(self, url: str, folder: Path, settings: AlertSettings, around: Surroundings | None = None) -> None:
        """
        Args:
            url: Of the store.
            folder: Of the project.
        """
        around = around or Surroundings()
        self._url, self._folder, self._settings = url, folder, settings
        self._clock, self._look, self._open = around.clock, around.look, around.open
        self._channels = channels(settings) if around.channels is None else around.channels
        self._holder = around.holder or f"{socket.gethostname()}/{os.getpid()}"
        self._measurer = Measurer(settings)
        self._every = duration(settings.every)
        self._store: AlertStore | None = None
        self._aside: AlertStore | None = None
        self._sampled_at: datetime | None = None
        self._thinned_at: datetime | None = None
        self._measures = False
        self._over = threading.Event()
        self._faulty = set[str]()
        """Channels of which the last try failed."""

    def close(self) -> None:
        """Let another measure at once."""
        if self._store is not None and self._measures:
            with suppress(StoreError):
                self._store.give_back("alerts", self._holder, self._clock())
        self._measures = False
        for each in (self._store, self._aside):
            if each is not None:
                each.close()
        self._store = self._aside = None

    def run(self, over: threading.Event, wake: threading.Event) -> None:
        """Look until told to stop: as often as is set, and at once when woken."""
        due, self._over = self._clock(), over
        for each in self._channels.values():
            if isinstance(each, NoChannel):
                # Else it would be known when the first alert is not told.
                log.warning("alerts: %s", each.why)
        while not over.is_set():
            try:
                self.sample()
                if wake.is_set() or self._clock() >= due:
                    wake.clear()
                    due = self._clock() + self._every
                    self.once()
            except JourneymanError as error:
                log.warning("alerts: %s", error)
            except Exception as error:  # noqa: BLE001 - a thread that ends unnoticed would watch nothing any more
                say_failed("alerts: this round", error)
            if not over.is_set():
                wake.wait(min(SAMPLED, self._every).total_seconds())
        self.close()

    def sample(self) -> None:
        """Look at the machine, at most every 15 seconds, and keep what was seen."""
        now = self._clock()
        if self._look is None or (self._sampled_at is not None and timedelta(0) <= now - self._sampled_at < SAMPLED):
            return
        self._sampled_at = now
        try:
            found = self._look(now)
        except Exception as error:  # noqa: BLE001 - the system's word; what else is watched does not need it
            say_failed("alerts: the look at the machine", error)
            return
        with suppress(StoreError):
            store = self._opened()
            store.add_samples(found)
            if self._thinned_at is None or now - self._thinned_at >= THINNED:
                self._thinned_at = now
                store.thin_samples(now)

    def once(self) -> AlertRound:
        """Measure, keep what changes and tell it; tell alone while another monitor measures."""
        now = self._clock()
        self.sample()
        try:
            store = self._opened()
            seconds = max(60.0, 3 * self._every.total_seconds())
            self._measures = store.lease("alerts", self._holder, now, seconds) is not None
            # Each told of its own that the store was away.
            back = self._back(store, now)
            if not self._measures:
                self._tell(store, now)
                return AlertRound([], back, store.firing(), elsewhere=True)
            before = store.latest()
            # Of every machine, whoever measures.
            newest = {each.host: each for each in store.samples(now - SEEN, process=MACHINE)}
            found = list(self._measurer.found(store.measures, now, list(newest.values()), before.values()))
            silences = store.silences(now)
            rules = self._measurer.rules
            steps = [
                step(rule, before.get(each.fingerprint), each, now, silences)
                for each in found
                if (rule := rules.get(each.rule))
            ]
            changed = [*self._keep(store, [each for each in steps if each is not None]), *back]
            self._tell(store, now)
            return AlertRound(found, changed, store.firing())
        except StoreError as error:
            self._measures = False
            return self._gone(str(error), now)

    def _opened(self) -> AlertStore:
        if self._store is None:
            self._store = self._open(self._url)
        return self._store

    def _keep(self, store: AlertStore, alerts: Sequence[Alert]) -> Sequence[Alert]:
        kept: list[Alert] = []
        for each in alerts:
            said = {name: self._settings.channels.get(name) for name in self._channels}
            kept += store.add(
                [each], [n for n, to in said.items() if to is None or not to.only or each.severity.value in to.only]
            )
        for each in kept:
            log.warning("alert %s: %s: %s", each.name, each.change, each.says)
        return kept

    # Tell.

    def _tell(self, store: AlertStore, now: datetime) -> None:
        """One that does not answer is asked once a round, and behind all others: it must not keep them waiting."""
        faulty, sent = set[str](), 0
        for each in sorted(self._due(store, now), key=lambda each: each.channel in self._faulty):
            if self._over.is_set() or sent == AT_ONCE:
                break
            if each.channel in faulty or not store.claim(each, self._clock()):
                continue
            fault = _sent(self._channels[each.channel], each.channel, each.alert)
            store.told(each, self._clock(), fault)
            sent += 1
            if fault:
                faulty.add(each.channel)
                log.warning("alert %s was not delivered: %s", each.alert.name, fault)
                self._faulty.add(each.channel)
            else:
                self._faulty.discard(each.channel)

    def _due(self, store: AlertStore, now: datetime) -> Sequence[Delivery]:
        """What is to be sent now. What is no news any more is given up: a message that is older than the time after which it
        would be told again, whose alert is over or whose channel is in these settings no more. Until then another monitor may
        know the channel."""
        due, old = store.deliveries(now), now - duration(self._settings.repeat)
        over = {each.fingerprint for each in store.latest().values() if not each.is_open} if due else set[str]()
        found = list[Delivery]()
        for each in due:
            if each.alert.at < old and each.channel not in self._channels:
                store.give_up(each, now, f"there is no channel {each.channel} in the settings")
            elif each.alert.at < old and each.alert.is_open and each.alert.fingerprint in over:
                store.give_up(each, now, f"it is over, and the channel was not reached in {self._settings.repeat}")
            elif each.channel in self._channels:
                found.append(each)
        return found

    # While the store is away.

    def _gone(self, why: str, now: datetime) -> AlertRound:
        found = self._of_store(f"the monitor cannot reach the store: {why}", breached=True)
        try:
            return self._said_aside(self._set_aside(), found, now, why)
        except StoreError:
            # It was there, and cannot be written any more: a full disk may be why the store is away.
            return self._said_aside(self._into_memory(), found, now, why)

    def _said_aside(self, aside: AlertStore, found: Measurement, now: datetime, why: str) -> AlertRound:
        changed = self._moved(aside, found, now)
        self._tell(aside, now)
        return AlertRound([found], changed, aside.firing(), why)

    def _into_memory(self) -> AlertStore:
        """What was kept beside goes on in memory, with what is still to be told of it."""
        memory, before = open_alerts(MEMORY), self._aside
        if before is not None:
            with suppress(StoreError):
                waiting = before.undelivered()
                for alert in {each.alert.number: each.alert for each in waiting}.values():
                    memory.add([alert], [each.channel for each in waiting if each.alert == alert])
                memory.add(before.latest().values())
            before.close()
        self._aside = memory
        return memory

    def _back(self, store: AlertStore, now: datetime) -> Sequence[Alert]:
        """Say that it is back, and keep in it what was told of the time when it was away."""
        if self._aside is None and not (self._folder / AWAY).is_file():
            return []
        aside = self._set_aside()
        found = self._of_store("the store answers again", breached=False)
        changed = self._moved(aside, found, now)
        self._tell(aside, now)
        last = store.latest().get(found.fingerprint)
        story = reversed(aside.history(fingerprint=found.fingerprint, limit=1000))
        new = [each for each in story if last is None or each.at > last.at]
        first = last.number + 1 if last else 1
        store.add(replace(each, number=number) for number, each in enumerate(new, start=first))
        return changed

    def _of_store(self, says: str, *, breached: bool) -> Measurement:
        # One machine may hold several projects.
        subject = f"{redacted(as_url(self._url))} from {socket.gethostname()}"
        return Measurement(rule=STORE, subject=subject, breached=breached, says=says)

    def _moved(self, aside: AlertStore, found: Measurement, now: datetime) -> Sequence[Alert]:
        after = step(self._measurer.rules[STORE], aside.latest().get(found.fingerprint), found, now)
        return self._keep(aside, [after] if after is not None else [])

    def _set_aside(self) -> AlertStore:
        if self._aside is None:
            try:
                self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                self._aside = open_alerts(self._folder / AWAY)
            except (StoreError, OSError):
                # The disk may be what is away.
                self._aside = open_alerts(MEMORY)
        return self._aside


def say_failed(what: str, error: Exception) -> None:
    """Where it failed, without its words: they may hold an address."""
    where = ", ".join(f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__))
    log.error("%s failed by %s, and will be tried again: %s", what, type(error).__name__, where)


def _sent(channel: Channel, name: str, alert: Alert) -> str:
    """Why it was not; nothing where it was."""
    try:
        channel.send(alert)
    except JourneymanError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - one channel that fails must not keep the others from being told
        # Its words may hold the address.
        return f"the channel {name} failed by {type(error).__name__}"
    return ""


def trial(now: datetime) -> Alert:
    """What a channel is told to see whether it hears."""
    return Alert(
        fingerprint="test",
        number=1,
        rule="test",
        subject="",
        slot="",
        severity=Severity.TICKET,
        state=AlertState.FIRING,
        change=AlertChange.FIRING,
        tells=True,
        value=None,
        bound=None,
        says="This is a test: nothing is wrong.",
        evidence={},
        began_at=now,
        fired_at=now,
        told_at=now,
        acknowledged_by="",
        at=now,
        who="journeyman alerts test",
    )
