"""The tutorials are walked as they are written: the commands of a page are one script, and what it says is what the page says.

A server on loopback stands for OpenAI's. It does not know to which team a mail goes until its prompt says it, and of two models
the small one mistakes passwords. How well it learns says nothing of any other model.
"""

import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import warm
from tests.support.llm_server import KEY, Answer, completion, serving
from tests.support.pupil import REFLECTOR
from tests.support.wheels import without_network

DOCS = Path(__file__).parents[2] / "docs"
RULE = "Answer with the team alone: FIN for invoices, LOG for parcels, SEC for passwords."
TEAMS = {"invoice": "FIN", "parcel": "LOG", "password": "SEC"}
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
_SHOWS = re.compile(r"^<!-- shows: (.*) -->$", re.MULTILINE)


def house(body: dict[str, Any]) -> Answer:
    """A model that knows the teams where it was told them."""
    texts = [str(message["content"]) for message in body["messages"]]
    if any(REFLECTOR in text for text in texts):
        return completion(json.dumps({"insights": [{"verdict": "helpful", "content": RULE, "about": ""}], "shown": []}))
    told = any(RULE in text or "Teams are FIN, LOG and SEC" in text for text in texts)
    team = next((code for word, code in TEAMS.items() if word in texts[-1].rpartition("\n")[2] or word in texts[-1]), "")
    if body["model"] == "gpt-5-nano" and team == "SEC":
        team = "FIN"
    return completion(team if told and team else "support")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serving() as running:
        running.default = house
        yield running.url


def walk(page: Path, folder: Path, *, port: int, environment: dict[str, str]) -> str:
    """Everything that the page's commands say, run as one script in an empty folder."""
    text = page.read_text(encoding="utf-8")
    script = "".join(_BLOCK.findall(text)).replace("127.0.0.1:4000", f"127.0.0.1:{port}")
    script = script.replace("journeyman serve", f"journeyman serve --port {port}")
    assert script, f"{page} has no commands"
    ends = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    program = folder / "bin" / "journeyman"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {warm.program()} -m journeyman "$@"\n')
    program.chmod(0o755)
    home = folder / "home"
    home.mkdir()
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", ends + script],
        cwd=home,
        env={**os.environ, **environment, "PATH": f"{program.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "Traceback" not in done.stdout, done.stdout[-4000:]
    at = 0
    for wanted in _SHOWS.findall(text):
        found = re.compile(wanted, re.MULTILINE).search(done.stdout, at)
        assert found, f"{page.name} says that {wanted!r} is shown, and in this order: {done.stdout[-6000:]}"
        at = found.start()
    return done.stdout


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


PAGES = [
    pytest.param("start.md", marks=pytest.mark.service),
    pytest.param("tutorials/chatbot.md", marks=pytest.mark.service),
    pytest.param("tutorials/choose-model.md", marks=pytest.mark.service),
    pytest.param("tutorials/production.md", marks=pytest.mark.service),
    pytest.param("tutorials/repository.md", marks=pytest.mark.service),
    pytest.param("tutorials/fine-tune.md", marks=pytest.mark.training),
]


@pytest.mark.parametrize("name", PAGES)
def test_what_a_tutorial_shows_is_what_happens(name: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "fine-tune" in name:
        for library in ("torch", "trl"):
            pytest.importorskip(library, reason="needs the extras: pip install 'journeyman[embedded,weights]'")
    if "repository" in name:
        if shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed: the tests of a repository run within it")
        without_network(monkeypatch, tmp_path / "wheels")
    environment = {"OPENAI_BASE_URL": server, "OPENAI_API_KEY": KEY}
    if "fine-tune" in name:
        environment[warm.CHILDREN] = warm.program()
    walk(DOCS / name, tmp_path, port=_free_port(), environment=environment)


@pytest.mark.unit
def test_every_tutorial_is_walked_and_every_page_says_what_is_not_run() -> None:
    there = {"start.md", *(f"tutorials/{path.name}" for path in DOCS.glob("tutorials/*.md"))}
    assert {str(each.values[0]) for each in PAGES} == there


# The site of which they are a part.

ROOT = DOCS.parent
_FETCHED = re.compile(r"""<(?:script|img|link)\b[^>]*?(?:src|href)="?(https?:[^">]+)""")


@pytest.mark.service
def test_the_site_is_built_strictly_and_no_page_fetches_anything_or_leads_nowhere(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs and mkdocstrings are not installed: they come with the extra dev")
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)
    assert built.returncode == 0, built.stderr[-4000:]
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert len(pages) > 50
    wrong = []
    for path, text in pages.items():
        wrong += [f"{path.name} fetches {url}" for url in _FETCHED.findall(text)]
        # The theme's script would fetch what draws them.
        wrong += [f"{path.name} has a diagram in words; make it a picture"] if re.search(r'class="?mermaid', text) else []
        for target in re.findall(r"""<(?:a|img)\b[^>]*?(?:href|src)="?([^"\s>]+)""", text):
            wrong += _lost(path, target, pages)
    assert wrong == []
    reference = pages[site / "reference" / "python.html"]
    import journeyman

    named = [name for name in journeyman.__all__ if name not in ("registry", *journeyman._OLDER)]
    assert [name for name in named if f'.{name}"' not in reference and f".{name} " not in reference] == []


def _lost(path: Path, target: str, pages: dict[Path, str]) -> list[str]:
    """Where a link of a page leads nowhere."""
    from urllib.parse import unquote

    file, _, anchor = unquote(target).partition("#")
    if re.match(r"[a-z]+:", file) or path.name == "404.html":
        return []
    there = (path.parent / file).resolve() if file else path
    if not there.exists():
        return [f"{path.name}: {target}"]
    if anchor and there in pages and not re.search(rf'id="?{re.escape(anchor)}["\s>]', pages[there]):
        return [f"{path.name}: no {target}"]
    return []
