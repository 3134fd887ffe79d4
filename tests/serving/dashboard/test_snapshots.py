"""How the pages look: a picture each is kept, in light on a desk and in dark on a telephone, and a change of it is seen.

Kept pictures are renewed by `--golden-update`. Another browser draws letters in other places, so they hold for the one that
they were made with alone.
"""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from journeyman.serving.dashboard.experiments import ProjectStores
from journeyman.stores import open_store
from journeyman.stores.traces import open_traces
from tests.support.pages import servers
from tests.support.projects import NEW, RUNS, learn, project
from tests.support.watched import NOON, booking

if TYPE_CHECKING:
    from PIL.Image import Image
    from playwright.sync_api import Browser

CHROMIUM = shutil.which("chromium")
KEPT = Path(__file__).parent / "kept"
MADE_WITH = KEPT / "browser.txt"
PAGES = {
    "traces": "/traces", "trace": "/traces/t003", "sessions": "/sessions", "performance": "/performance", "learning": "/learn",
    "runs": "/runs", "run": f"/runs/{RUNS[1]}", "evaluation": f"/evaluations/{RUNS[1]}", "playbook": f"/playbooks/{NEW.id}",
    "releases": "/releases", "rollout": "/releases/context:desk%2Foslo", "alerts": "/alerts",
    "playground": "/playground?trace=t003&step=4",
}  # fmt: skip
SCREENS: dict[str, tuple[Literal["light", "dark"], int]] = {"light": ("light", 1280), "phone": ("dark", 390)}
MOST = 0.001
"""Of all pixels, that may be another colour."""
_COLOUR = 48
"""So far apart two shades of one channel are told from each other: what is kept has few colours."""
# Ids with chance in them, what is counted at a time, and letters of whatever machine this is.
STYLE = """
* { font-family: "DejaVu Sans" !important; caret-color: transparent !important }
.id:not(th) { display: none }
.note { visibility: hidden }
"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("snapshots") / "journeyman.db"
    project(path)
    with open_store(path) as kept:
        learn(kept)
    with open_traces(path) as store, servers() as start:
        store.add(
            booking(f"t{n:03}", asked=f"A table for {n} in Oslo", at=NOON + timedelta(hours=7 * n), session=f"visit {n // 2}")
            for n in range(12)
        )
        store.label("t003", True, who="ada", at=NOON)
        yield start(store, (), ProjectStores(path))


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator["Browser"]:
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    pytest.importorskip("PIL", reason="needs pillow: pip install pillow")
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--font-render-hinting=none"])
        made_with = MADE_WITH.read_text().strip() if MADE_WITH.exists() else ""
        if request.config.getoption("--golden-update"):
            KEPT.mkdir(exist_ok=True)
            MADE_WITH.write_text(found.version + "\n")
        elif made_with != found.version:
            pytest.skip(f"the pictures were made with Chromium {made_with}, and this is {found.version}")
        yield found
        found.close()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_it_did(
    browser: "Browser", url: str, name: str, screen: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    from PIL import Image, ImageChops

    theme, width = SCREENS[screen]
    size = {"width": width, "height": 800}
    with browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce", bypass_csp=True) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(url + PAGES[name])
        page.add_style_tag(content=STYLE)
        now = Image.open(BytesIO(page.screenshot())).convert("RGB")
    path = KEPT / f"{name}-{screen}.png"
    if request.config.getoption("--golden-update"):
        now.quantize(64).save(path, optimize=True)
        return
    before = Image.open(path).convert("RGB")
    assert now.size == before.size
    apart = ImageChops.difference(now, before).point(lambda value: 255 if value > _COLOUR else 0).convert("L")
    share = 1 - apart.histogram()[0] / (now.width * now.height)
    if share > MOST:
        _leave(tmp_path, before=before, now=now, apart=apart)
    assert share <= MOST, f"{share:.2%} of {path.name} looks otherwise; see {tmp_path}, and keep it with --golden-update"


def _leave(folder: Path, **pictures: "Image") -> None:
    for name, picture in pictures.items():
        picture.save(folder / f"{name}.png")
