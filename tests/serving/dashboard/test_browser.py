"""The pages in a real browser: found, read, labelled, undone; with keys, without a script, and with a trace that means harm."""

import itertools
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from journeyman.serving.dashboard import routes
from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import TraceStore
from tests.serving.dashboard.test_hostile import EVIL, hostile
from tests.support.furnished import addresses, furnish, planned, shown
from tests.support.pages import WHO, Serve, servers
from tests.support.watched import NOON, booking

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium: apt-get install chromium"),
]
GUIDELINES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")
OF_COLOURS = ("color-contrast", "link-in-text-block")
"""Axe's rules on which it hangs what colours a page has."""
AXE = """(rules) => axe.run(document, {runOnly: rules, resultTypes: ["violations"]}).then((found) =>
  [found.passes.length, found.violations.map((each) => [each.id, each.nodes[0].html.slice(0, 200)])])"""
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
NOT_THERE = "Failed to load resource: the server responded with a status of 404 (Not Found)"
FAILURES = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
window.alert = () => violations.push("alert");
"""


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    # The walls of the browser need a user who is not root; it sees our own pages only.
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@dataclass(frozen=True, slots=True)
class Desk:
    """A page that somebody looks at, and what went wrong in it."""

    page: "Page"
    url: str
    wrong: list[str]
    pages: list[str]
    """An address or more of each page that the server has; the last is that of none, which a browser calls wrong."""

    def go(self, path: str) -> "Page":
        self.page.goto(self.url + path)
        return self.page

    def expect_count(self, selector: str, count: int) -> None:
        """Playwright's own wait for a condition evaluates a string, which our pages forbid."""
        from playwright.sync_api import expect

        expect(self.page.locator(selector)).to_have_count(count)

    def expect_labels(self, count: int, value: str) -> None:
        self.expect_count(f'form.label[data-good="{value}"]', count)


@contextmanager
def looked_on(browser: "Browser", url: str, pages: list[str], **options: Any) -> Iterator[Desk]:
    """A page on a server, in which nothing may go wrong."""
    page = browser.new_page(viewport={"width": 1280, "height": 860}, **options)
    page.set_default_timeout(10_000)
    wrong: list[str] = []
    page.add_init_script(FAILURES)
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith((url, "data:")) else wrong.append(request.url))
    yield Desk(page, url, wrong, pages)
    wrong += page.evaluate("window.violations")
    page.close()
    assert wrong == []


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project's folder in which every page has something to show; for copies."""
    folder = tmp_path_factory.mktemp("furnished")
    furnish(folder / "project.db", folder)
    return folder


def opened(folder: Path, store: TraceStore, start: Serve) -> tuple[str, list[str]]:
    """Serve traces, and a project apart, so that the list has these traces alone; the address, and those of its pages."""
    store.add(booking(f"t{n:03}", asked=f"Question {n:03}", at=NOON + timedelta(minutes=n)) for n in range(120))
    project = ProjectStores(folder / "project.db", release_tokens=["a-token-for-releases"], folder=folder)
    return start(store, (), project), addresses(routes(store, who=WHO, project=project))


@pytest.fixture
def desk(browser: "Browser", store: TraceStore, serve: Serve, furnished: Path, tmp_path: Path) -> Iterator[Desk]:
    shutil.copytree(furnished, tmp_path, dirs_exist_ok=True)
    with looked_on(browser, *opened(tmp_path, store, serve)) as found:
        yield found


@pytest.fixture(scope="module")
def filled(furnished: Path) -> Iterator[tuple[str, list[str]]]:
    """A server all of whose pages show something, for whoever only looks."""
    with tempfile.TemporaryDirectory() as name, open_traces(Path(name) / "journeyman.db") as store, servers() as start:
        store.add([hostile("word" * 200 + EVIL), *shown()])
        yield opened(furnished, store, start)


@pytest.fixture
def everywhere(browser: "Browser", filled: tuple[str, list[str]]) -> Iterator[Desk]:
    """Every page of that server; the browser calls wrong that the last is not there."""
    with looked_on(browser, *filled) as found:
        yield found
        found.wrong[:] = [said for said in found.wrong if said != NOT_THERE]


def good(store: TraceStore, id: str) -> bool | None:
    labels = [label.good for label in store.labels(id) if label.who == WHO]
    return labels[-1] if labels else None


