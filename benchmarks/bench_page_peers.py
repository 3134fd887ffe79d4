"""How soon the list of traces is seen, beside MLflow and Arize Phoenix: the same spans in each, the same browser, in one run.

    JOURNEYMAN_MLFLOW_PYTHON=… JOURNEYMAN_PHOENIX_PYTHON=… python -m benchmarks.bench_page_peers
    python -m benchmarks.bench_page_peers --spans 300 --visits 9 --json

Peers run as in `bench_otlp`, from virtual environments of their own. A visit is one of a browser that knows nothing yet:
seconds from the navigation until the first row of the list is in sight, and what was loaded until the network was at rest:
kilobytes as they came over the wire, and requests. Clicks are those from the first page (`/`) to the newest trace. Visits are
made in turns, so that what else goes on at the machine slows all of them, and only when the servers have done with what was
sent to them. What is said is the median; a visit that shows no row in time counts as so long and no longer, and where none did
nothing is known of that server. Needs playwright and a Chromium.

Budget: the first row within 0.5 s, and five times as soon as with each peer. It is for a machine that does nothing else: how
much of it was busy before each round of visits is said, too.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.bench_otlp import SERVERS, bodies, post, running, stored

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BUDGET_SECONDS, BUDGET_TIMES = 0.5, 5.0
PATIENCE = 120.0
"""Seconds for which a page, or a store, is waited for."""
_IDLE, _SETTLES = 0.25, 60.0
"""The share of the machine that may be busy when a round begins, and seconds for which that is waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pages:
    """Where a server shows its traces."""

    list: str
    row: str
    """A selector of the rows of the list."""
    clicks: Sequence[str]
    """What is clicked from `/` on, one after the other, until the newest trace is open."""
    opened: str
    """A selector of what shows that it is."""


