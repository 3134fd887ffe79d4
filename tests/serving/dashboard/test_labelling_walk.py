"""One walk, as two people take it: label by key, correct, disagree, and find it all where labels count."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from journeyman.cli import main
from journeyman.core.feedback import LabelScheme, TargetKind
from journeyman.core.reward import Source
from journeyman.core.trace import Message, ModelCall, Trace
from journeyman.serving.dashboard.trace_page import LabelRules
from journeyman.stores.rollouts import open_rollouts
from journeyman.stores.traces.base import TraceStore
from tests.serving.dashboard.test_browser import CHROMIUM, FAILURES
from tests.serving.dashboard.test_browser import browser as browser
from tests.support.pages import WHO, Serve
from tests.support.watched import NOON

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium: apt-get install chromium"),
]
TRACES = 12


def served(number: int) -> Trace:
    """A question that a session on the canary asked through the gateway."""
    id, at = f"t{number:03}", NOON + timedelta(minutes=number)
    call = ModelCall(
        id=id,
        model="m",
        prompt=f"user: Where is order {number}?",
        messages=(Message(role="user", text=f"Where is order {number}?"),),
        reply=f"Order {number} is in Oslo.",
        started_at=at,
        seconds=1.0,
        raw={"release": [{"rollout": "ro", "unit": id, "arm": "canary"}]},
    )
    return Trace(
        id=id,
        task_id=id,
        candidate_id="base",
        started_at=at,
        steps=(call,),
        agent="desk",
        session=f"s{number}",
        source="gateway",
    )


@pytest.fixture
def url(store: TraceStore, serve: Serve) -> str:
    store.add(served(number) for number in range(TRACES))
    scheme = LabelScheme.parse(["helpful:1..5"], ["topic:refund,delivery"])
    return serve(store, labels=LabelRules(scheme=scheme))


@pytest.fixture
def visit(browser: "Browser", url: str) -> Iterator["Page"]:
    yield from opened(browser, url)


@pytest.fixture
def colleague(browser: "Browser", url: str) -> Iterator["Page"]:
    """Another person's browser at the same server."""
    yield from opened(browser, url)


def opened(browser: "Browser", url: str) -> Iterator["Page"]:
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(10_000)
    wrong: list[str] = []
    page.add_init_script(FAILURES)
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    wrong += page.evaluate("window.violations") or []
    context.close()
    assert wrong == []


def expect_toast(page: "Page", text: str) -> None:
    from playwright.sync_api import expect

    expect(page.locator("#toast")).to_contain_text(text)


def says_by_keys_alone(visit: "Page", store: TraceStore) -> None:
    """Labels, corrects the answer, takes a note back, scores."""
    visit.goto("/traces/t000")
    visit.keyboard.press("b")
    expect_toast(visit, "Labelled bad")
    visit.keyboard.press("c")
    assert visit.locator("#say-answer").input_value() == "Order 0 is in Oslo."
    visit.keyboard.press("Control+a")
    visit.keyboard.type("Order 0 is in Bergen.")
    visit.keyboard.press("Control+Enter")
    expect_toast(visit, "Answer kept")
    assert visit.locator(".corrected ins").all_inner_texts() == ["Bergen"]
    assert visit.locator(".corrected del").all_inner_texts() == ["Oslo"]
    assert visit.evaluate("document.activeElement.id") == "said"
    visit.keyboard.press("n")
    visit.keyboard.type("ask the desk")
    visit.keyboard.press("Control+Enter")
    expect_toast(visit, "Note kept")
    visit.keyboard.press("u")
    expect_toast(visit, "Note taken back")
    visit.keyboard.press("s")
    visit.keyboard.type("0.25")
    visit.keyboard.press("Enter")
    expect_toast(visit, "score kept")
    words = store.feedback_of([(TargetKind.TRACE, "t000")])
    assert [(each.metric, each.value, each.text, each.rater) for each in words] == [
        ("success", 0.0, None, WHO), ("correct_answer", None, "Order 0 is in Bergen.", WHO), ("score", 0.25, None, WHO)
    ]  # fmt: skip


def says_who_they_are_and_disagrees(colleague: "Page") -> None:
    colleague.goto("/traces/t000")
    colleague.locator("#say summary").click()
    colleague.get_by_label("You are").fill("Bo")
    colleague.get_by_role("button", name="Change the name").click()
    colleague.wait_for_url("**/traces/t000")
    for number in range(TRACES):
        colleague.goto(f"/traces/t{number:03}")
        colleague.keyboard.press("g" if number % 2 == 0 else "b")
        expect_toast(colleague, "Labelled")
    colleague.goto("/traces/t000")
    assert (
        f"{WHO} says bad, Bo says good: they disagree. What holds is the word of Bo" in colleague.locator("#apart").inner_text()
    )
    colleague.goto("/performance")
    row = colleague.locator("#agreement tbody tr").filter(has_text="success").inner_text()
    assert "Cohen's κ 0.83 (0.3" in row
    assert "on 12" in row
    colleague.locator("#agreement a").first.click()
    colleague.wait_for_url("**/traces/t000")


