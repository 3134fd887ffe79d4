"""What a person says on a page is kept, can be taken back, and cannot be said by another site."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from journeyman.serving.dashboard.layout import Guard
from journeyman.stores.traces.base import AUTO, TraceStore
from tests.support.pages import WHO, Visitor
from tests.support.watched import NOON, booking


@pytest.fixture
def pages(store: TraceStore, pages: Visitor) -> Visitor:
    store.add([booking()])
    return pages


def said(store: TraceStore) -> list[tuple[str, bool | None]]:
    return [(label.who, label.good) for label in store.labels("t1")]


def test_a_label_from_a_form_is_kept_and_leads_back(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    status, _ = pages.send("/labels", token=guard.form_token, trace="t1", good="yes", back="/traces?agent=desk")
    assert (status, said(store)) == (303, [(WHO, True)])
    page = pages.read("/traces/t1")
    assert re.search(r'<button class="good"[^>]*value="clear" aria-pressed="true"', page)


def test_the_form_of_the_page_is_one_that_is_accepted(store: TraceStore, pages: Visitor) -> None:
    page = pages.read("/traces")
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))
    assert fields.keys() == {"token", "trace", "back"}
    status, _ = pages.send("/labels", **fields, good="no")
    assert (status, said(store)) == (303, [(WHO, False)])


def test_a_script_gets_the_buttons_and_a_way_back_to_what_was_before(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    pages.send("/labels", token=guard.form_token, trace="t1", good="no")
    status, fragment = pages.send("/labels", fragment=True, token=guard.form_token, trace="t1", good="yes")
    assert status == 200
    assert 'data-good="yes"' in fragment
    undo = re.search(r'id="undo" name="undo" value="(\w+)"', fragment)
    assert undo
    assert undo[1] == "no"
    _, fragment = pages.send("/labels", fragment=True, token=guard.form_token, trace="t1", undo="no")
    assert 'data-good="no"' in fragment
    assert 'id="undo"' not in fragment
    assert said(store) == [(WHO, False), (WHO, True), (WHO, False)]


def test_taking_a_label_back_leaves_what_others_say(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    store.label("t1", False, who="ben", at=NOON)
    pages.send("/labels", token=guard.form_token, trace="t1", good="yes")
    _, fragment = pages.send("/labels", fragment=True, token=guard.form_token, trace="t1", good="clear")
    assert 'data-good="no"' in fragment
    assert "ben: bad" in fragment


def test_a_proposal_of_the_auto_labeler_is_marked_and_can_be_confirmed(store: TraceStore, pages: Visitor) -> None:
    store.label("t1", True, who=AUTO, at=NOON, probability=0.9)
    assert re.search(r'<button class="good auto"[^>]*value="yes" aria-pressed="true"', pages.read("/traces/t1"))


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "http://localhost:9999"},
    ],
)
def test_a_form_of_another_site_does_nothing(store: TraceStore, pages: Visitor, guard: Guard, headers: dict[str, str]) -> None:
    status, answer = pages.send("/labels", token=guard.form_token, trace="t1", good="yes", headers=headers)
    assert (status, said(store)) == (403, [])
    assert "another site" in answer


def test_a_form_without_our_token_does_nothing(store: TraceStore, pages: Visitor) -> None:
    for token in ("", "0" * 64, "é"):
        status, answer = pages.send("/labels", token=token, trace="t1", good="yes")
        assert status == 403
        assert "load it again" in answer
    assert said(store) == []


def test_what_is_no_label_is_refused(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    status, _ = pages.send("/labels", token=guard.form_token, trace="t1", good="maybe")
    assert (status, said(store)) == (400, [])


def test_a_form_that_is_too_long_is_refused(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    status, _ = pages.send("/labels", token=guard.form_token, trace="t1", good="yes", back="x" * 200_000)
    assert (status, said(store)) == (413, [])


def test_a_trace_that_is_gone_cannot_be_labelled(pages: Visitor, guard: Guard) -> None:
    status, answer = pages.send("/labels", fragment=True, token=guard.form_token, trace="gone", good="yes")
    assert status == 404
    assert "no such trace" in answer


def test_a_get_labels_nothing(store: TraceStore, pages: Visitor, guard: Guard) -> None:
    assert pages.client.get(f"/labels?token={guard.form_token}&trace=t1&good=yes").status_code == 404
    assert said(store) == []


@pytest.mark.parametrize("own", [None, True, False])
def test_the_page_of_a_trace_says_of_its_label_what_the_list_says(store: TraceStore, pages: Visitor, own: bool | None) -> None:
    store.add([replace(booking(), label=own)])
    holding = r'<button class="(?:good|bad)(?: auto)?"[^>]*aria-pressed="true" title="[^"]*"'
    words = [("nobody", None), (AUTO, False), ("ann", True), ("ben", False), ("ben", None)]
    for minute, (who, good) in enumerate(words):
        store.label("t1", good, who=who, at=NOON + timedelta(minutes=minute))
        in_list, alone = (re.findall(holding, pages.read(path)) for path in ("/traces", "/traces/t1"))
        assert in_list == alone
        assert len(alone) == (0 if own is None and who == "nobody" else 1)
