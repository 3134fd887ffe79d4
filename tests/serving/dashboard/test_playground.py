"""A recorded step is asked again with another playbook or another model, from a trace's page."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.trace import OWN_AGENT, Message, ModelCall, Trace
from journeyman.experiments.playbook.from_traces import gather
from journeyman.experiments.playbook.recorded_tasks import of_live_traffic
from journeyman.experiments.playground import ReplayServers
from journeyman.experiments.settings import Settings, UpstreamSettings
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import Query, TraceStore
from tests.serving.dashboard.test_pages import words_of
from tests.support.llm_server import Answer, LLMServer, completion, error, serving
from tests.support.pages import Visitor, visitor
from tests.support.projects import CASE, NEW, project

pytestmark = pytest.mark.service

RELEASES = "a-token-for-releases"
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)


def answers(body: dict[str, Any]) -> Answer:
    """A city, as the prompt wants it."""
    told = CASE.content in str(body["messages"])
    return completion("Oslo" if told else "Bergen", model=body["model"])


@pytest.fixture
def model() -> Iterator[LLMServer]:
    with serving() as server:
        server.default = answers
        yield server


@pytest.fixture
def pages(store: TraceStore, guard: Guard, tmp_path: Path, model: LLMServer) -> Visitor:
    project(tmp_path / "journeyman.db")
    call = ModelCall(
        id="c1", model="gpt-5-mini", prompt="user: Where is Norway's king?", reply="Bergen", cost=0.0004,
        messages=(Message(role="system", text="One word."), Message(role="user", text="Where is Norway's king?")),
        input_tokens=20, output_tokens=2, seconds=0.5, raw={"request": {}, "base_url": model.url, "upstream": "mine"},
    )  # fmt: skip
    store.add(
        [Trace(id="t1", task_id="k", candidate_id="base", started_at=NOON, steps=(call,), source="gateway", agent="desk")]
    )
    there = UpstreamSettings(base_url=model.url, apis=("openai",))
    servers = ReplayServers(settings=Settings(upstreams={"mine": there}), servers={"mine": there})
    stores = ProjectStores(tmp_path / "journeyman.db", release_tokens=[RELEASES], folder=tmp_path)
    return visitor(store, guard, project=stores, servers=servers)


def form(page: str, method: str) -> dict[str, str]:
    """The fields of a form as a browser without a script sends them: what is hidden, typed or chosen."""
    (body,) = re.findall(rf'<form class="\w+" method="{method}" action="/playground">(.*?)</form>', page, re.DOTALL)
    fields = {name: value for name, value in re.findall(r'<input[^>]*name="(\w+)" value="([^"]*)"', body)}
    for name, options in re.findall(r'<select name="(\w+)">(.*?)</select>', body):
        chosen = re.search(r'value="([^"]*)" selected', options) or re.search(r'value="([^"]*)"', options)
        fields[name] = chosen[1] if chosen else ""
    return {name: unescape(value) for name, value in fields.items()}


def sent(pages: Visitor, path: str, **typed: str) -> str:
    """Choose, read the price, ask; the page that shows what came."""
    asked = form(pages.read(path), "get") | typed
    priced = pages.client.get("/playground", params=asked, headers={"accept": "text/html"})
    assert priced.status_code == 200, priced.text
    answer = pages.client.post(
        "/playground",
        data={**form(priced.text, "post"), "key": RELEASES},
        headers={"accept": "text/html", "sec-fetch-site": "same-origin"},
        follow_redirects=False,
    )
    assert answer.status_code == 303, answer.text
    return pages.read(answer.headers["location"])


def test_a_step_is_asked_again_with_a_playbook_from_the_traces_page_and_the_difference_is_shown(
    pages: Visitor, guard: Guard, store: TraceStore, model: LLMServer
) -> None:
    assert pages.send("/labels", token=guard.form_token, trace="t1", metric="correct_answer", value="Oslo")[0] == 303
    (button,) = re.findall(r'<a class="again" href="([^"]+)"', pages.read("/traces/t1"))
    before = words_of(pages.read(unescape(button)))
    assert ("✗ wrong" in before, "when it was recorded it cost $0.0004" in before) == (True, True)
    assert model.bodies == []
    page = sent(pages, unescape(button), playbook=NEW.id)
    assert ("<del>Bergen</del>" in page, "<ins>Oslo</ins>" in page) == (True, True)
    assert "<title>✓ right · Step 1 · Playground · Journeyman</title>" in page
    assert ("20 → 2" in page, "7 → 3" in page) == (True, True)
    (body,) = model.bodies
    assert [each["role"] for each in body["messages"]] == ["system", "user"]
    assert CASE.content in body["messages"][0]["content"]


def test_another_model_is_asked_at_the_same_server(pages: Visitor, model: LLMServer) -> None:
    page = sent(pages, "/playground?trace=t1", model="gpt-5")
    assert model.bodies[0]["model"] == "gpt-5"
    assert CASE.content not in str(model.bodies[0])
    assert "gpt-5</td>" in page
    assert ("<del>" in page, "nobody can say" in words_of(page).lower()) == (False, True)


def test_where_no_price_is_known_that_is_said_before_anything_is_spent(pages: Visitor, model: LLMServer) -> None:
    told = words_of(pages.read("/playground?trace=t1&step=1"))
    assert "its provider alone says what it costs" in told


def test_what_was_asked_is_an_attempt_of_our_own_and_no_evidence(pages: Visitor, guard: Guard, store: TraceStore) -> None:
    assert pages.send("/labels", token=guard.form_token, trace="t1", metric="correct_answer", value="Oslo")[0] == 303
    sent(pages, "/playground?trace=t1&step=1", playbook=NEW.id)
    (kept,) = store.traces(Query(task_id="playground"))
    assert (kept.agent, kept.source, kept.held_out, kept.candidate_id) == (OWN_AGENT, "run", True, NEW.id)
    assert kept.raw["playground"] == {"trace": "t1", "step": 1, "by": "ana"}
    (slot,) = [each for each in gather(iter([kept])) if each.slot.agent == OWN_AGENT]
    assert (slot.attempts, sum(slot.left_out.values())) == ((), 1)
    assert of_live_traffic([kept], least=0) == ()
    assert "playground" in pages.read("/traces?task=playground")


def test_who_has_no_release_token_or_no_forms_token_spends_nothing(pages: Visitor, guard: Guard, model: LLMServer) -> None:
    fields: dict[str, Any] = {"trace": "t1", "step": "1", "server": "mine", "model": "gpt-5-mini", "playbook": ""}
    assert pages.send("/playground", token=guard.form_token, key="another", **fields)[0] == 403
    assert pages.send("/playground", token="0" * 64, key=RELEASES, **fields)[0] == 403
    assert model.bodies == []


def test_nobody_is_asked_but_the_gateways_own_servers(
    pages: Visitor, guard: Guard, store: TraceStore, model: LLMServer
) -> None:
    """What a trace says of where it came from is a stranger's word."""
    fields: dict[str, Any] = {"token": guard.form_token, "key": RELEASES, "trace": "t1", "step": "1", "playbook": ""}
    status, said = pages.send("/playground", server="http://169.254.169.254", model="m", **fields)
    assert (status, "is none of mine" in unescape(said)) == (400, True)
    assert model.bodies == []


def test_an_answer_that_did_not_come_is_kept_and_shown(pages: Visitor, store: TraceStore, model: LLMServer) -> None:
    model.default = lambda body: error(500, "overloaded")
    page = words_of(sent(pages, "/playground?trace=t1&step=1"))
    assert "answered 500" in page
    (kept,) = store.traces(Query(task_id="playground"))
    assert kept.error is not None
    assert len(model.bodies) == 1


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/playground?trace=nobody", 404, "no such trace"),
        ("/playground?trace=t1&step=7", 400, "those are 1"),
        ("/playground?trace=t1&step=x", 400, "no number of a step"),
        ("/playground?trace=t1&step=1&playbook=nobody", 400, "nobody"),
        ("/playground?trace=t1&step=1&server=elsewhere", 400, "is none of mine"),
    ],
)
def test_what_cannot_be_asked_is_said_in_one_sentence(pages: Visitor, path: str, status: int, said: str) -> None:
    assert said in unescape(pages.read(path, status))