def finds_it_in_a_set_of_rows_and_in_the_evidence(store: Path, out: Path) -> None:
    assert main(["dataset", "build", "--method", "kto", "--out", str(out), "--store", str(store)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    wanted = [row for row in rows if row["source"]["trace"] == "t000"]
    assert [(row["completion"][-1]["content"], row["label"]) for row in wanted] == [
        ("Order 0 is in Oslo.", True), ("Order 0 is in Bergen.", True)
    ]  # fmt: skip
    assert "ask the desk" not in out.read_text()
    with open_rollouts(store) as rollouts:
        said = rollouts.served_sessions("ro", ["t000"])["t000"].said()["t000"]
    assert {(each.reward.name, each.reward.value) for each in said if each.reward.told_by is Source.PERSON} == {
        (WHO, 0.0), ("Bo", 1.0), ("score (person)", 0.25), ("correct_answer (person)", None)
    }  # fmt: skip


def test_what_two_people_say_of_traces_counts_wherever_labels_count(
    visit: "Page", colleague: "Page", store: TraceStore, tmp_path: Path
) -> None:
    says_by_keys_alone(visit, store)
    for number in range(1, TRACES):
        store.label(f"t{number:03}", number % 2 == 0, who=WHO, at=NOON + timedelta(hours=1))
    says_who_they_are_and_disagrees(colleague)
    finds_it_in_a_set_of_rows_and_in_the_evidence(tmp_path / "journeyman.db", tmp_path / "kto.jsonl")


def test_without_a_script_all_of_it_is_said_and_undone(browser: "Browser", url: str, store: TraceStore) -> None:
    context = browser.new_context(base_url=url, java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(10_000)
    page.goto("/traces/t001")
    page.locator("#say summary").click()
    page.get_by_label("You are").fill("Cy")
    page.get_by_role("button", name="Change the name").click()
    for label, text, button in (
        ("What should have been answered", "In Bergen.", "Keep the answer"),
        ("Note, for people alone", "late", "Keep the note"),
        ("helpful", "4", "Keep helpful"),
    ):
        page.locator("#say summary").click()
        page.get_by_label(label).fill(text)
        page.get_by_role("button", name=button).click()
    page.locator("#say summary").click()
    page.get_by_label("topic").select_option("delivery")
    page.get_by_role("button", name="Keep topic").click()
    page.get_by_role("button", name="good", exact=True).click()
    words = store.feedback_of([(TargetKind.TRACE, "t001")])
    assert {(each.metric, each.text or each.value, each.rater) for each in words} == {
        ("correct_answer", "In Bergen.", "Cy"), ("note", "late", "Cy"), ("helpful", 4.0, "Cy"),
        ("topic", "delivery", "Cy"), ("success", 1.0, "Cy"),
    }  # fmt: skip
    for _ in range(5):
        page.get_by_role("button", name="Take back").first.click()
    assert store.feedback_of([(TargetKind.TRACE, "t001")]) == []
    assert page.get_by_role("button", name="Take back").count() == 0
    context.close()


@pytest.mark.parametrize("good", [True, False])
def test_a_proposed_label_is_accepted_by_key(visit: "Page", store: TraceStore, good: bool) -> None:
    for id in ("t002", f"t{TRACES - 1:03}"):
        store.label(id, good, who="auto-labeler", at=NOON, probability=0.9)
    visit.goto("/traces/t002")
    visit.keyboard.press("a")
    expect_toast(visit, f"Labelled {'good' if good else 'bad'}")
    last = store.labels("t002")[-1]
    assert (last.who, last.good) == (WHO, good)
    # In the list it is that of the row where one stands; where none is proposed nothing is said.
    visit.goto("/traces")
    visit.keyboard.press("j")
    visit.keyboard.press("a")
    expect_toast(visit, f"Labelled {'good' if good else 'bad'}")
    visit.keyboard.press("j")
    visit.keyboard.press("a")
    visit.wait_for_timeout(300)
    said = [label for label in store.labels() if label.who == WHO]
    assert {(label.trace_id, label.good) for label in said} == {("t002", good), (f"t{TRACES - 1:03}", good)}
