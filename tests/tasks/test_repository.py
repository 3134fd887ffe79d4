"""Files of a repository, tasks of it, and faults put into its code."""

import ast
import dataclasses
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import InputError
from journeyman.core.task import Split
from journeyman.tasks import repository
from journeyman.tasks.repository import Category, Checks, RepositoryTask
from journeyman.tasks.repository.mutations import KINDS, functions, mutations
from journeyman.tasks.repository.tree import Tree, in_tests, read_tree, without_tests
from tests.support.repositories import FILES, committed, package


def of(**changed: object) -> RepositoryTask:
    task = RepositoryTask(
        category=Category.BUG_FIX,
        repository="parcels",
        tree="0" * 16,
        environment="1" * 16,
        statement="What used to work does not.",
        base={"parcels/rates.py": FILES["parcels/rates.py"].replace("> 1000", ">= 1000")},
        reference={"parcels/rates.py": FILES["parcels/rates.py"]},
        checks=Checks(
            fail_to_pass=("tests/test_rates.py::test_price_by_weight",),
            pass_to_pass=("tests/test_rates.py::test_price_by_zone",),
        ),
    )
    return dataclasses.replace(task, **changed)  # type: ignore[arg-type]


def test_a_folder_a_repository_and_a_source_package_hold_the_same_files(tmp_path: Path) -> None:
    root = package(tmp_path)
    (root / "__pycache__").mkdir()
    (root / "__pycache__/rates.pyc").write_bytes(b"old")
    (root / ".venv/lib").mkdir(parents=True)
    (root / ".venv/lib/other.py").write_text("x = 1")
    folder = read_tree(root)
    assert set(folder.files) == set(FILES)
    with tarfile.open(tmp_path / "parcels-1.2.0.tar.gz", "w:gz") as packed:
        for name in FILES:
            packed.add(root / name, f"parcels-1.2.0/{name}")
    committed(root)
    (root / "parcels/rates.py").write_text("not committed = 1")
    assert read_tree(root).digest == read_tree(tmp_path / "parcels-1.2.0.tar.gz").digest == folder.digest
    assert (folder.packages, folder.root) == (("parcels",), "")
    assert folder.tests == ("tests/test_labels.py", "tests/test_rates.py")
    assert folder.sources == ("parcels/__init__.py", "parcels/labels.py", "parcels/rates.py")


def test_nothing_of_a_repositorys_history_is_among_its_files(tmp_path: Path) -> None:
    root = package(tmp_path, changed={"parcels/rates.py": "SECRET = 'what is right'\n"})
    first = committed(root)
    package(tmp_path)
    committed(root, "mended")
    now = read_tree(root)
    assert not any(b"what is right" in data or ".git" in path for path, data in now.files.items())
    assert read_tree(root, commit=first).files["parcels/rates.py"] == b"SECRET = 'what is right'\n"


