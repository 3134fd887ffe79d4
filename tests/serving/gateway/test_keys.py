"""Whose key goes where."""

import json
import logging
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.settings import UpstreamSettings
from journeyman.serving.gateway.upstreams import Routes, Upstream, resolve
from tests.serving.gateway.test_passing import CHAT, ask
from tests.support.gateways import Running, gateway, quick
from tests.support.upstream import Reply, failed
from tests.support.upstream import Upstream as Server

pytestmark = pytest.mark.service

MINE, OURS = "sk-the-clients-own-key", "sk-the-key-of-the-environment"
SENT = {"authorization": f"Bearer {MINE}"}


def test_the_clients_key_is_passed_on_and_kept_nowhere(running: Running, up: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    up.replies.append(Reply(status=500, pieces=(b"no",)))
    up.replies.append(Reply(silent=True))
    for path in (CHAT, CHAT, f"{CHAT}?key={MINE}"):
        ask(running.url, path, headers={**SENT, "x-api-key": MINE})
    assert up.asked[0].header("authorization") == f"Bearer {MINE}"
    assert up.asked[0].header("x-api-key") == MINE
    assert up.asked[2].query == f"key={MINE}"
    kept = f"{running.memory.some(3)!r}{ask(running.url, '/metrics', None, 'GET')}{ask(running.url, '/health', None, 'GET')}"
    assert MINE not in kept
    assert MINE not in caplog.text


def test_ours_is_sent_where_the_client_sends_none(up: Server) -> None:
    with gateway({"up": quick(up.url, key_env="K")}, environment={"K": f" {OURS}\n"}) as running:
        ask(running.url)
        ask(running.url, "/v1/messages")
        ask(running.url, headers=SENT)
    assert [each.header("authorization") for each in up.asked] == [f"Bearer {OURS}", None, f"Bearer {MINE}"]
    assert [each.header("x-api-key") for each in up.asked] == [None, OURS, None]
    assert OURS not in repr(running.memory.exchanges)


def test_a_server_that_a_file_names_gets_no_key_unasked(up: Server) -> None:
    with gateway({"up": quick(up.url, client_key=None)}) as running:
        ask(running.url, f"{CHAT}?a=1&key={MINE}&b=2&API-Key={MINE}", headers={**SENT, "x-api-key": MINE, "api-key": MINE})
    assert MINE not in repr(up.asked)
    assert up.asked[0].query == "a=1&b=2"


def test_another_server_that_is_asked_instead_does_not_get_the_clients_key(up: Server, other: Server) -> None:
    up.answer = lambda asked: failed(503)
    with gateway({"up": quick(up.url), "other": quick(other.url, client_key=None)}) as running:
        assert ask(running.url, headers=SENT)[1]["x-journeyman-upstream"] == "other"
    assert MINE in repr(up.asked)
    assert MINE not in repr(other.asked)


def test_nothing_else_that_lets_the_client_in_goes_to_another_server(up: Server, other: Server) -> None:
    up.answer = lambda asked: failed(503)
    said = {
        "X-Auth-Token": MINE, "Helicone-Auth": f"Bearer {MINE}", "Ocp-Apim-Subscription-Key": MINE,
        "X-Custom": f"Bearer {MINE}", "CF-Access-Client-Secret": MINE, "X-LiteLLM-Api-Key": MINE,
        "Idempotency-Key": "once", "X-Plain": "plain",
    }  # fmt: skip
    query = f"a=1&apikey={MINE}&token={MINE}&subscription-key={MINE}&auth_token={MINE}&page_token=2"
    with gateway({"up": quick(up.url), "other": quick(other.url, client_key=None)}) as running:
        assert ask(running.url, f"{CHAT}?{query}", headers=said)[1]["x-journeyman-upstream"] == "other"
    assert repr(up.asked[0]).count(MINE) == 10
    assert MINE not in repr(other.asked)
    assert (other.asked[0].query, other.asked[0].header("x-plain")) == ("a=1&page_token=2", "plain")
    assert other.asked[0].header("idempotency-key") == "once"


def test_it_gets_its_own_key_or_the_clients_where_that_was_said(up: Server, other: Server) -> None:
    up.answer = lambda asked: failed(503)
    cases: list[tuple[dict[str, Any], str]] = [({"key_env": "K", "client_key": False}, OURS), ({"client_key": True}, MINE)]
    for more, key in cases:
        with gateway({"up": quick(up.url), "other": quick(other.url, **more)}, environment={"K": OURS}) as running:
            assert ask(running.url, headers=SENT)[0] == 200
        assert other.asked[-1].header("authorization") == f"Bearer {key}"


def test_an_error_of_ours_does_not_quote_a_key() -> None:
    closed = quick("http://127.0.0.1:9/v1", key_env="K")
    with gateway({"closed": closed}, environment={"K": OURS}) as running:
        status, _, body = ask(running.url, f"{CHAT}?key={MINE}", headers=SENT)
    assert status == 502
    assert "the upstream closed cannot be reached" in json.loads(body)["error"]["message"]
    assert not [key for key in (MINE, OURS) if key in repr(body) + repr(running.memory.exchanges)]


def named(upstreams: tuple[Upstream, ...], name: str) -> Upstream:
    return next(each for each in upstreams if each.name == name)


def test_without_settings_the_makers_are_asked_and_get_the_clients_key() -> None:
    upstreams = resolve({}, environment={})
    routes = Routes(upstreams)
    assert [each.base_url for each in routes.serving("openai", None)] == ["https://api.openai.com/v1"]
    assert [each.base_url for each in routes.serving("anthropic", None)] == ["https://api.anthropic.com"]
    assert all(each.takes_client_key for each in upstreams)


def test_a_maker_that_is_asked_instead_of_another_server_does_not_get_that_ones_key() -> None:
    mine = UpstreamSettings(base_url="https://mine.example/v1", client_key=True)
    home = UpstreamSettings(base_url="https://api.openai.com/v1")
    upstreams = resolve({"mine": mine, "openai": home}, environment={})
    assert not named(upstreams, "openai").gets_client_key(named(upstreams, "mine"))
    assert named(upstreams, "mine").gets_client_key(named(upstreams, "openai"))


def test_another_address_of_the_same_server_gets_what_the_first_gets() -> None:
    upstreams = resolve({}, ["a=https://x.example/v1", "b=https://x.example/v2", "c=http://x.example/v1"], environment={})
    first = named(upstreams, "a")
    assert [each.gets_client_key(first) for each in upstreams] == [True, True, False]


@pytest.mark.parametrize(
    ("settings", "given", "order", "said"),
    [
        ({"a": UpstreamSettings(base_url="http://h/v1", key_env="NONE")}, [], [], "the variable NONE is empty"),
        ({}, ["a=ftp://x"], [], "should be an address such as"),
        ({}, ["a=https://me:secret@h/v1"], [], "an address holds no credentials"),
        ({}, [], ["b"], r"there is no \[upstreams.b\]"),
    ],
)
def test_what_cannot_be_meant_is_said(
    settings: dict[str, UpstreamSettings], given: list[str], order: list[str], said: str
) -> None:
    with pytest.raises(InputError, match=said) as caught:
        resolve(settings, given, order, environment={})
    assert "secret" not in str(caught.value)


def test_who_types_an_address_keeps_the_other_settings_of_that_name() -> None:
    known = UpstreamSettings(base_url="http://old.example/v1", key_env="K", retries=3)
    found = resolve({"a": known, "b": known}, ["a=http://new.example"], ["b"], {"K": OURS})
    assert [each.name for each in found] == ["a", "b"]
    assert (found[0].base_url, found[0].key, found[0].settings.retries) == ("http://new.example", OURS, 3)
    assert found[0].takes_client_key
    assert not found[1].takes_client_key
    assert OURS not in repr(found)
    assert found[0].keys() == "the client's key, else the key in K"


@pytest.mark.parametrize(
    ("base", "openai", "anthropic"),
    [
        ("https://h", "https://h/v1/x", "https://h/v1/x"),
        ("https://h/v1", "https://h/v1/x", "https://h/v1/x"),
        ("https://h/api/v1", "https://h/api/v1/x", "https://h/api/v1/x"),
        ("https://h/openai/deployments/d", "https://h/openai/deployments/d/x", "https://h/openai/deployments/d/v1/x"),
    ],
)
def test_an_address_is_what_an_sdk_would_be_given(base: str, openai: str, anthropic: str) -> None:
    upstream = resolve({}, [base], environment={})[0]
    assert upstream.target("openai", "/v1/x", "") == openai
    assert upstream.target("anthropic", "/v1/x", "a=1") == f"{anthropic}?a=1"
