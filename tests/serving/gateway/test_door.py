"""Who may come in."""

import json
import socket

import pytest

from tests.serving.gateway.test_passing import CHAT, ask
from tests.support.gateways import Running, gateway, quick
from tests.support.upstream import Upstream

pytestmark = pytest.mark.service

TOKEN = "a-token-of-the-gateway"
OWN = {"authorization": "Bearer sk-own"}


@pytest.mark.parametrize(
    ("headers", "passed"),
    [
        ({"authorization": f"Bearer {TOKEN}"}, None),
        ({"authorization": f"bearer  {TOKEN}"}, None),
        ({"x-api-key": TOKEN}, None),
        ({"x-journeyman-token": TOKEN}, None),
        ({"x-journeyman-token": TOKEN, **OWN}, "Bearer sk-own"),
        ({"x-journeyman-token": "second-token-of-the-gateway", **OWN}, "Bearer sk-own"),
    ],
)
def test_a_token_opens_and_goes_no_further(up: Upstream, headers: dict[str, str], passed: str | None) -> None:
    with gateway(up.url, tokens=(TOKEN, "second-token-of-the-gateway")) as running:
        assert ask(running.url, headers=headers)[0] == 200
    assert up.asked[0].header("authorization") == passed
    assert TOKEN not in repr(up.asked)
    assert TOKEN not in repr(running.memory.exchanges)


def test_a_token_in_place_of_the_key_has_ours_sent(up: Upstream) -> None:
    with gateway({"up": quick(up.url, key_env="K")}, environment={"K": "sk-ours"}, tokens=(TOKEN,)) as running:
        assert ask(running.url, headers={"authorization": f"Bearer {TOKEN}"})[0] == 200
    assert up.asked[0].header("authorization") == "Bearer sk-ours"


@pytest.mark.parametrize("headers", [{}, OWN, {"authorization": TOKEN}, {"x-journeyman-token": TOKEN[:-1]}])
def test_without_a_token_nothing_is_passed_taken_or_told(up: Upstream, headers: dict[str, str]) -> None:
    with gateway(up.url, tokens=(TOKEN,)) as running:
        status, _, body = ask(running.url, headers=headers)
        assert (status, json.loads(body)["error"]["code"]) == (401, "unauthorised")
        status, _, body = ask(running.url, "/v1/messages", headers=headers)
        assert (status, json.loads(body)["error"]["type"]) == (401, "authentication_error")
        assert ask(running.url, "/v1/traces", headers=headers)[0] == 401
        assert ask(running.url, "/metrics", None, "GET", headers)[0] == 401
        assert json.loads(ask(running.url, "/health", None, "GET", headers)[2]) == {"ready": True}
    assert up.asked == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4000", "localhost.evil.example", "127.0.0.1.evil.example"])
def test_a_strange_name_for_this_server_is_not_answered(running: Running, up: Upstream, host: str) -> None:
    for path in (CHAT, "/v1/traces"):
        assert ask(running.url, path, headers={"host": host})[0] == 421
    assert up.asked == []


@pytest.mark.parametrize("tokens", [(), (TOKEN,)])
@pytest.mark.parametrize(
    "hosts", [b"", b"Host:\r\n", b"Host: localhost\r\nHost: localhost\r\n"], ids=["none", "an empty one", "two"]
)
def test_a_request_that_names_no_host_or_two_is_refused(up: Upstream, hosts: bytes, tokens: tuple[str, ...]) -> None:
    with gateway(up.url, tokens=tokens) as running:
        for path in (b"/v1/chat/completions", b"/v1/traces", b"/metrics"):
            with socket.create_connection(("127.0.0.1", int(running.url.rpartition(":")[2])), timeout=10) as client:
                head = hosts + b"Connection: close\r\nX-Journeyman-Token: " + TOKEN.encode() + b"\r\nContent-Length: 2\r\n\r\n"
                client.sendall(b"POST " + path + b" HTTP/1.1\r\n" + head + b"{}")
                assert client.recv(10_000).startswith(b"HTTP/1.1 400 ")
    assert up.asked == []


def test_whoever_is_not_admitted_hears_one_word_of_its_health(running: Running) -> None:
    for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert json.loads(ask(running.url, "/health", None, "GET", headers)[2]) == {"ready": True}
    assert "upstreams" in json.loads(ask(running.url, "/health", None, "GET")[2])


@pytest.mark.parametrize("host", ["localhost", "localhost:4000", "127.0.0.1", "[::1]:4000", "10.0.0.7:80"])
def test_an_address_and_localhost_are(running: Running, host: str) -> None:
    assert ask(running.url, headers={"host": host})[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"origin": "http://localhost"},
    ],
)
def test_a_page_of_another_site_spends_nobodys_key(running: Running, up: Upstream, headers: dict[str, str]) -> None:
    status, said, _ = ask(running.url, headers=headers)
    assert status == 403
    assert not [name for name in said if name.startswith("access-control")]
    assert up.asked == []


def test_what_is_none_of_ours_is_said(running: Running) -> None:
    status, _, body = ask(running.url, "/chat/completions")
    assert status == 404
    assert "ends in /v1" in json.loads(body)["error"]["message"]