def test_a_trace_is_found_read_labelled_and_the_label_undone(desk: Desk, store: TraceStore) -> None:
    store.add([booking("find-me", asked="A zebra for the office")])
    page = desk.go("/traces")
    page.get_by_role("searchbox").fill("zebra")
    page.wait_for_url("**/traces?q=zebra")
    page.get_by_role("link", name="A zebra for the office").click()
    page.wait_for_url("**/traces/find-me?q=zebra")
    assert page.get_by_text("There is one at six.").is_visible()
    assert not page.locator("details.call pre").first.is_visible()
    page.locator("details.call summary").click()
    assert page.locator("details.call pre").first.is_visible()
    page.get_by_role("button", name="good").click()
    desk.expect_labels(1, "yes")
    assert good(store, "find-me") is True
    page.get_by_role("button", name="Undo").click()
    desk.expect_labels(0, "yes")
    assert good(store, "find-me") is None
    assert page.get_by_text("Label taken back").is_visible()


def test_a_slow_click_right_after_searching_opens_what_was_clicked(desk: Desk, store: TraceStore) -> None:
    # Pressing the button takes the focus from the search, which must not replace the list under the pointer.
    store.add([booking("find-me", asked="A zebra for the office")])
    page = desk.go("/traces")
    page.get_by_role("searchbox").fill("zebra")
    page.wait_for_url("**/traces?q=zebra")
    page.get_by_role("link", name="A zebra for the office").hover()
    page.mouse.down()
    page.wait_for_timeout(500)
    page.mouse.up()
    page.wait_for_url("**/traces/find-me?q=zebra")


def test_the_list_is_worked_through_with_keys_alone(desk: Desk, store: TraceStore) -> None:
    page = desk.go("/traces")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("g")
    desk.expect_labels(1, "yes")
    page.keyboard.press("j")
    page.keyboard.press("b")
    desk.expect_labels(1, "no")
    assert (good(store, "t118"), good(store, "t117")) == (True, False)
    page.keyboard.press("u")
    desk.expect_labels(0, "no")
    assert good(store, "t117") is None
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url("**/traces/t118")
    page.keyboard.press("[")
    page.wait_for_url("**/traces/t117")
    page.keyboard.press("]")
    page.wait_for_url("**/traces/t118")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.id") == "s1"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    assert page.locator("#s2 details").get_attribute("open") is not None
    page.keyboard.press("?")
    assert page.get_by_role("dialog", name="Keys").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    page.wait_for_url("**/traces")
    page.keyboard.press("/")
    page.keyboard.type("jgb")
    assert page.get_by_role("searchbox").input_value() == "jgb"
    assert good(store, "t118") is True


def test_a_trace_is_looked_into_beside_the_list_which_stays_as_it_is(desk: Desk, store: TraceStore) -> None:
    page = desk.go("/traces")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Space")
    beside = page.get_by_role("complementary", name="The trace, beside the list")
    beside.get_by_text("There is one at six.").wait_for()
    assert beside.get_by_role("heading", name="Question 118").is_visible()
    assert page.url == desk.url + "/traces"
    # The list is gone through as before, and what is beside it comes along.
    page.keyboard.press("j")
    beside.get_by_role("heading", name="Question 117").wait_for()
    page.keyboard.press("g")
    desk.expect_labels(1, "yes")
    assert good(store, "t117") is True
    page.keyboard.press("Escape")
    assert not beside.is_visible()
    assert page.url == desk.url + "/traces"
    page.keyboard.press("Space")
    beside.get_by_role("heading", name="Question 117").wait_for()
    page.keyboard.press("Space")
    assert not beside.is_visible()
    # On a button the key presses the button.
    page.locator("#rows form.label button.bad").nth(5).focus()
    page.keyboard.press("Space")
    desk.expect_labels(1, "no")
    assert not beside.is_visible()


def test_single_keys_can_be_turned_off_and_stay_off(desk: Desk, store: TraceStore) -> None:
    page = desk.go("/traces")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Single keys do this").uncheck()
    page.get_by_role("button", name="Close").click()
    for _ in range(2):
        page.locator("#rows a.open").first.focus()
        for key in ("j", "g", "b", "u", "/", "?", "[", "Space"):
            page.keyboard.press(key)
        page.wait_for_timeout(300)
        assert page.evaluate("document.activeElement.textContent") == "Question 119"
        assert store.labels() == []
        assert not page.locator("#help").is_visible()
        assert not page.locator("#peek").is_visible()
        page.reload()
    page.keyboard.press("Control+k")
    assert page.locator("#go").is_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keys").click()
    page.get_by_label("Single keys do this").check()
    page.get_by_role("button", name="Close").click()
    page.locator("#rows a.open").first.focus()
    page.keyboard.press("g")
    desk.expect_labels(1, "yes")


