"""Alerts are read, seen to and kept quiet on their page; the system's page says whether what is shown can be trusted."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.alert import Alert, AlertRule, Measurement, step
from journeyman.experiments.settings import AlertSettings, ChannelSettings
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.serving.dashboard.overview import resource_charts
from journeyman.serving.ingest.base import Health
from journeyman.stores.alerts import AlertStore, ResourceSample, open_alerts
from journeyman.stores.traces.base import TraceStore
from tests.serving.dashboard.test_pages import words_of
from tests.serving.dashboard.test_project_pages import title
from tests.support.pages import Visitor, visitor
from tests.support.watched import booking

NOW = datetime.now(UTC).replace(microsecond=0)
RATE = AlertRule(name="error_rate", says="too many fail")
HEALTHY = Health(waiting=0, spilled=0, stored=9, dropped=0, retries=0, error=None)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[AlertStore]:
    with open_alerts(tmp_path / "journeyman.db") as opened:
        yield opened


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path) -> Visitor:
    told = AlertSettings()
    return visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", alerts=told, health=lambda: HEALTHY))


def fire(kept: AlertStore, channels: tuple[str, ...] = ()) -> Alert:
    found = Measurement(rule="error_rate", breached=True, value=0.5, bound=0.05, says="2 of 4 conversations failed")
    alert = step(RATE, None, found, NOW)
    assert alert
    kept.add([alert], channels)
    return alert


def test_where_nothing_fires_the_rules_stand_ready(pages: Visitor) -> None:
    text = words_of(pages.read("/alerts"))
    assert "Nothing fires." in text
    assert "error rate of conversations begun in five minutes, more than 5% failed" in text
    assert "Nobody is told" in text
    assert title(pages.read("/alerts")) == "Alerts"


def test_a_channel_that_cannot_be_told_is_said_before_anything_fires(store: TraceStore, guard: Guard, tmp_path: Path) -> None:
    told = AlertSettings(channels={"page": ChannelSettings(url_env="NOBODY_SET_THIS")})
    pages = visitor(store, guard, project=ProjectStores(tmp_path / "journeyman.db", alerts=told))
    text = words_of(pages.read("/alerts"))
    assert "A channel cannot be told: the variable NOBODY_SET_THIS of alerts.channels.page is not set" in text
    assert "burn errors use up their budget of 5% too fast at once page, ticket" in text


def test_what_fires_leads_to_the_traces_that_it_counts(kept: AlertStore, store: TraceStore, pages: Visitor) -> None:
    store.add(booking(f"b{n}", at=NOW - timedelta(minutes=1)) for n in range(2))
    store.add(replace(booking(f"e{n}", at=NOW - timedelta(minutes=1)), error="ModelBusy: full") for n in range(2))
    fire(kept, ("team",))
    page = pages.read("/alerts")
    assert title(page) == "1 alert firing · Alerts"
    assert "1 firing : 2 of 4 conversations failed" in words_of(page)
    assert "team 0 it is due" in words_of(page)
    link = page.partition('href="/traces?since')[2].partition('"')[0].replace("&amp;", "&")
    assert '<b data-count="2">' in pages.read("/traces?since" + link)
    assert "Alerts 1" in words_of(pages.read("/audit"))


def test_who_sees_to_an_alert_and_who_keeps_it_quiet_is_kept(kept: AlertStore, pages: Visitor, guard: Guard) -> None:
    alert = fire(kept)
    form: dict[str, Any] = {"token": guard.form_token, "alert": alert.fingerprint}
    assert pages.send("/alerts", **{**form, "token": "0" * 64}, what="ack")[0] == 403
    assert pages.send("/alerts", **form, what="explode")[0] == 400
    assert pages.send("/alerts", **{**form, "alert": "none"}, what="ack")[0] == 400
    assert pages.send("/alerts", **form, what="silence", reason=" ")[0] == 400
    assert pages.send("/alerts", **form, what="silence", reason="we know", **dict[str, Any]({"for": "ever"}))[0] == 400
    assert kept.silences() == []
    assert pages.send("/alerts", **form, what="ack")[0] == 303
    assert pages.send("/alerts", **form, what="silence", reason="we deploy", **dict[str, Any]({"for": "2h"}))[0] == 303
    (firing,) = kept.firing()
    assert firing.acknowledged_by == "ana"
    (silence,) = kept.silences(datetime.now(UTC))
    assert (silence.rule, silence.who, silence.why) == ("error_rate", "ana", "we deploy")
    text = words_of(pages.read("/alerts"))
    assert "we deploy" in text
    assert "acknowledged" in text
    assert pages.send("/alerts", token=guard.form_token, silence=silence.id, what="lift")[0] == 303
    assert kept.silences(datetime.now(UTC)) == []


def sample(minutes: float, **more: float | str) -> ResourceSample:
    return ResourceSample(at=datetime.now(UTC) - timedelta(minutes=minutes), host="here", **more)  # type: ignore[arg-type]


def test_the_system_says_what_is_well_what_is_not_and_what_nobody_knows(
    kept: AlertStore, pages: Visitor, store: TraceStore, guard: Guard, tmp_path: Path
) -> None:
    text = words_of(pages.read("/system"))
    assert "? Nobody has measured in the last day" in text
    assert "Resource utilization, 24 hours Unknown" in text
    assert "✓ No record was lost since the start" in text
    kept.add_samples([sample(0, cpu=0.25, memory=0.5, disk=0.7), sample(0, process="serve", cpu=0.1, memory_bytes=1_000_000)])
    fire(kept, ("team",))
    page = pages.read("/system")
    text = words_of(page)
    assert "✓ The monitor last measured" in text
    assert "✗ 1 alert firing" in text
    assert "✗ 1 message still to be told to a channel" in text
    assert "serve here 10% 1MB" in text
    assert page.count('<figure class="chart">') == 3
    # No GPU was seen: that is not 0 % of one.
    assert "GPU" not in text
    lossy = ProjectStores(tmp_path / "journeyman.db", health=lambda: replace(HEALTHY, dropped=3, error="locked"))
    text = words_of(visitor(store, guard, project=lossy).read("/system"))
    assert "✗ 3 records lost since the start" in text
    assert "✗ locked" in text


def test_a_monitor_that_stopped_is_not_well(kept: AlertStore, pages: Visitor) -> None:
    kept.add_samples([sample(30, cpu=0.25)])
    assert "✗ The monitor last measured at" in words_of(pages.read("/system"))


def test_resources_are_drawn_by_the_highest_of_each_step_with_gaps() -> None:
    seen = [sample(160, cpu=0.2), sample(160, cpu=0.9), sample(20, cpu=0.3)]
    (chart,) = resource_charts(seen, 0.8)
    values = [point.y for point in chart.points]
    assert (values[0], values[-1]) == (0.9, 0.3)
    assert None in values[1:-1]
    assert [rule.at for rule in chart.rules] == [0.8]
