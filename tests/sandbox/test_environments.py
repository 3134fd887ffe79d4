"""What a repository needs is read from its files, and is what its code finds behind the walls."""

from pathlib import Path

import pytest

from journeyman import sandbox
from journeyman.core.errors import InputError
from journeyman.sandbox import environments
from journeyman.sandbox.base import Interpreter, Program
from journeyman.sandbox.environments import PackageNeeds, needs_of
from tests.support.repositories import FILES
from tests.support.wheels import without_network


def needs(**files: str) -> PackageNeeds:
    return needs_of({name.replace("__", "/"): text.encode() for name, text in files.items()}, "folder")


def test_needs_are_read_from_pyproject_with_extras_and_groups() -> None:
    text = """
[project]
name = "parcels"
version = "1.2"
dependencies = ["attrs>=20", "parcels-core"]
license = {text = "MIT License\\nand more"}
[project.optional-dependencies]
test = ["hypothesis", "sphinx"]
docs = ["furo"]
[dependency-groups]
dev = ["trio", {include-group = "lint"}, {include-group = "dev"}]
lint = ["ruff", "codespell"]
"""
    found = needs_of(
        {"pyproject.toml": text.encode(), "requirements-test.txt": b"# what tests need\nanyio  # for servers\n-r other.txt\n"},
        "x",
    )
    assert found == PackageNeeds(
        name="parcels",
        version="1.2",
        requirements=("attrs>=20", "parcels-core", "hypothesis", "trio", "codespell", "anyio"),
        license="MIT License",
    )


def test_needs_are_read_from_setup_cfg_and_from_a_source_packages_metadata() -> None:
    setup = """
[metadata]
name = parcels
version = attr: parcels.__version__
[options]
install_requires =
  attrs
  six>1
[options.extras_require]
tests = freezegun
"""
    assert needs_of({"setup.cfg": setup.encode()}, "x").requirements == ("attrs", "six>1", "freezegun")
    info = """Name: parcels
Version: 3
Requires-Dist: attrs>=1; python_version < '3.12'
Requires-Dist: pytest; extra == 'test'
Requires-Dist: furo; extra == 'docs'

Long text: and more
"""
    found = needs_of({"PKG-INFO": info.encode()}, "x")
    assert (found.name, found.version) == ("parcels", "3")
    assert found.requirements == ("attrs>=1 ; python_version < '3.12'", "pytest")


def test_a_repository_that_says_nothing_is_called_as_its_folder_and_a_bad_file_is_named() -> None:
    assert needs() == PackageNeeds(name="folder", version="0", requirements=())
    assert needs_of({"setup.cfg": b"no = section\n"}, "folder").name == "folder"
    with pytest.raises(InputError, match=r"pyproject\.toml is no TOML"):
        needs_of({"pyproject.toml": b"[project\n"}, "folder")


@pytest.mark.service
async def test_code_finds_its_own_packages_behind_the_walls_and_none_of_journeymans(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_network(monkeypatch, tmp_path / "wheels")
    wanted = needs_of({path: text.encode() for path, text in FILES.items()}, "x")
    made = environments.build(tmp_path / "environments", wanted)
    assert (
        environments.build(tmp_path / "environments", wanted)
        == made
        == environments.opened(tmp_path / "environments", made.digest)
    )
    assert any(each.startswith("pytest==") for each in made.distributions)
    code = (
        "import importlib.util, importlib.metadata, sys\n"
        "names = ('pytest', 'coverage', 'journeyman', 'click', 'parcels')\n"
        "found = [name for name in names if importlib.util.find_spec(name)]\n"
        "print(found, importlib.metadata.version('parcels'))\n"
        "try:\n    open(sys.prefix + '/x', 'w')\nexcept OSError as error:\n    print('read-only')\n"
    )
    async with sandbox.started("auto", interpreter=made.interpreter) as box:
        outcome = await box.run(Program(code=code))
    assert outcome.stdout == "['pytest', 'coverage'] 1.2.0\nread-only\n", outcome.stderr


@pytest.mark.service
def test_what_cannot_be_installed_is_one_sentence_and_leaves_nothing_that_is_taken_for_an_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_network(monkeypatch, tmp_path / "wheels")
    folder = tmp_path / "environments"
    lacking = PackageNeeds(name="parcels", version="1", requirements=("no-such-package-anywhere",))
    with pytest.raises(InputError, match=r"what parcels needs could not be installed: .*no-such-package-anywhere"):
        environments.build(folder, lacking)
    assert not list(folder.glob("*.json"))
    with pytest.raises(InputError, match="no environment"):
        environments.opened(folder, "0" * 16)
    with pytest.raises(InputError, match=r"no python3\.99 on the path"):
        environments.build(folder, lacking, python="3.99")


def test_a_sandbox_elsewhere_has_its_own_python() -> None:
    with pytest.raises(InputError, match="has its own Python"):
        sandbox.load("http://127.0.0.1:9", interpreter=Interpreter())