def test_columns_are_chosen_and_stay_chosen(desk: Desk) -> None:
    page = desk.go("/traces")
    wide = page.locator("#rows a.open").first.bounding_box()
    page.get_by_text("Columns", exact=True).click()
    for name in ("Cost", "Tokens", "Started"):
        page.get_by_role("checkbox", name=name).uncheck()
    for _ in range(2):
        heads = [head.inner_text() for head in page.locator(".heads span").all() if head.is_visible()]
        assert heads == ["Input", "Latency", "Calls", "Score", "Label"]
        first = page.locator("#rows .row").first
        assert not any(first.locator(part).is_visible() for part in ("time", ".cost", ".tokens"))
        now = page.locator("#rows a.open").first.bounding_box()
        assert wide is not None
        assert now is not None
        assert now["width"] > wide["width"] + 200
        page.reload()


def test_filters_narrow_the_list_and_stay_in_the_address(desk: Desk, store: TraceStore) -> None:
    store.add([booking("other", asked="Another desk", agent="hotel", at=NOON + timedelta(days=1))])
    page = desk.go("/traces")
    page.get_by_text("Filters").click()
    page.get_by_label("Agent").fill("hotel")
    page.get_by_label("Agent").press("Tab")
    page.wait_for_url("**/traces?agent=hotel")
    desk.expect_count(".row", 1)
    page.reload()
    assert page.locator(".row").count() == 1
    page.get_by_label("Since").fill("soon")
    page.get_by_label("Since").press("Tab")
    page.get_by_role("alert").wait_for()
    assert "is no time" in page.get_by_role("alert").inner_text()
    desk.wrong[:] = [said for said in desk.wrong if "400" not in said]  # the browser notes the answer's status


def test_older_traces_come_as_one_scrolls(desk: Desk) -> None:
    page = desk.go("/traces")
    for _ in range(8):
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_timeout(150)
        if page.locator(".row").count() == 120:
            break
    assert page.locator(".row").count() == 120


def test_a_new_trace_appears_within_a_second_and_keeps_the_place(desk: Desk, store: TraceStore) -> None:
    page = desk.go("/traces")
    page.keyboard.press("j")
    page.keyboard.press("j")
    store.add([booking("new", asked="Just now", at=datetime.now(UTC))])
    # A second between looks, and what a busy machine takes to look.
    page.get_by_role("link", name="Just now").wait_for(timeout=4000)
    assert page.evaluate("document.activeElement.textContent") == "Question 118"


def test_who_reads_further_down_is_told_of_new_traces_and_led_to_them(desk: Desk, store: TraceStore) -> None:
    page = desk.go("/traces")
    page.mouse.wheel(0, 900)
    page.wait_for_function("() => scrollY > 300")
    store.add([booking(f"new{n}", asked=f"What is new {n}", at=NOON + timedelta(days=1, minutes=n)) for n in range(2)])
    pill = page.get_by_role("button", name="2 new ↑")
    pill.wait_for()
    assert page.get_by_text("What is new 1").count() == 0
    pill.click()
    page.get_by_text("What is new 1").wait_for()
    assert page.evaluate("scrollY") == 0
    assert not page.locator("#above").is_visible()


def test_times_are_told_in_utc_or_as_the_clock_of_whoever_looks_and_stay_so(
    browser: "Browser", store: TraceStore, serve: Serve, furnished: Path
) -> None:
    with looked_on(browser, *opened(furnished, store, serve), timezone_id="Asia/Tokyo") as far:
        page = far.go("/traces")
        first, head = page.locator("#rows time").first, page.locator(".heads .started")
        told = first.inner_text()
        assert head.inner_text() == "Started (UTC)"
        page.keyboard.press("t")
        assert first.inner_text() == f"{NOON + timedelta(minutes=119, hours=9):%Y-%m-%d %H:%M}" != told
        assert head.inner_text() == "Started (local)"
        page = far.go("/traces/t119")
        assert page.locator(".facts time").inner_text() == f"{NOON + timedelta(minutes=119, hours=9):%Y-%m-%d %H:%M}"
        assert page.get_by_text("Started (local)").is_visible()
        page.keyboard.press("t")
        far.go("/traces")
        assert page.locator("#rows time").first.inner_text() == told


