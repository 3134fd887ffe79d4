import contextlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import MissingExtra, ModelError, ModelRefused
from journeyman.core.installation import installing
from journeyman.models import ModelName, load, parse
from journeyman.models.base import ModelRequest, PromptMessage


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("scripted", ModelName("scripted")),
        ("embedded:small", ModelName("embedded", "small")),
        ("openai:gpt-5-mini", ModelName("openai", "gpt-5-mini")),
        ("gpt-4-turbo", ModelName("openai", "gpt-4-turbo")),
        ("ollama:qwen3:4b", ModelName("ollama", "qwen3:4b")),
        ("openai:m@http://localhost:8000/v1", ModelName("openai", "m", "http://localhost:8000/v1")),
        ("openai:@cf/meta/m@https://x.y/v1", ModelName("openai", "@cf/meta/m", "https://x.y/v1")),
        ("m@http://localhost:8000/v1", ModelName("openai", "m", "http://localhost:8000/v1")),
        ("recorded:a/b.jsonl.gz#175b", ModelName("recorded", "a/b.jsonl.gz#175b")),
    ],
)
def test_a_name_is_taken_apart(name: str, parsed: ModelName) -> None:
    assert parse(name) == parsed


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("anthropic:claude", "no model client 'anthropic'; there are embedded, local, ollama, openai, recorded, scripted"),
        ("embeded", "no model client 'embeded'"),
        ("qwen3:4b", "ollama:qwen3:4b"),
        ("openai:", "openai needs a model"),
        ("recorded", "recorded needs a file"),
        ("", "openai needs a model"),
        ("embedded:small@http://localhost/v1", "leave out what follows the @"),
    ],
)
def test_a_name_that_means_nothing_is_explained(name: str, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        parse(name)


def test_a_provider_s_name_is_no_package_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "anthropic.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModelError, match=r"no model client 'anthropic'.* openai:MODEL@URL, with its address") as raised:
        parse("anthropic:opus")
    assert "imported" not in str(raised.value)


@given(st.text(max_size=40))
def test_any_text_is_a_name_or_a_clear_error(name: str) -> None:
    with contextlib.suppress(ModelError):
        assert parse(name).kind in {"embedded", "ollama", "openai", "recorded", "scripted"}


async def test_a_client_is_loaded_by_name_with_its_options() -> None:
    model = load("scripted:42", latency=0.0)
    assert (await model.complete(ModelRequest(messages=(PromptMessage("user", "?"),)))).text == "42"
    assert load("openai:m@http://localhost:1/v1", timeout=3.0).name == "openai:m@http://localhost:1/v1"
    assert load("ollama:qwen3:4b").name == "ollama:qwen3:4b"


def test_a_missing_key_is_said_at_once() -> None:
    with pytest.raises(ModelRefused, match="openai:gpt-4o needs a key: set OPENAI_API_KEY"):
        load("gpt-4o")


def test_nothing_heavy_is_imported_until_somebody_asks() -> None:
    code = "import sys, journeyman.models, journeyman.models.base; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"openai", "pydantic", "torch", "genai_prices", "httpx2"} & set(run.stdout.split())


def test_a_missing_package_is_named_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "journeyman.models.openai", raising=False)
    with pytest.raises(MissingExtra, match=re.escape(f"openai is missing: {installing(None)}")):
        load("openai:m@http://localhost:1/v1")
