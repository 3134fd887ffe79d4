"""What is shipped for the browser: colours that can be read, and nothing that a strict policy would refuse."""

import re
from pathlib import Path

import pytest

import journeyman.serving.dashboard

HERE = Path(journeyman.serving.dashboard.__file__).parent
CSS = (HERE / "static/dashboard.css").read_text()
TEMPLATES = sorted((HERE / "templates").iterdir())
NAMED = {
    name: (light, dark) for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", CSS)
}
READABLE = 4.5
"""The least contrast of ordinary text in WCAG 2.2, level AA."""
VISIBLE = 3.0
"""The least contrast of what tells a control from its ground."""


def luminance(colour: str) -> float:
    """WCAG 2.2's relative luminance."""
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("ink", "ground"),
    [
        *((ink, ground) for ink in ("ink", "faint", "accent", "good", "bad") for ground in ("ground", "sheet", "soft")),
        *((ink, ground) for ink in ("warn", "info", "thought") for ground in ("ground", "sheet", "soft")),
        ("warn", "warn-soft"), ("info", "info-soft"),
        ("good", "good-soft"), ("bad", "bad-soft"), ("accent", "accent-soft"), ("ink", "accent-soft"), ("faint", "accent-soft"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_stands_out_from_its_ground(ink: str, ground: str, theme: int) -> None:
    assert contrast(NAMED[ink][theme], NAMED[ground][theme]) >= READABLE


@pytest.mark.parametrize("ground", ["ground", "sheet", "soft"])
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_control_has_an_edge_that_is_seen(ground: str, theme: int) -> None:
    assert contrast(NAMED["edge"][theme], NAMED[ground][theme]) >= VISIBLE


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_holds_no_script_no_style_and_trusts_no_value(template: Path) -> None:
    text = template.read_text()
    assert not re.search(r"<script(?![^>]*\ssrc=)|<style|\sstyle=|\son\w+=|hx-on|javascript:", text)
    assert not re.search(r"\|\s*safe\b|autoescape false|Markup", text)
    assert not re.search(r"https?://", text)


def test_the_style_names_no_place_elsewhere() -> None:
    assert not re.search(r"url\(|@import", CSS)


def test_htmx_names_its_licence_and_version() -> None:
    version = re.search(r'version:"([\d.]+)"', (HERE / "static/htmx.min.js").read_text())
    assert version
    assert f"htmx {version[1]} " in (HERE / "static/htmx.LICENSE.txt").read_text()
    assert "Zero-Clause BSD" in (HERE / "static/htmx.LICENSE.txt").read_text()