def test_commands_and_ids_are_taken_along_by_a_click(
    browser: "Browser", store: TraceStore, serve: Serve, furnished: Path
) -> None:
    allowed = ["clipboard-read", "clipboard-write"]
    with looked_on(browser, *opened(furnished, store, serve), permissions=allowed) as mine:
        page = mine.go("/traces/t119")
        page.get_by_role("button", name="Copy t119", exact=True).click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == "t119"
        page = mine.go("/runs")
        said = page.locator(".note code, .empty code").filter(has_text="journeyman").first
        said.locator("xpath=following-sibling::button").click()
        page.get_by_role("button", name="Copied").wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == said.inner_text()


def test_the_icon_of_the_tab_says_that_an_alert_fires(desk: Desk) -> None:
    icon = desk.go("/").locator("#icon").get_attribute("href")
    fires = desk.page.locator("#rail a[href='/alerts'] .count").count()
    assert fires, "the furnished project has an alert that fires"
    assert "mark-dot" in (icon or "")


def test_a_server_that_is_gone_is_said_with_the_time_of_what_is_seen(desk: Desk) -> None:
    page = desk.go("/traces")
    page.context.set_offline(True)
    page.get_by_text(re.compile(r"^not connected; as of \d\d:\d\d:\d\d$")).wait_for()
    page.context.set_offline(False)
    page.locator("#away").wait_for(state="hidden")
    desk.wrong[:] = [said for said in desk.wrong if not said.startswith("htmx:") and "ERR_INTERNET_DISCONNECTED" not in said]


def test_what_changes_by_itself_is_drawn_anew_and_takes_nothing_away_from_who_writes(desk: Desk, store: TraceStore) -> None:
    page = desk.go("/")
    store.add([booking("new", asked="Just now", at=datetime.now(UTC))])
    page.get_by_role("link", name="Just now").wait_for(timeout=15_000)
    # The number in the rail came along.
    assert page.locator("#rail a[href='/traces'] .count").inner_text() == "121"
    page = desk.go("/releases")
    page.locator("a[href^='/releases/2026']").first.click()
    page.get_by_label("Reason").fill("it quotes old prices")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.locator("h1").click()
    page.wait_for_timeout(6_500)
    assert asked == []
    page.get_by_label("Reason").fill("")
    page.locator("h1").click()
    with page.expect_request("**/releases/2026*", timeout=15_000):
        pass


