"""Names become classes, and what is none is answered by one sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

import journeyman
from journeyman.core import registry
from journeyman.core.errors import InputError, MissingExtra, ModelError
from journeyman.experiments.playbook.config import TrainingConfig
from journeyman.experiments.wiring import load_dataset
from journeyman.models import embedders, load, parse

OWN = """
class Echo:
    name, dialect, deterministic = "echo", "chat", True
    def __init__(self, text="nothing"):
        self.text = text
    async def complete(self, request): ...
    async def close(self): ...

class Flat:
    name = "flat"
    def embed(self, texts): ...

def shop(input="", held_out="", *, domain="", least=30):
    return "no data set"
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    name = f"own_{abs(hash(request.node.name))}"
    Path(f"{name}.py").write_text(OWN)
    return name


@pytest.mark.parametrize(
    "kind",
    [
        # One of them runs models here, so it loads torch.
        pytest.param(kind, marks=[pytest.mark.training] if kind == "models" else [])
        for kind in registry.KINDS
        if kind != "workers"
    ],
)
def test_every_name_of_the_table_is_there(kind: str) -> None:
    for name in registry.KINDS[kind]:
        try:
            assert registry.load(kind, name) is not None
        except MissingExtra as error:
            assert "pip install" in str(error)  # noqa: PT017 - either is right, by what is installed


def test_the_registry_is_a_public_name() -> None:
    assert journeyman.registry is registry
    assert "tool_success" in journeyman.registry.names("rewards")


def test_looking_names_up_imports_nothing_behind_them() -> None:
    code = (
        "import sys; from journeyman import registry; [registry.names(kind) for kind in registry.KINDS];"
        "print([name for name in sys.modules if name.startswith('journeyman.') and 'core' not in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_a_class_in_a_file_beside_the_user_is_loaded_with_the_text_behind_it(mine: str) -> None:
    assert registry.load("models", f"{mine}:Echo").__name__ == "Echo"
    assert parse(f"{mine}:Echo:hello").rest == "hello"
    assert vars(load(f"{mine}:Echo:hello")) == {"text": "hello"}
    assert vars(load(f"{mine}:Echo")) == {"text": "nothing"}
    assert embedders.load(f"{mine}:Flat").name == "flat"


def test_a_file_beside_the_user_hides_no_library(mine: str) -> None:
    Path("textwrap.py").write_text("def shorten(): raise SystemExit")
    registry.load("rewards", f"{mine}:Flat")
    assert registry.load("rewards", "textwrap:shorten").__module__ == "textwrap"
    assert sys.modules["textwrap"].__file__ != str(Path("textwrap.py").resolve())


def test_what_cannot_be_loaded_is_said_in_one_sentence(mine: str) -> None:
    Path(f"{mine}_needs.py").write_text("import no_such_library_at_all\n")
    Path(f"{mine}_fails.py").write_text("raise ValueError('not today')\n")
    with pytest.raises(InputError, match=r"no reward 'tool_sucess'; .*, and your own as module:Class; tool_success may"):
        registry.load("rewards", "tool_sucess")
    with pytest.raises(InputError, match="'nowhere_at_all:Mine' cannot be loaded: there is no module 'nowhere_at_all'"):
        registry.load("rewards", "nowhere_at_all:Mine")
    with pytest.raises(InputError, match=f"the module '{mine}' has no 'Other'"):
        registry.load("rewards", f"{mine}:Other")
    with pytest.raises(MissingExtra, match="no_such_library_at_all is missing, which it imports"):
        registry.load("rewards", f"{mine}_needs:Mine")
    with pytest.raises(InputError, match="ended in ValueError: not today"):
        registry.load("rewards", f"{mine}_fails:Mine")
    with pytest.raises(InputError, match="there is no kind 'reward'; there are models"):
        registry.names("reward")
    with pytest.raises(ModelError, match=f"no model client '{mine}'.*has no 'Other'"):
        parse(f"{mine}:Other")


def test_a_function_that_gives_no_data_set_is_told_so(mine: str) -> None:
    with pytest.raises(InputError, match="is none: it gave a str, and no Dataset"):
        load_dataset(TrainingConfig(dataset_name=f"{mine}:shop"))


def test_an_installed_package_adds_names(tmp_path: Path) -> None:
    (tmp_path / "politeness.py").write_text("class Polite: pass\n")
    info = tmp_path / "politeness-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: politeness\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[journeyman.rewards]\npolite = politeness:Polite\ntool_success = politeness:Polite\n"
    )
    code = (
        f"import sys; sys.path.append({str(tmp_path)!r}); from journeyman import registry;"
        "print(registry.names('rewards')[-1], registry.load('rewards', 'polite').__name__,"
        "registry.load('rewards', 'tool_success').__name__)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["polite", "Polite", "ToolSuccessReward"]
