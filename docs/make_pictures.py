"""Writes the pictures of the docs, of `journeyman demo --live` as it happens: `make pictures`. Needs a Chromium and playwright.

They are taken when the demo has come to its end and serves on: light and dark, on a desk and on a telephone.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from journeyman.io.http_server import listen

HERE = Path(__file__).parent / "pictures"
SECONDS = 900.0
"""For which the demo is waited for: minutes on a quiet machine."""
KEPT = (
    ("overview", "/", "light", 1280), ("overview-dark", "/", "dark", 1280), ("overview-phone", "/", "light", 390),
    ("learning", "/learn", "light", 1280), ("rollout", "{promoted}", "light", 1280), ("rollout-dark", "{back}", "dark", 1280),
    ("rollout-phone", "{back}", "dark", 390), ("alerts", "/alerts", "light", 1280), ("traces", "/traces", "light", 1280),
    ("trace", "{trace}", "light", 1280),
)  # fmt: skip
"""Name, address, theme and width."""


@contextmanager
def demo(folder: Path) -> Iterator[str]:
    """The address of a demo that has come to its end."""
    with listen("127.0.0.1", 0) as bound:
        port = bound.getsockname()[1]
    command = [sys.executable, "-m", "journeyman", "demo", "--live", "--keep", "--port", str(port)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            until = time.monotonic() + SECONDS
            for line in process.stdout:
                sys.stdout.write(line)
                sys.stdout.flush()
                if "nothing is scripted" in line or time.monotonic() > until:
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.communicate(timeout=60)


def read(address: str) -> str:
    with urlopen(address) as answer:  # noqa: S310 - our own server
        return str(answer.read().decode())


def addresses(url: str) -> dict[str, str]:
    """Of what the demo made."""
    page = read(url + "/releases")
    # The newest first: what was taken back, then what was promoted.
    back, promoted = list(dict.fromkeys(re.findall(r'href="(/releases/\d[\w-]+)"', page)))[:2]
    trace = re.findall(r'href="(/traces/[^"?]+)', read(url + "/traces?error=yes"))[0]
    return {"back": back, "promoted": promoted, "trace": trace}


def take(browser: Browser, address: str, theme: str, width: int) -> bytes:
    """A picture of a page, in few colours, so that it weighs little."""
    with browser.new_context(
        viewport={"width": width, "height": 820 if width > 640 else 760},
        color_scheme="dark" if theme == "dark" else "light",
        reduced_motion="reduce",
    ) as context:
        page = context.new_page()
        page.goto(address)
        taken = Image.open(BytesIO(page.screenshot())).convert("P", palette=Image.Palette.ADAPTIVE, colors=128)
    found = BytesIO()
    taken.save(found, "PNG", optimize=True)
    return found.getvalue()


def main(url: str | None = None) -> None:
    """
    Args:
        url: Of a demo that serves already; without it one is run.
    """
    if url is None:
        with tempfile.TemporaryDirectory() as folder, demo(Path(folder)) as served:
            return main(served)
    HERE.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        made = addresses(url)
        sizes = {}
        for name, address, theme, width in KEPT:
            taken = take(browser, url + address.format(**made), theme, width)
            (HERE / f"{name}.png").write_bytes(taken)
            sizes[name] = len(taken)
        browser.close()
    sys.stdout.write(json.dumps({"pictures": len(sizes), "kilobytes": round(sum(sizes.values()) / 1000)}) + "\n")
    return None


if __name__ == "__main__":
    main(*sys.argv[1:2])
