"""An outside alarm holds or takes back what is on its way, and Prometheus is told what the store says."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.rollout import RolloutState
from journeyman.stores.base import EvidenceRecord
from journeyman.stores.rollouts import open_rollouts
from tests.cli.test_releases_live import NEW
from tests.serving.gateway import test_release_control as control
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_release_control import TOKEN, WHERE, WHY, desk, post
from tests.support.upstream import Upstream

pytestmark = pytest.mark.service
path = control.path
HOOK = "/alerts/webhook"


def alarm(**labels: str) -> dict[str, Any]:
    one = {"status": "firing", "labels": {"alertname": "HighErrors", **labels}, "annotations": {"summary": "too many 500s"}}
    return {"version": "4", "status": "firing", "alerts": [one]}


def begin(url: str) -> str:
    id: str = post(url, "/releases", {"candidate": NEW.id, "share": 1, **WHERE, "reason": WHY})[2]["rollout"]["id"]
    return id


def test_an_outside_alarm_holds_and_another_takes_back(path: Path, up: Upstream) -> None:
    with desk(path, up) as running:
        id = begin(running.url)
        held = alarm(journeyman_slot="context:desk/oslo")
        status, _, told = post(running.url, HOOK, held)
        (row,) = told["alerts"]
        assert (status, row["rollout"], row["event"]) == (200, id, "hold")
        assert row["reason"] == "the alarm HighErrors fires: too many 500s"
        # Alertmanager tells again and again.
        (row,) = post(running.url, HOOK, held)[2]["alerts"]
        assert (row["event"], row["reason"]) == (None, "it is held already")
        over = {**held, "status": "resolved", "alerts": [{**held["alerts"][0], "status": "resolved"}]}
        assert post(running.url, HOOK, over)[2]["alerts"] == []
        (row,) = post(running.url, HOOK, alarm(journeyman_slot="context:desk/oslo", journeyman_action="rollback"))[2]["alerts"]
        assert row["event"] == "rollback"
        (row,) = post(running.url, HOOK, held)[2]["alerts"]
        assert row["reason"] == "no rollout is open there"
        assert post(running.url, HOOK, alarm())[2]["alerts"] == []
    with open_rollouts(path) as kept:
        rollout = kept.rollout(id)
    assert rollout is not None
    assert rollout.state is RolloutState.ROLLED_BACK
    assert [event.cause.actor for event in rollout.events[-2:]] == ["api", "api"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "the body is no JSON"),
        (b"[]", "no webhook of Alertmanager"),
        ({"version": "3", "alerts": []}, "no webhook of Alertmanager"),
        ({"version": "4", "alerts": []}, "alerts is a list of 1"),
        ({"version": "4", "alerts": [{"status": "odd"}]}, "whose status is firing or resolved"),
        ({"version": "4", "alerts": [{"status": "firing", "labels": {"a": 1}}]}, "labels of an alert is an object of texts"),
    ],
)
def test_what_is_no_alarm_is_refused_in_one_sentence(path: Path, up: Upstream, body: Any, said: str) -> None:
    with desk(path, up) as running:
        status, _, told = post(running.url, HOOK, body)
    assert status == 400
    assert said in json.dumps(told)


def test_one_label_that_means_nothing_loses_no_other_alarm(path: Path, up: Upstream) -> None:
    slot = "context:desk/oslo"
    several = [
        *alarm(journeyman_slot="nonsense:" + "x" * 9000)["alerts"],
        *alarm(journeyman_slot=slot, journeyman_action="promote")["alerts"],
        *alarm(journeyman_slot=slot, alertname="High\nErrors " + "x" * 9000)["alerts"],
        *alarm(journeyman_slot=slot)["alerts"],
    ]
    with desk(path, up) as running:
        begin(running.url)
        status, _, told = post(running.url, HOOK, {"version": "4", "status": "firing", "alerts": several})
    odd, action, held, again = told["alerts"]
    assert (status, [each["event"] for each in told["alerts"]]) == (200, [None, None, "hold", None])
    assert "is no slot" in odd["reason"] or "nonsense" in odd["reason"]
    assert max(len(odd["reason"]), len(odd["slot"]), len(held["alert"])) <= 500
    assert action["reason"].startswith("journeyman_action is hold or rollback")
    assert held["alert"].startswith("High Errors x")
    assert again["reason"] == "it is held already"


def test_whoever_has_not_the_token_holds_nothing(path: Path, up: Upstream) -> None:
    with desk(path, up) as running:
        id = begin(running.url)
        body = json.dumps(alarm(journeyman_slot="context:desk/oslo")).encode()
        assert ask(running.url, HOOK, body)[0] == 403
        assert ask(running.url, HOOK, body, headers={"authorization": f"Bearer {TOKEN}"})[0] == 200
    with open_rollouts(path) as kept:
        assert kept.rollout(id).state is RolloutState.HELD  # type: ignore[union-attr]  # it was begun


def test_prometheus_is_told_of_alerts_releases_and_this_process(path: Path, up: Upstream) -> None:
    with desk(path, up) as running:
        id = begin(running.url)
        with open_rollouts(path) as kept:
            assert kept.add_evidence(id, EvidenceRecord(1, 0, {}, {"metrics": {}}, datetime.now(UTC)))
        text = ask(running.url, "/metrics", None, "GET")[2].decode()
    assert "journeyman_store_up 1.0" in text
    assert 'journeyman_alerts{rule="error_rate",state="firing"} 0.0' in text
    assert f'journeyman_release_share{{arm="canary",rollout="{id}",slot="context:desk/oslo"}} 1.0' in text
    assert f'candidate="{NEW.id}",slot="context:desk/oslo",stage="canary"}} 1.0' in text
    # How many entered is not said: that is not none.
    assert "journeyman_release_sessions{" not in text
    assert re.search(r"^process_resident_memory_bytes \d", text, re.MULTILINE)
