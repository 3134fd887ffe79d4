"""A model server fails six times of a hundred: `serve` records it, its monitor sees it, and a webhook is told once, and when
it is over."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import COMPLETION, served, stopped, until
from tests.support import warm
from tests.support.alarms import bodies
from tests.support.upstream import Asked, Reply, Upstream, failed, ok, upstream

pytestmark = pytest.mark.service
SETTINGS = """
[upstreams.model]
base_url = "{url}"
retries = 0
[serve]
monitor_seconds = 0.5
[alerts]
every = "1s"
for = "2s"
[alerts.channels.page]
url_env = "PAGE_URL"
"""
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
MOMENT = {"type": "string", "format": "date-time"}
WEBHOOK = {
    "type": "object",
    "required": [
        "version", "groupKey", "truncatedAlerts", "status", "receiver", "groupLabels", "commonLabels", "commonAnnotations",
        "externalURL", "alerts",
    ],
    "additionalProperties": False,
    "properties": {
        "version": {"const": "4"},
        "groupKey": {"type": "string"},
        "truncatedAlerts": {"type": "integer"},
        "status": {"enum": ["firing", "resolved"]},
        "receiver": {"type": "string"},
        "groupLabels": TEXTS,
        "commonLabels": TEXTS,
        "commonAnnotations": TEXTS,
        "externalURL": {"type": "string"},
        "alerts": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["status", "labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint"],
                "additionalProperties": False,
                "properties": {
                    "status": {"enum": ["firing", "resolved"]},
                    "labels": TEXTS,
                    "annotations": TEXTS,
                    "startsAt": MOMENT,
                    "endsAt": MOMENT,
                    "generatorURL": {"type": "string"},
                    "fingerprint": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
                },
            },
        },
    },
}  # fmt: skip
"""As https://prometheus.io/docs/alerting/latest/configuration/#webhook_config tells it."""


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@pytest.fixture
def hook() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


def told(hook: Upstream, rule: str) -> list[dict[str, Any]]:
    return [each for each in bodies(hook) if each["commonLabels"]["rule"] == rule]


def test_errors_are_told_to_a_webhook_once_and_that_they_are_over(tmp_path: Path, up: Upstream, hook: Upstream) -> None:
    (tmp_path / "journeyman.toml").write_text(SETTINGS.format(url=up.url))
    secret = f"{hook.url}/hook?token=s3cr3t"
    number, failing = 0, True

    def answer(asked: Asked) -> Reply:
        nonlocal number
        number += 1
        return failed(500) if failing and number % 16 == 0 else ok({**COMPLETION, "id": f"c{number}"})

    up.answer = answer
    with served(tmp_path, "--no-pages", PAGE_URL=secret) as (url, process):

        def come(count: int) -> list[int]:
            said = []
            for _ in range(count):
                content = f"What is {number} and one?"
                body = {"model": "m", "messages": [{"role": "user", "content": content}]}
                said.append(ask(url, body=json.dumps(body).encode())[0])
            return said

        assert come(100).count(500) == 6
        assert until(lambda: told(hook, "error_rate"), 60), (tmp_path / "stderr").read_text()
        failing = False
        come(100)
        assert until(lambda: len(told(hook, "error_rate")) == 2, 60)
        assert stopped(process) == 0
    first, second = told(hook, "error_rate")
    for each in bodies(hook):
        jsonschema.validate(each, WEBHOOK, format_checker=jsonschema.FormatChecker())
    assert (first["status"], second["status"]) == ("firing", "resolved")
    assert first["commonAnnotations"]["summary"] == "6 of 100 conversations of the last five minutes failed"
    assert second["commonAnnotations"]["summary"] == "6 of 200 conversations of the last five minutes failed"
    assert {(asked.path, asked.query) for asked in hook.asked} == {("/v1/hook", "token=s3cr3t")}
    assert "s3cr3t" not in (tmp_path / "stderr").read_text()
    told_last = said(tmp_path, "list", "--all", "--rule", "error_rate")
    assert [each["change"] for each in told_last["history"]] == ["resolved", "firing", "pending"]
    assert told_last["undelivered"] == []


def said(folder: Path, *arguments: str) -> dict[str, Any]:
    done = warm.run("-m", "journeyman", "alerts", *arguments, "--json", cwd=folder, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