def test_a_src_layout_is_known(tmp_path: Path) -> None:
    tree = Tree({"src/parcels/__init__.py": b"", "src/parcels/rates.py": b"", "tests/test_rates.py": b"", "setup.py": b""})
    assert (tree.root, tree.packages, tree.module_of("src/parcels/rates.py")) == ("src/", ("parcels",), "parcels.rates")
    assert tree.sources == ("src/parcels/__init__.py", "src/parcels/rates.py")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: folder / "nowhere", "no such folder"),
        (lambda folder: folder, "no Python file"),
        (lambda folder: _written(folder / "x.tar.gz", b"no archive"), "no source package"),
        (lambda folder: _escaping(folder / "x.tar.gz"), "leads out of it"),
        (lambda folder: _with_submodule(folder), "submodules"),
    ],
)
def test_what_is_no_repository_is_refused_with_a_sentence(make: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        read_tree(make(tmp_path))  # type: ignore[operator]


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def _escaping(path: Path) -> Path:
    with tarfile.open(path, "w:gz") as packed:
        told = tarfile.TarInfo("../../home/ann/.bashrc")
        told.size = 1
        packed.addfile(told, io.BytesIO(b"x"))
    return path


def _with_submodule(folder: Path) -> Path:
    root, other = package(folder), package(folder / "other")
    committed(other)
    committed(root)
    os.system(f"git -C {root} -c protocol.file.allow=always submodule --quiet add {other} vendored >/dev/null 2>&1")
    committed(root, "with a part of somebody else's")
    return root


def test_a_commit_that_is_not_there_and_one_that_is_an_option_are_refused(tmp_path: Path) -> None:
    root = package(tmp_path)
    with pytest.raises(InputError, match="no git repository"):
        read_tree(root, commit="HEAD~1")
    committed(root)
    with pytest.raises(InputError, match="git ls-tree failed"):
        read_tree(root, commit="abc123")
    with pytest.raises(InputError, match="no name of a commit"):
        read_tree(root, commit="--output=x")


def test_packed_files_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    tree = Tree({path: text.encode() for path, text in FILES.items()})
    tree.pack(tmp_path / "a")
    Tree(dict(sorted(tree.files.items(), reverse=True))).pack(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert Tree.unpack(tmp_path / "a").files == tree.files


def test_an_agent_finds_the_fault_and_none_of_the_tests_that_tell_of_it() -> None:
    tree = Tree({path: text.encode() for path, text in FILES.items()})
    given_files = of().start(tree)
    tests = given_files.text("tests/test_rates.py")
    assert "test_price_by_weight" not in tests
    assert "test_price_by_zone" in tests
    assert "grams >= 1000" in given_files.text("parcels/rates.py")
    assert of().right(tree).files["parcels/rates.py"] == tree.files["parcels/rates.py"]
    assert of().examined(tree, of().right(tree)).files == tree.files


def test_only_what_may_be_changed_is_taken_of_what_an_agent_left() -> None:
    tree = Tree({path: text.encode() for path, text in FILES.items()})
    left = {
        **of().start(tree).files,
        "parcels/rates.py": b"mended = True\n",
        "tests/test_rates.py": b"def test_price_by_weight(): pass\n",
        "tests/conftest.py": b"import os; os._exit(0)\n",
        "conftest.py": b"import os; os._exit(0)\n",
        "pytest.ini": b"[pytest]\npython_files = none\n",
        "parcels/new.py": b"x = 1\n",
    }
    del left["parcels/labels.py"]
    taken = of().taken(tree, left)
    assert taken.files["parcels/rates.py"] == b"mended = True\n"
    assert taken.files["parcels/new.py"] == b"x = 1\n"
    assert "parcels/labels.py" not in taken.files
    assert taken.files["tests/test_rates.py"] == of().start(tree).files["tests/test_rates.py"]
    assert not {"conftest.py", "tests/conftest.py", "pytest.ini"} & set(taken.files)


def test_a_file_of_tasks_is_read_back_as_it_was_written_and_the_same_tasks_are_the_same_bytes(tmp_path: Path) -> None:
    tasks = (of(), of(category="feature", split=Split.HELD_OUT, base={"parcels/gone.py": None}))
    repository.write(tmp_path / "a.jsonl", tasks)
    repository.write(tmp_path / "b.jsonl", repository.read(tmp_path / "a.jsonl"))
    assert repository.read(tmp_path / "a.jsonl") == tasks
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"statement": "Another one"}, "was changed after it was made"),
        ({"colour": "red"}, "there is no 'colour'"),
        ({"tree": ""}, "'tree' is a text that is missing"),
        ({"base": {"../x.py": "1"}}, "by relative path"),
        ({"reference": {"x.py": 1}}, "holds texts"),
        ({"split": "tomorrow"}, "tomorrow"),
    ],
)
def test_a_line_that_is_no_task_is_named_with_its_place(change: dict[str, object], said: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(repository.line(of()) + json.dumps({**of().as_json(), **change}) + "\n")
    with pytest.raises(InputError, match=said) as caught:
        repository.read(path)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_a_function_is_in_one_split_only() -> None:
    sources = [f"parcels.rates:f{number}" for number in range(400)]
    held_out = [repository.split_of("parcels", source) for source in sources].count(Split.HELD_OUT)
    assert 90 <= held_out <= 150
    assert [repository.split_of("parcels", each) for each in sources] == [
        repository.split_of("parcels", each) for each in sources
    ]


def test_tests_are_left_out_and_all_else_stands() -> None:
    text = FILES["tests/test_rates.py"]
    names = {"test_a_weight_that_no_parcel_has", "test_price_by_zone"}
    without, only = without_tests(text, names), without_tests(text, names, only=True)
    assert "pytest.mark.parametrize" not in without
    assert [each.name for each in functions(only)] == ["test_price_by_zone", "test_a_weight_that_no_parcel_has"]
    assert {each.name for each in functions(without)} == {each.name for each in functions(text)} - names
    assert without.startswith("import pytest\n")


def test_a_class_without_its_tests_is_still_a_class() -> None:
    text = "class TestX:\n    def test_a(self):\n        assert 1\n\n    def test_b(self):\n        assert 2\n"
    ast.parse(without_tests(text, {"TestX.test_a", "TestX.test_b"}))
    assert "test_b" in without_tests(text, {"TestX.test_a"})


SAMPLE = '''
class Box:
    """A box, not a fault: 1 < 2 and 3."""

    def __init__(self, size, *, deep=True):
        self.size = size
        self.deep = deep

    def fits(self, other, slack=0):
        for each in other:
            if (each < self.size) and not each is None or each in (1, 2):
                continue
            total = each * 2 - 1
            total += slack
            if total >= self.size:
                break
        return pick(other, self.size, key=len)[slack:total]


def größe(é, wert):  # what stands before may have more bytes than characters
    return é + wert if "ö" in é else é % wert
'''


def test_every_kind_of_fault_is_found_in_its_place() -> None:
    found = mutations(SAMPLE)
    assert {each.kind for each in found} == set(KINDS)
    for each in found:
        changed = each.applied(SAMPLE)
        ast.parse(changed)
        assert changed != SAMPLE
        assert changed.startswith(SAMPLE[: each.start])
        assert changed.endswith(SAMPLE[each.start + len(each.old) :])
    assert any(each.function == "größe" and each.applied(SAMPLE).count("é - wert") for each in found)
    assert any(each.new == "is not" for each in found)
    assert not any("A box" in each.old for each in found)


@given(st.sampled_from([FILES["parcels/rates.py"], FILES["parcels/labels.py"], SAMPLE]), st.randoms())
def test_a_fault_changes_one_function_and_nothing_around_it(text: str, chance: object) -> None:
    each = chance.choice(mutations(text))  # type: ignore[attr-defined]
    before, after = _dumped(text), _dumped(each.applied(text))
    assert [name for name in before if before[name] != after[name]] == [each.function]


def _dumped(text: str) -> dict[str, str]:
    return {each.name: ast.dump(each.node) for each in functions(text)}


@pytest.mark.parametrize(
    ("path", "is_one"), [("tests/helpers.py", True), ("a/test_x.py", True), ("conftest.py", True), ("a/latest.py", False)]
)
def test_what_belongs_to_tests_is_known_by_its_path(path: str, is_one: bool) -> None:
    assert in_tests(path) is is_one
