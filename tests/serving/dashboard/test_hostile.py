"""Traces are written by strangers. Whatever stands in them is shown as text."""

import re
from dataclasses import fields, replace
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.reward import Reward
from journeyman.core.trace import AgentCall, Message, ModelCall, Reasoning, Step, ToolCall, Trace
from journeyman.serving.dashboard.layout import Guard, name
from journeyman.stores.traces.base import TraceStore
from tests.support.examples import examples
from tests.support.pages import Visitor
from tests.support.watched import NOON

pytestmark = pytest.mark.service

EVIL = '"\'><script>alert(1)</script><img src=x onerror=alert(2)>{{1331*1331}}<a href="javascript:alert(3)">x</a>'
OURS = {"script", "link", "meta", "img", "form", "input", "button", "a", "svg"}


def filled(kind: type[Any], text: str, **given: Any) -> Any:
    """A value with the text in every field that takes one."""
    texts = {each.name: text for each in fields(kind) if each.type in ("str", "str | None", str, str | None)}
    return kind(**{**texts, "raw": {text: [text]}, **given})


def hostile(text: str) -> Trace:
    steps: tuple[Step, ...] = (
        filled(AgentCall, text, id="a", parent=None),
        filled(
            ModelCall, text, id="m", parent="a", continues=None, shown=(text,), cited=(text + "2",),
            messages=tuple(Message(role=role, text=text) for role in ("system", "user", "assistant", "tool", text)),
        ),
        filled(ToolCall, text, id="k", parent="m"),
        filled(Reasoning, text, id="r", parent="m"),
    )  # fmt: skip
    trace: Trace = filled(
        Trace,
        text,
        started_at=NOON,
        steps=steps,
        other_candidates=(text,),
        tasks_created=(text,),
        tasks_completed=(text,),
        tasks_failed=(text,),
        rewards=(Reward(name=text, value=0.5, evidence=text),),
    )
    return trace


class Tags(HTMLParser):
    """What a browser would make elements of."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def refuse_what_runs(page: str) -> None:
    tags = Tags()
    tags.feed(page)
    for tag, attributes in tags.found:
        assert not [key for key in attributes if key.startswith("on") or key == "style" or key.startswith("hx-on")], (
            tag,
            attributes,
        )
        for key in ("href", "src", "action", "hx-get", "hx-post"):
            address = attributes.get(key)
            assert address is None or re.match(r"/(?![/\\])|#|$", address), (tag, address)
        if tag in ("script", "img", "link"):
            assert (attributes.get("src") or attributes.get("href") or "").startswith("/static/")
    assert "iframe" not in {tag for tag, _ in tags.found}


def paths(trace: Trace) -> list[str]:
    at, session = name(trace.id), name(trace.session or "")
    return ["/traces", f"/traces/{at}", f"/traces/{at}?steps=all", "/sessions", f"/sessions/{session}", "/performance"]


def test_markup_in_every_field_is_text_on_every_page(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    trace = hostile(EVIL)
    store.add([trace])
    store.label(trace.id, True, who=EVIL, at=NOON)
    store.reward(trace.id, [Reward(name=EVIL + "!", value=1, evidence=EVIL)], by=EVIL, at=NOON)
    for path in paths(trace):
        page = pages.read(path)
        assert "<script>alert" not in page
        assert str(1331 * 1331) not in page
        refuse_what_runs(page)
    status, fragment = pages.send("/labels", fragment=True, token=guard.form_token, trace=name(trace.id), good="no")
    assert status == 200
    refuse_what_runs(fragment)


@pytest.mark.parametrize("query", ["q", "agent", "session", "candidate", "since", "after", "have", "show", "steps"])
def test_markup_in_an_address_is_text(store: TraceStore, pages: Visitor, query: str) -> None:
    store.add([hostile("plain")])
    for path in ("/traces", "/traces/plain", "/performance", "/sessions", "/login"):
        answer = pages.client.get(path, params={query: EVIL, "to": EVIL}, headers={"accept": "text/html"})
        assert answer.status_code in (200, 204, 400)
        refuse_what_runs(answer.text)


def test_a_text_that_turns_the_direction_of_writing_is_seen_to_do_so(store: TraceStore, pages: Visitor) -> None:
    trace = replace(hostile("safe \u202etxt.exe\x00\x1b[31m"), id="rtl")
    store.add([trace])
    for path in paths(trace):
        page = pages.read(path)
        assert not {"\u202e", "\x00", "\x1b"} & set(page)
    assert "safe [U+202E]txt.exe[U+0000][U+001B][31m" in pages.read("/traces/rtl")


def test_texts_of_a_megabyte_in_every_field_make_a_page_of_ordinary_size(store: TraceStore, pages: Visitor) -> None:
    trace = replace(hostile("lorem <b> " * 100_000), id="big", session="s")
    store.add([trace])
    for path in paths(trace):
        assert len(pages.read(path)) < 400_000, path


@examples(0.5, one_fixture=True)
@given(st.text(st.characters(), min_size=1, max_size=30))
def test_a_trace_of_any_text_can_be_found_and_read(store: TraceStore, pages: Visitor, text: str) -> None:
    trace = hostile(text)
    store.add([trace])
    for path in paths(trace):
        refuse_what_runs(pages.read(path))