def test_a_hidden_page_does_not_ask_for_new_traces(desk: Desk) -> None:
    page = desk.go("/traces")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "have=" in request.url else None)
    page.evaluate("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.wait_for_timeout(2500)
    assert asked == []
    page.evaluate("delete document.hidden")
    page.wait_for_timeout(2500)
    assert asked


def test_what_means_harm_does_not_run(desk: Desk, store: TraceStore) -> None:
    trace = hostile(EVIL)
    store.add([trace])
    store.label(trace.id, True, who=EVIL, at=NOON)
    page = desk.go("/traces?agent=" + "%22%3E%3Cscript%3Ealert(9)%3C/script%3E")
    page = desk.go("/traces?until=2026-03-04T12:00:30")
    page.locator(".row a.open", has_text="<script>").click()
    page.wait_for_selector(".talk")
    page.keyboard.press("e")
    assert "<script>alert(1)</script>" in page.locator(".talk").inner_text()
    assert page.locator(".talk img, .talk script, .talk a[href^=javascript]").count() == 0
    page.get_by_role("button", name="bad").click()
    desk.expect_labels(1, "no")
    desk.go("/sessions")
    desk.go("/performance")


def test_light_and_dark_can_be_chosen_and_stay(desk: Desk) -> None:
    page = desk.go("/traces")
    before = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Light or dark").click()
    after = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert before != after
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after


def test_no_page_is_wider_than_the_screen(everywhere: Desk) -> None:
    # What is narrow when it is opened has less unfolded.
    for widths, path in itertools.product(((390, 768), (1280,)), everywhere.pages):
        everywhere.page.set_viewport_size({"width": widths[0], "height": 844})
        page = everywhere.go(path)
        for width in widths:
            page.set_viewport_size({"width": width, "height": 844})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_everything_that_can_be_used_has_a_name(everywhere: Desk) -> None:
    for path in everywhere.pages:
        page = everywhere.go(path)
        nameless = page.evaluate(
            """[...document.querySelectorAll("a, button, select, summary, input:not([type=hidden])")].filter((each) =>
            !(each.ariaLabel || each.textContent.trim() || [...(each.labels ?? [])].some((label) => label.textContent.trim()))
            ).map((each) => each.outerHTML)"""
        )
        assert nameless == [], path
        assert page.locator("h1").count() == 1, path
        twice = page.evaluate(
            "[...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, n, all) => all.indexOf(id) !== n)"
        )
        assert twice == [], path


@pytest.mark.parametrize("width", [1400, 390])
def test_axe_finds_nothing_against_the_guidelines(browser: "Browser", filled: tuple[str, list[str]], width: int) -> None:
    axe = Path(str(pytest.importorskip("axe_playwright_python").__file__)).with_name("axe.min.js").read_text()
    url, paths = filled
    # In the dark other colours are shown, and all else is as it was.
    rules = {"light": {"type": "tag", "values": GUIDELINES}, "dark": {"type": "rule", "values": OF_COLOURS}}
    # Our pages let nobody in: axe needs a way past that, and nothing else does.
    with browser.new_context(viewport={"width": width, "height": 900}, bypass_csp=True) as context:
        page = context.new_page()
        for path in paths:
            page.emulate_media(color_scheme="light")
            page.goto(url + path)
            # What is folded is read, too.
            page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
            page.evaluate(axe)
            for theme in THEMES:
                page.emulate_media(color_scheme=theme)
                kept, broken = page.evaluate(AXE, rules[theme])
                assert kept, path
                assert broken == [], (path, theme)


def test_a_step_is_opened_in_the_playground_by_its_key(desk: Desk) -> None:
    page = desk.go("/traces/t001")
    page.keyboard.press("p")
    page.wait_for_url("**/playground?trace=t001&step=4")
    assert page.get_by_role("heading", name="Step 4, asked again").is_visible()


def test_a_page_is_reached_by_the_letters_of_its_name(desk: Desk) -> None:
    page = desk.go("/")
    page.keyboard.press("Control+k")
    page.keyboard.type("evalu")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evaluations")
    page.get_by_role("button", name="Go to…").click()
    page.keyboard.type("question 007")
    page.get_by_role("link", name="Search for").click()
    page.wait_for_url("**/traces?q=question%20007")
    desk.expect_count("#rows li.row", 1)


def test_each_of_the_dashboards_is_found_by_its_name(desk: Desk) -> None:
    page = desk.go("/")
    for name, path, heading in (
        ("training progress", "/runs", "Runs"),
        ("model performance", "/performance", "Performance"),
        ("system health", "/system", "System health"),
        ("a/b test results", "/releases", "Releases"),
        ("resource utilization", "/system#resources", "System health"),
    ):
        page.keyboard.press("Control+k")
        page.keyboard.type(name)
        page.keyboard.press("Enter")
        page.wait_for_url(f"**{path}")
        assert page.locator("h1").inner_text() == heading


def test_a_bar_says_what_it_is_of_and_leads_there(desk: Desk) -> None:
    page = desk.go("/performance")
    bar = page.locator(".chart svg.wide").first.locator(".hits a").first
    said = bar.locator("title").text_content() or ""
    assert "with errors" not in said
    many = int(said.rpartition(" ")[2])
    bar.click()
    page.wait_for_url("**/traces?since=*")
    assert page.locator("[data-count]").get_attribute("data-count") == str(many)


def test_a_telephone_draws_the_same_as_a_desk(desk: Desk) -> None:
    page = desk.go("/performance")
    shapes = page.locator(".shapes").first
    assert shapes.is_visible()
    page.set_viewport_size({"width": 390, "height": 844})
    assert not shapes.is_visible()
    drawn = page.locator(".chart svg.narrow").first.bounding_box()
    inside = page.locator(".chart svg.narrow use").first.bounding_box()
    assert drawn is not None
    assert inside is not None
    assert inside["width"] > 0.7 * drawn["width"]
    assert drawn["x"] < inside["x"]
    assert inside["x"] + inside["width"] <= drawn["x"] + drawn["width"]


_TICKING = re.compile(r"\d[\d:,. ]*(?:seconds? ago|ms|s|min|UTC)?")


def test_every_page_says_the_same_without_a_script(browser: "Browser", everywhere: Desk) -> None:
    with browser.new_context(java_script_enabled=False, viewport={"width": 1280, "height": 860}) as context:
        plain = context.new_page()
        for path in everywhere.pages:
            plain.goto(everywhere.url + path)
            said = {_TICKING.sub("0", line).strip() for line in everywhere.go(path).locator("main").inner_text().splitlines()}
            known = {_TICKING.sub("0", line).strip() for line in plain.locator("main").inner_text().splitlines()}
            assert plain.locator("h1").is_visible(), path
            # Which columns are shown is chosen by a script alone.
            assert said - known - {"Columns"} == set(), path


def test_a_table_is_sorted_by_what_its_cells_say(desk: Desk, store: TraceStore) -> None:
    store.add([booking("slow", agent="night", cost=None)])
    page = desk.go("/performance")
    agents = page.locator("section", has=page.get_by_role("heading", name="By agent", exact=True))
    by_traces = agents.get_by_role("button", name="Traces")
    names = agents.locator("tbody th")
    assert names.all_inner_texts() == ["desk", "night"]
    by_traces.click()
    assert names.all_inner_texts() == ["desk", "night"]
    by_traces.click()
    assert names.all_inner_texts() == ["night", "desk"]
    assert agents.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    agents.get_by_role("button", name="Cost").click()
    # Nobody knows what its calls cost: that is not nothing, and is last whichever way.
    assert names.all_inner_texts() == ["desk", "night"]
    agents.get_by_role("button", name="Cost").click()
    assert names.all_inner_texts() == ["desk", "night"]


def test_a_rollout_is_taken_back_on_its_page(desk: Desk, tmp_path: Path) -> None:
    page = desk.go("/releases")
    page.locator("a[href^='/releases/2026']").first.click()
    page.get_by_label("Reason").fill("it quotes old prices")
    page.get_by_label("Release token").fill("a-token-for-releases")
    page.get_by_role("button", name="Roll back").click()
    page.get_by_text("rolled back").first.wait_for()
    assert page.get_by_role("button", name="Promote").count() == 0
    page.goto(desk.url + "/audit")
    assert "it quotes old prices" in page.locator("main").inner_text()


def test_without_a_script_a_trace_is_read_and_labelled(browser: "Browser", store: TraceStore, serve: Serve) -> None:
    store.add([booking(asked="Read me")])
    url = serve(store, ())
    with browser.new_context(java_script_enabled=False) as context:
        page = context.new_page()
        page.goto(url + "/traces?agent=desk")
        page.get_by_role("link", name="Read me").click()
        page.locator("details.call summary").click()
        assert page.locator("details.call pre").first.is_visible()
        page.get_by_role("button", name="bad").click()
        page.wait_for_load_state()
        assert page.get_by_role("button", name="bad").get_attribute("aria-pressed") == "true"
        assert good(store, "t1") is False
        page.get_by_role("button", name="bad").click()
        page.wait_for_load_state()
        assert good(store, "t1") is None


def test_signing_in_shows_what_was_asked_for(browser: "Browser", store: TraceStore, serve: Serve) -> None:
    store.add([booking(asked="Read me")])
    url = serve(store, ("a-token-of-some-length",))
    with browser.new_context() as context:
        page = context.new_page()
        page.goto(url + "/traces/t1")
        page.get_by_label("Token").fill("a-token-of-some-length")
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url("**/traces/t1")
        page.get_by_role("button", name="good").click()
        page.get_by_text("Labelled good").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.wait_for_url("**/login")


def test_the_plan_of_a_trace_is_a_picture_that_leads_to_its_steps(desk: Desk, store: TraceStore) -> None:
    store.add([planned()])
    page = desk.go("/traces/planned")
    picture = page.get_by_role("region", name="The plan as a graph")
    assert picture.is_visible()
    boxes = [picture.locator(".box").nth(at).bounding_box() for at in range(2)]
    assert boxes[0] is not None
    assert boxes[1] is not None
    assert boxes[0]["x"] + boxes[0]["width"] < boxes[1]["x"]
    picture.get_by_role("link", name="sum: Sum it up").click()
    page.wait_for_url("**/traces/planned#s2")
