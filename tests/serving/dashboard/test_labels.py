"""What a person says on a page is kept, can be taken back, and cannot be said by another site."""

import html
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import pytest

from journeyman.core.feedback import Feedback, LabelScheme, TargetKind
from journeyman.core.reward import Source
from journeyman.serving.dashboard.layout import Guard
from journeyman.serving.dashboard.trace_page import LabelRules
from journeyman.stores.traces.base import AUTO, TraceStore
from tests.support.pages import WHO, Visitor, visitor
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


def test_a_label_that_the_auto_labeler_withdrew_is_said_and_holds_no_more(store: TraceStore, pages: Visitor) -> None:
    store.label("t1", True, who=AUTO, at=NOON, probability=0.9)
    store.label("t1", None, who=AUTO, at=NOON + timedelta(hours=1))
    page = pages.read("/traces/t1")
    assert "withdrew what it said: good" in page
    assert 'aria-pressed="true"' not in page


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


SCHEME = LabelScheme.parse(["helpful:1..5"], ["topic:refund,delivery"])
EVIL = '"><script>alert(1)</script>\u202e&'


@pytest.fixture
def rated(store: TraceStore, guard: Guard) -> Visitor:
    store.add([booking()])
    return visitor(store, guard, labels=LabelRules(scheme=SCHEME))


def words(store: TraceStore) -> dict[str, tuple[str | None, float | None, str | None]]:
    return {each.metric: (each.rater, each.value, each.text) for each in store.feedback_of([(TargetKind.TRACE, "t1")])}


def forms(page: str) -> dict[str, dict[str, Any]]:
    """The hidden fields of each form that says a word, by its metric."""
    found = re.findall(r'<form class="word" method="post" action="/labels".*?</form>', page, re.DOTALL)
    fields = [dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)) for form in found]
    return {each["metric"]: each for each in fields}


def test_every_word_is_said_by_a_form_alone_and_undone_by_one(store: TraceStore, rated: Visitor) -> None:
    given = {"correct_answer": "At seven.", "note": "ask the desk", "score": "0.5", "helpful": "4", "topic": "refund"}
    for metric, value in given.items():
        status, _ = rated.send("/labels", **forms(rated.read("/traces/t1"))[metric], value=value)
        assert status == 303
    assert words(store) == {
        "correct_answer": (WHO, None, "At seven."),
        "note": (WHO, None, "ask the desk"),
        "score": (WHO, 0.5, None),
        "helpful": (WHO, 4.0, None),
        "topic": (WHO, None, "refund"),
    }
    page = rated.read("/traces/t1")
    for said in ("At seven.", "ask the desk", "4 of 1 to 5", "refund"):
        assert said in page
    assert re.search(
        r"<del>There</del> <del>is one at six</del>\..*<h3>Wanted</h3>.*<ins>At</ins> <ins>seven</ins>\.", page, re.DOTALL
    )
    for metric in given:
        form = forms(page)[metric]
        assert rated.send("/labels", **form, value="2" if metric == "helpful" else given[metric])[0] == 303
        assert rated.send("/labels", **form, undo="last")[0] == 303
    assert words(store)["helpful"] == (WHO, 4.0, None)
    for metric in given:
        assert rated.send("/labels", **forms(page)[metric], value="")[0] == 303
    assert words(store) == {}


def test_a_script_gets_what_was_said_and_a_way_back(store: TraceStore, rated: Visitor) -> None:
    form = forms(rated.read("/traces/t1"))["correct_answer"]
    rated.send("/labels", **form, value="At five.")
    status, fragment = rated.send("/labels", fragment=True, **form, value="At seven.")
    assert status == 200
    assert re.search(r'<section [^>]*id="said"[^>]* hx-swap-oob="outerHTML">', fragment)
    assert "Answer kept" in fragment
    undo = dict(re.findall(r'name="(\w+)" value="([^"]*)"', fragment[fragment.index('id="toast"') :]))
    assert undo.pop("undo") == "last"
    status, fragment = rated.send("/labels", fragment=True, **undo, undo="last")
    assert (status, words(store)) == (200, {"correct_answer": (WHO, None, "At five.")})
    assert 'id="undo"' not in fragment


def test_what_was_said_of_a_request_is_taken_back_of_the_request(store: TraceStore, rated: Visitor) -> None:
    store.add([replace(booking(), id="t2", source="gateway")])
    request: dict[str, Any] = {
        "target_kind": TargetKind.REQUEST,
        "target": "t2",
        "source": Source.PERSON,
        "rater": WHO,
        "at": NOON,
    }
    store.add_feedback(
        [Feedback(id="n", metric="note", text="ask", **request), Feedback(id="g", value=1.0, **request)], now=NOON
    )
    form = forms(rated.read("/traces/t2"))["note"]
    assert "Note taken back" in rated.send("/labels", fragment=True, **form, undo="last")[1]
    asked = {name: value for name, value in form.items() if name != "metric"}
    assert "Label taken back" in rated.send("/labels", fragment=True, **asked, undo="last")[1]
    assert store.feedback_of([(TargetKind.REQUEST, "t2"), (TargetKind.TRACE, "t2")]) == []
    line = store.line("t2")
    assert line is not None
    assert line.label is None


