"""Who may see the pages, and what a browser is told not to do with them."""

import pytest

from journeyman.serving.dashboard.layout import COOKIE, Guard
from journeyman.stores.traces.base import TraceStore
from tests.support.pages import Visitor, visitor
from tests.support.watched import booking

TOKEN = "a-token-of-some-length"
PAGES = ("/", "/traces", "/traces/t1", "/traces.jsonl", "/sessions", "/performance", "/traces?have=x")


@pytest.fixture
def closed(store: TraceStore) -> Visitor:
    store.add([booking()])
    return visitor(store, Guard([TOKEN, "another-token-of-length"]), base="http://traces.example")


def test_every_answer_forbids_what_is_not_ours(store: TraceStore, pages: Visitor) -> None:
    store.add([booking()])
    for path in (*PAGES, "/login", "/traces/none"):
        headers = pages.client.get(path).headers
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", PAGES)
def test_without_the_token_no_page_is_shown(closed: Visitor, path: str) -> None:
    assert closed.client.get(path).status_code == 401
    answer = closed.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/login?to=%2F")


def test_signing_in_leads_to_where_one_wanted(closed: Visitor) -> None:
    page = closed.read("/login?to=/traces/t1")
    form = page.split('name="token" value="')[1].split('"')[0]
    status, said = closed.send("/login", token=form, to="/traces/t1", key="wrong")
    assert (status, "That is not the token" in said) == (401, True)
    assert closed.client.cookies.get(COOKIE) is None
    answer = closed.client.post("/login", data={"token": form, "to": "/traces/t1", "key": TOKEN}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/traces/t1")
    assert TOKEN not in str(answer.headers)
    said = answer.headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=strict" in said
    assert "A table for two" in closed.read("/traces/t1")
    closed.client.post("/logout", data={"token": form}, follow_redirects=False)
    assert closed.client.get("/traces").status_code == 401


def test_signing_in_leads_nowhere_else(closed: Visitor) -> None:
    form = closed.read("/login").split('name="token" value="')[1].split('"')[0]
    answer = closed.client.post("/login", data={"token": form, "to": "//evil.example", "key": TOKEN}, follow_redirects=False)
    assert answer.headers["location"] == "/"


def test_the_token_opens_as_a_header_too(closed: Visitor) -> None:
    assert closed.client.get("/traces.jsonl", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert closed.client.get("/traces.jsonl", headers={"authorization": f"Basic {TOKEN}"}).status_code == 401
    assert closed.client.get("/traces.jsonl", headers={"cookie": f"{COOKIE}={TOKEN}"}).status_code == 401


def test_a_label_needs_the_token_as_well(store: TraceStore) -> None:
    store.add([booking()])
    guard = Guard([TOKEN])
    status, _ = visitor(store, guard, base="http://x.example").send(
        "/labels", fragment=True, token=guard.form_token, trace="t1", good="yes"
    )
    assert (status, list(store.labels())) == (401, [])


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "localhost.evil.example", ""])
def test_without_tokens_a_name_of_somebody_else_is_not_answered(pages: Visitor, host: str) -> None:
    assert pages.client.get("/traces", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1:8000", "[::1]:8000", "192.168.1.7"])
def test_addresses_and_localhost_are_answered(pages: Visitor, host: str) -> None:
    assert pages.client.get("/traces", headers={"host": host}).status_code == 200