_MLFLOW_ROW = '[role="row"]:has(input[aria-label^="Select trace"]) [role="cell"]:nth-child(3)'
PAGES = {
    "journeyman": Pages(
        list="/traces", row="#rows a.open", clicks=['a[href^="/traces/"]'], opened="main details.call, main .step"
    ),
    "mlflow": Pages(
        list="/#/experiments/0/traces",
        row=_MLFLOW_ROW,
        # Whoever comes for the first time is told of a button before anything else can be clicked.
        clicks=['a[href="#/experiments/0"]', 'a[href="#/experiments/0/traces"]', 'button:has-text("Got it")', _MLFLOW_ROW],
        opened='[role="dialog"]',
    ),
    "phoenix": Pages(
        list="/projects/UHJvamVjdDox/traces",
        row="tbody tr td",
        clicks=['a[href*="/projects/"]', 'tbody tr a[href*="/traces/"]'],
        opened='[role="dialog"], [role="tree"]',
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    seconds: float
    kilobytes: float
    requests: int
    shown: bool = True
    """Whether a row was seen; else it took at least so long."""


def visited(browser: "Browser", address: str, row: str) -> Visit:
    """One of a browser that knows nothing yet."""
    from playwright.sync_api import TimeoutError as TooLate

    context = browser.new_context(viewport={"width": 1280, "height": 860})
    try:
        page = context.new_page()
        wire = context.new_cdp_session(page)
        sizes: list[float] = []
        sent: list[str] = []
        wire.on("Network.loadingFinished", lambda told: sizes.append(float(told["encodedDataLength"])))
        wire.on("Network.requestWillBeSent", lambda told: sent.append(told["request"]["url"]))
        wire.send("Network.enable")
        began, shown = time.perf_counter(), True
        try:
            page.goto(address, timeout=PATIENCE * 1000, wait_until="commit")
            page.locator(row).first.wait_for(state="visible", timeout=PATIENCE * 1000)
        except TooLate:
            shown = False
        seconds = time.perf_counter() - began
        _rests(page)
        fetched = [url for url in sent if not url.startswith("data:")]
        return Visit(seconds=seconds, kilobytes=sum(sizes) / 1000, requests=len(fetched), shown=shown)
    finally:
        context.close()


def busy(seconds: float = 2.0) -> float:
    """The share of the machine's processors that was busy for so long."""

    def spent() -> tuple[int, int]:
        fields = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return sum(fields), fields[3] + fields[4]

    before = spent()
    time.sleep(seconds)
    after = spent()
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


def settled() -> float:
    """How busy the machine is once it has come to rest, or has not for a minute."""
    until = time.monotonic() + _SETTLES
    while (found := busy()) > _IDLE and time.monotonic() < until:
        pass
    return found


def _rests(page: "Page") -> None:
    from playwright.sync_api import TimeoutError as TooLate

    # A page that asks again and again for what is new never rests.
    with suppress(TooLate):
        page.wait_for_load_state("networkidle", timeout=5_000)


def walked(browser: "Browser", url: str, pages: Pages) -> int | None:
    """Clicks from the first page to the newest trace; `None` where the way was not found."""
    from playwright.sync_api import Error

    context = browser.new_context(viewport={"width": 1280, "height": 860})
    try:
        page = context.new_page()
        page.goto(url, timeout=PATIENCE * 1000)
        for selector in pages.clicks:
            page.locator(selector).locator("visible=true").first.click(timeout=PATIENCE / 4 * 1000)
        page.locator(pages.opened).first.wait_for(timeout=PATIENCE / 4 * 1000)
    except Error as error:
        print(f"  the newest trace was not reached from {url}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    finally:
        context.close()
    return len(pages.clicks)


def filled(stack: ExitStack, count: int, running_at: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The servers that run or could be started, with the spans in them: name and address."""
    for server in SERVERS:
        if url := running_at.get(server.name):
            for body in bodies(count, seed=2):
                post(url, body, server.headers)
            yield server.name, url
            continue
        if not server.python:
            print(f"{server.name}: left out, JOURNEYMAN_{server.name.upper()}_PYTHON is not set", file=sys.stderr)
            continue
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-pages-")))
        url, _ = stack.enter_context(running(server, folder))
        for body in bodies(count, seed=2):
            post(url, body, server.headers)
        until = time.monotonic() + PATIENCE
        while (kept := stored(folder / server.database, server.table)) < count and time.monotonic() < until:
            time.sleep(0.2)
        assert kept >= count, f"{server.name} has {kept} of {count} spans"
        yield server.name, url


def measured(count: int, visits: int, running_at: Mapping[str, str]) -> tuple[dict[str, dict[str, Any]], float]:
    """What was found of each server, and how busy the machine was in the busiest round."""
    from playwright.sync_api import sync_playwright

    with ExitStack() as stack, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        urls = dict(filled(stack, count, running_at))
        found: dict[str, list[Visit]] = {name: [] for name in urls}
        load = 0.0
        for turn in range(visits + 1):
            at_rest = settled()
            print(f"  {at_rest:.0%} of the machine busy", file=sys.stderr, flush=True)
            for name, url in urls.items():
                visit = visited(browser, url + PAGES[name].list, PAGES[name].row)
                print(f"  {name}: {visit.seconds:.2f} s{'' if visit.shown else ', and no row'}", file=sys.stderr, flush=True)
                # The first one has the server load what it needs.
                if turn:
                    found[name].append(visit)
                    load = max(load, at_rest)
        clicks = {name: walked(browser, url, PAGES[name]) for name, url in urls.items()}
        browser.close()
    return {name: {**told(some), "clicks": clicks[name]} for name, some in found.items()}, load


def told(visits: Sequence[Visit]) -> dict[str, Any]:
    """Of the visits to one server, each number by itself the one in the middle."""
    numbers = ("seconds", "kilobytes", "requests")
    return {
        **{what: statistics.median(getattr(each, what) for each in visits) for what in numbers},
        "slowest": max(each.seconds for each in visits),
        "without_row": sum(not each.shown for each in visits),
        "visits": len(visits),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=2_000)
    parser.add_argument("--visits", type=int, default=5)
    parser.add_argument(
        "--at", action="append", default=[], metavar="NAME=URL", help="a server that runs already; may be given again"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    running_at = dict(each.partition("=")[::2] for each in options.at)
    found, load = measured(options.spans, options.visits, running_at)
    ours = found["journeyman"]
    times = {name: each["seconds"] / ours["seconds"] for name, each in found.items() if name != "journeyman"}
    valid = (
        found.keys() == PAGES.keys()
        and not ours["without_row"]
        and all(each["without_row"] < each["visits"] for each in found.values())
    )
    kept = valid and ours["seconds"] <= BUDGET_SECONDS and all(each >= BUDGET_TIMES for each in times.values())
    if options.json:
        whole = {"spans": options.spans, "visits": options.visits, "busy": round(load, 3), "found": found, "valid": valid}
        print(json.dumps({**whole, "within_budget": kept}))
        return 0 if kept else 1
    for name, each in found.items():
        beside = f"slowest {each['slowest']:.2f}; {each['seconds'] / ours['seconds']:4.1f} times ours"
        loaded = f"{each['kilobytes']:7,.0f} kB  {each['requests']:4.0f} requests  {each['clicks'] or 'unknown'} clicks"
        without = f"  {each['without_row']} of {each['visits']} visits without a row" if each["without_row"] else ""
        print(f"{name:11} first row {each['seconds']:6.2f} s ({beside})  {loaded}{without}")
    said = "kept" if kept else "missed" if valid else "not known: a server was left out, or showed no row"
    print(f"budget {BUDGET_SECONDS:g} s, and {BUDGET_TIMES:g} times as soon as each peer: {said}")
    print(f"the machine was at most {load:.0%} busy before a round of visits")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
