"""Who is asked, what happens when it fails, and how models are named."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.experiments.settings import UpstreamSettings
from journeyman.serving.gateway.request import with_model
from journeyman.serving.gateway.upstreams import Breaker, BreakerState, Routes, _resolved
from tests.serving.gateway.test_passing import BODY, CHAT, ask
from tests.support.gateways import gateway, quick
from tests.support.upstream import Reply, Upstream, failed, ok

pytestmark = pytest.mark.service

CLOSED = "http://127.0.0.1:9/v1"


def body(model: str) -> bytes:
    return json.dumps({"messages": [{"content": '"model": "x"'}], "model": model}).encode()


def test_the_next_is_asked_when_one_cannot_be_reached_or_fails(up: Upstream, other: Upstream) -> None:
    up.replies.append(failed(503))
    with gateway({"closed": quick(CLOSED), "up": quick(up.url), "other": quick(other.url)}) as running:
        _, headers, _ = ask(running.url)
        text = running.gateway.metrics.text()
    assert headers["x-journeyman-upstream"] == "other"
    assert running.memory.one().upstream == "other"
    assert running.memory.one().base_url == other.url
    assert 'upstream_failures_total{reason="unreachable",upstream="closed"} 1' in text
    assert 'upstream_failures_total{reason="503",upstream="up"} 1' in text


@pytest.mark.parametrize("status", [400, 401, 404])
def test_what_is_the_requests_own_fault_is_nobody_elses_matter(up: Upstream, other: Upstream, status: int) -> None:
    up.replies.append(failed(status))
    with gateway({"up": quick(up.url, retries=3), "other": quick(other.url)}) as running:
        assert ask(running.url)[0] == status
    assert (len(up.asked), len(other.asked)) == (1, 0)


def test_the_last_answer_counts_when_all_fail(up: Upstream) -> None:
    up.replies.append(failed(429))
    with gateway({"up": quick(up.url), "closed": quick(CLOSED)}) as running:
        status, headers, _ = ask(running.url)
    assert (status, headers["x-journeyman-upstream"]) == (429, "up")


def test_a_busy_upstream_is_asked_again_when_it_says_so(up: Upstream) -> None:
    up.replies.extend([failed(429, None, (b"retry-after", b"1")), Reply(silent=True), ok({"fine": 1})])
    with gateway({"up": quick(up.url, retries=2)}) as running:
        began = time.monotonic()
        status, _, answer = ask(running.url)
    assert (status, json.loads(answer)) == (200, {"fine": 1})
    assert time.monotonic() - began > 1
    assert [each.body for each in up.asked] == [BODY] * 3
    assert running.memory.one().status == 200


@pytest.mark.parametrize(
    "header", [(b"retry-after", b"3600"), (b"retry-after", b"Fri, 01 Jan 2100 00:00:00 GMT"), (b"x-should-retry", b"false")]
)
def test_an_upstream_that_wants_to_be_left_alone_for_long_is(up: Upstream, header: tuple[bytes, bytes]) -> None:
    up.replies.append(failed(429, None, header))
    with gateway({"up": quick(up.url, retries=5)}) as running:
        assert ask(running.url)[0] == 429
    assert len(up.asked) == 1


def test_nothing_is_asked_again_once_an_answer_has_begun(up: Upstream, other: Upstream) -> None:
    up.replies.append(Reply(pieces=(b"half",), cut=True))
    with gateway({"up": quick(up.url, retries=5), "other": quick(other.url)}) as running:
        with pytest.raises(Exception, match="IncompleteRead"):
            ask(running.url)
        assert running.memory.one().error
    assert (len(up.asked), len(other.asked)) == (1, 0)


def test_what_begins_something_is_not_asked_twice(up: Upstream) -> None:
    up.answer = lambda asked: failed(503)
    with gateway({"up": quick(up.url, retries=1)}) as running:
        ask(running.url, "/v1/batches")
        assert len(up.asked) == 1
        ask(running.url, "/v1/batches", None, "GET")
        assert len(up.asked) == 3


def test_an_upstream_that_is_too_slow_is_given_up(up: Upstream) -> None:
    up.replies.extend([Reply(wait=3), Reply(pieces=(b"a", b"b"), pause=3)])
    with gateway({"up": quick(up.url, first_byte_seconds=0.2, idle_seconds=0.3)}) as running:
        status, _, answer = ask(running.url)
        assert (status, json.loads(answer)["error"]["code"]) == (504, "upstream_timeout")
        assert json.loads(answer)["error"]["message"] == "journeyman: the upstream up gave no answer within 0.2 s"
        with pytest.raises(Exception, match="IncompleteRead"):
            ask(running.url)
        first, second = running.memory.some(2)
    assert first.status is None
    assert second.response == b"a"
    assert second.error is not None


def test_a_breaker_opens_and_lets_one_try() -> None:
    now = 0.0
    breaker = Breaker(3, 10, lambda: now)
    for _ in range(3):
        assert breaker.enter()
        breaker.failed()
    assert (breaker.state, breaker.wait, breaker.enter()) == (BreakerState.OPEN, 10, False)
    now = 10.0
    assert breaker.state is BreakerState.HALF_OPEN
    assert [breaker.enter(), breaker.enter()] == [True, False]
    breaker.failed()
    assert (breaker.state, breaker.wait) == (BreakerState.OPEN, 10)
    now = 20.0
    assert breaker.enter()
    breaker.left()
    assert breaker.enter()
    breaker.succeeded()
    assert [breaker.state, breaker.enter(), breaker.enter()] == [BreakerState.CLOSED, True, True]


def test_failures_between_successes_open_no_breaker() -> None:
    breaker = Breaker(2, 10, lambda: 0.0)
    for _ in range(5):
        breaker.failed()
        breaker.succeeded()
    assert breaker.state is BreakerState.CLOSED
    for _ in range(9):
        Breaker(0, 10, lambda: 0.0).failed()
    assert Breaker(0, 10, lambda: 0.0).enter()


def test_an_upstream_that_keeps_failing_is_left_alone_until_it_is_well(up: Upstream) -> None:
    up.replies.extend([failed(500), failed(500)])
    with gateway({"up": quick(up.url, breaker_failures=2, breaker_seconds=1.0)}) as running:
        assert [ask(running.url)[0] for _ in range(3)] == [500, 500, 503]
        health = json.loads(ask(running.url, "/health", None, "GET")[2])
        assert health["upstreams"] == {"up": {"breaker": "open", "ok": False}}
        _, headers, answer = ask(running.url)
        assert headers["retry-after"] == "1"
        assert json.loads(answer)["error"]["code"] == "upstream_resting"
        assert len(up.asked) == 2
        time.sleep(1.0)
        assert [ask(running.url)[0] for _ in range(2)] == [200, 200]
        assert 'breaker{state="closed",upstream="up"} 1' in running.gateway.metrics.text()


def test_a_model_goes_where_it_is_served(up: Upstream, other: Upstream) -> None:
    with gateway({"any": quick(up.url), "some": quick(other.url, models=("llama-*",))}) as running:
        said = [ask(running.url, body=body(model))[1]["x-journeyman-upstream"] for model in ("gpt-5", "llama-3", "some/gpt-5")]
    assert said == ["any", "some", "some"]
    assert json.loads(other.asked[1].body)["model"] == "gpt-5"


def test_the_name_of_an_upstream_before_a_models_is_taken_off_and_nothing_else(up: Upstream, other: Upstream) -> None:
    sent = b'{"x": {"model": "b/m"}, "a":1e5,  "model" :"b\\/m", "y": "\xc3\xa9", "z": "\\u00e9"}'
    with gateway({"a": quick(up.url), "b": quick(other.url)}) as running:
        ask(running.url, body=sent)
        recorded = running.memory.one()
    assert other.asked[0].body == sent.replace(b'"b\\/m"', b'"m"')
    assert recorded.request == sent
    assert up.asked == []


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["model", "a", "b"]), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("said", "needs"),
    [
        (b'"a.b/m"', True),
        (b'"a.b\\/m"', True),
        (b'"c/m"', True),
        (b'"axb/m"', False),
        (b'"xc/m"', False),
        (b'"a.b"', False),
        (b"a.b/m", False),
    ],
)
def test_a_body_is_read_where_the_name_of_an_upstream_begins_a_word_in_it(said: bytes, needs: bool) -> None:
    upstreams = [_resolved(name, UpstreamSettings(base_url=CLOSED), {}, typed=False) for name in ("a.b", "c")]
    assert Routes(upstreams).needs_model("openai", b'{"model": ' + said + b"}") is needs


@given(JSON_VALUES, JSON_VALUES, st.text(max_size=12), st.booleans())
def test_only_the_models_name_changes(before: Any, after: Any, model: str, ascii_only: bool) -> None:
    full = f"up/{model}"
    sent = {"before": before, "model": full, "after": after, "deeper": {"model": full}}
    written = json.dumps(sent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    changed = with_model(written, full, model)
    assert json.loads(changed) == {**sent, "model": model}


def test_a_body_full_of_the_models_name_is_not_read_again_for_each() -> None:
    # A look at each place would take hours.
    body = {"messages": [{"model": "up/m"}] * 50_000, "model": "up/m"}
    assert json.loads(with_model(json.dumps(body).encode(), "up/m", "m")) == {**body, "model": "m"}


def test_no_upstream_for_a_model_or_an_api_is_said(up: Upstream) -> None:
    with gateway({"up": quick(up.url, apis=("openai",), models=("a*",))}) as running:
        status, _, answer = ask(running.url, body=body("b"))
        assert (status, json.loads(answer)["error"]["message"]) == (404, "journeyman: no upstream serves the model b")
        status, _, answer = ask(running.url, "/v1/messages")
        assert status == 404
        assert json.loads(answer) == {
            "type": "error",
            "error": {"type": "not_found_error", "message": "journeyman: no upstream serves anthropic's API"},
        }


def test_models_of_several_upstreams_are_listed_as_they_are_asked_for(up: Upstream, other: Upstream) -> None:
    up.answer = lambda asked: ok({"object": "list", "data": [{"id": "m1", "object": "model"}]})
    other.answer = lambda asked: ok({"object": "list", "data": [{"id": "m2", "object": "model", "more": 1}]})
    with gateway({"a": quick(up.url), "b": quick(other.url), "closed": quick(CLOSED)}) as running:
        status, _, answer = ask(running.url, "/v1/models", None, "GET")
        assert (status, json.loads(answer)) == (
            200,
            {
                "object": "list",
                "data": [
                    {"id": "m1", "object": "model", "upstream": "a"},
                    {"id": "b/m2", "object": "model", "more": 1, "upstream": "b"},
                ],
            },
        )
        _, _, answer = ask(running.url, "/v1/models", None, "GET", {"anthropic-version": "2023-06-01"})
        assert (json.loads(answer)["first_id"], json.loads(answer)["last_id"]) == ("m1", "b/m2")
        ask(running.url, CHAT, body("b/m2"))
    assert json.loads(other.asked[-1].body)["model"] == "m2"