@pytest.mark.parametrize(
    ("metric", "value", "said"),
    [
        ("score", "nan", "score is a number from 0 to 1, not"),
        ("score", "1e999", "score is a number from 0 to 1, not"),
        ("score", "1.5", "score is a number from 0 to 1, not"),
        ("score", "", "value is missing"),
        ("helpful", "0", "helpful is a number from 1 to 5"),
        ("stars", "5", "none of correct_answer, note, score, helpful, topic"),
        ("topic", "weather", "topic is one of refund, delivery"),
        ("note", "  ", "value is missing"),
        ("correct_answer", "x" * 20_001, "1 to 20,000 characters"),
        ("success", "1", "a label is yes, no or clear"),
    ],
)
def test_what_cannot_be_said_is_refused_in_one_sentence(
    store: TraceStore, rated: Visitor, guard: Guard, metric: str, value: str, said: str
) -> None:
    status, answer = rated.send("/labels", fragment=True, token=guard.form_token, trace="t1", metric=metric, value=value)
    assert (status, words(store)) == (400, {})
    assert said in answer
    assert "\n" not in answer.strip()


def test_ten_megabytes_and_a_trace_that_is_gone_are_refused(store: TraceStore, rated: Visitor, guard: Guard) -> None:
    asked: dict[str, Any] = {"token": guard.form_token, "metric": "note"}
    assert rated.send("/labels", fragment=True, **asked, trace="t1", value="x" * 10_000_000)[0] == 413
    assert rated.send("/labels", fragment=True, **asked, trace="gone", value="x")[0] == 404
    assert rated.send("/labels", fragment=True, metric="note", token="", trace="t1", value="x")[0] == 403
    assert words(store) == {}


def test_two_people_at_one_server_are_told_apart_and_both_are_shown(store: TraceStore, rated: Visitor, guard: Guard) -> None:
    rated.send("/labels", token=guard.form_token, trace="t1", good="yes")
    assert rated.send("/rater", token=guard.form_token, name=" Bó  Ek ", back="/traces/t1")[0] == 303
    assert "Say more of it as <b>Bó Ek</b>" in rated.read("/traces/t1")
    rated.send("/labels", token=guard.form_token, trace="t1", good="no")
    assert said(store) == [(WHO, True), ("Bó Ek", False)]
    page = rated.read("/traces/t1")
    apart = re.search(r'id="apart">(.*?)</p>', page)
    assert apart
    assert f"{WHO} says good, Bó Ek says bad: they disagree. What holds is the word of Bó Ek" in apart[1]
    rated.send("/rater", token=guard.form_token, name="")
    assert f"as <b>{WHO}</b>" in rated.read("/traces/t1")
    rated.send("/labels", token=guard.form_token, trace="t1", good="no")
    assert 'id="apart"' not in rated.read("/traces/t1")


@pytest.mark.parametrize("name", ["ground-truth", "End User", AUTO, "recorder", "x" * 101, "a\u202eb", "a\x00b"])
def test_a_name_that_stands_for_no_person_is_refused(store: TraceStore, rated: Visitor, guard: Guard, name: str) -> None:
    assert rated.send("/rater", token=guard.form_token, name=name)[0] == 400
    rated.client.cookies.set("journeyman_rater", quote(name))
    rated.send("/labels", token=guard.form_token, trace="t1", good="yes")
    assert said(store) == [(WHO, True)]


def test_what_raters_write_is_text_on_every_page(store: TraceStore, guard: Guard) -> None:
    scheme = LabelScheme(categories={"topic": (EVIL, "b")})
    store.add([booking()])
    rated = visitor(store, guard, labels=LabelRules(scheme=scheme))
    store.label("t1", True, who="bo", at=NOON)
    evil = [Feedback(id=f"f{metric}", target_kind=TargetKind.TRACE, target="t1", metric=metric, text=EVIL, rater=EVIL,
                     source=Source.PERSON, at=NOON) for metric in ("correct_answer", "note", "topic", EVIL)]  # fmt: skip
    store.add_feedback(evil, now=NOON)
    store.add_feedback([replace(each, id=f"{each.id}-2", rater="bo", text="b") for each in evil], now=NOON)
    store.label("t1", False, who=EVIL, at=NOON)
    form = forms(rated.read("/traces/t1"))["note"]
    pages = [rated.read("/traces/t1"), rated.read("/performance"), rated.send("/labels", fragment=True, **form, value=EVIL)[1]]
    for page in pages:
        assert "<script>alert" not in page
        assert "\u202e" not in page
        assert "&lt;script&gt;alert(1)" in page


def test_a_field_holds_what_was_said_with_the_marks_of_its_writing(store: TraceStore, guard: Guard) -> None:
    hebrew, topic = "\u200f\u05d1\u05e9\u05e2\u05d4 7\u200f <b>&", "\u200f\u05d4\u05d7\u05d6\u05e8"
    store.add([replace(booking(), output=hebrew)])
    rated = visitor(store, guard, labels=LabelRules(scheme=LabelScheme(categories={"topic": (topic, "b")})))
    given = {"correct_answer": hebrew, "note": hebrew, "topic": topic}
    for metric, value in given.items():
        assert rated.send("/labels", **forms(rated.read("/traces/t1"))[metric], value=value)[0] == 303
    page = rated.read("/traces/t1")
    fields = re.findall(r'<textarea[^>]*name="value"[^>]*>\n(.*?)</textarea>', page, re.DOTALL)
    asked = [*fields, *re.findall(r'data-answered="([^"]*)"', page), *re.findall(r'<option value="([^"]+)" selected', page)]
    assert [html.unescape(each) for each in asked] == [hebrew, hebrew, hebrew, topic]
    assert "\u200f" not in page
    assert "[U+200F]" in page


def test_what_must_not_be_kept_is_taken_out_of_what_is_written(store: TraceStore, guard: Guard) -> None:
    store.add([booking()])
    rules = LabelRules(scheme=SCHEME, clean=lambda text: f"[{len(text)} characters]")
    rated = visitor(store, guard, labels=rules)
    for metric, value in (("note", "secret"), ("topic", "refund")):
        rated.send("/labels", token=guard.form_token, trace="t1", metric=metric, value=value)
    assert words(store) == {"note": (WHO, None, "[6 characters]"), "topic": (WHO, None, "refund")}
