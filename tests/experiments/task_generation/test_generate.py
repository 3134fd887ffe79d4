"""From a package to tasks: what is given fails, the reference passes, and nothing else is paid."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from journeyman import sandbox
from journeyman.core.errors import InputError
from journeyman.experiments.task_generation.base import TaskSource
from journeyman.experiments.task_generation.generate import EnvironmentOptions, generate, kept_tree, prepare
from journeyman.rewards.repository import verify
from journeyman.sandbox.base import Sandbox
from journeyman.tasks import repository
from journeyman.tasks.repository import RepositoryTask
from tests.support import repository_tasks
from tests.support.repositories import FILES, package
from tests.support.wheels import without_network

pytestmark = pytest.mark.service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where environments are kept, with pip's files in reach."""
    place = tmp_path_factory.mktemp("environments")
    with pytest.MonkeyPatch.context() as patch:
        without_network(patch, place / "wheels")
        repository_tasks.environment(place)
        yield place


@pytest.fixture(scope="module")
def subject(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> TaskSource:
    return asyncio.run(prepare(package(tmp_path_factory.mktemp("source")), EnvironmentOptions(folder=folder)))


@pytest.fixture
async def box(subject: TaskSource) -> AsyncIterator[Sandbox]:
    async with sandbox.started("auto", interpreter=subject.environment.interpreter) as opened:
        yield opened


def test_a_subject_knows_its_tests_and_which_lines_they_come_by(subject: TaskSource, folder: Path) -> None:
    assert len(subject.suite.passing) == 14
    assert (subject.suite.flaky, subject.suite.failing) == ((), ())
    line = next(number for number, text in enumerate(FILES["parcels/rates.py"].splitlines(), 1) if "total * 2" in text)
    assert subject.covering("parcels/rates.py", [line]) == ("tests/test_rates.py::test_express_costs_twice_as_much",)
    assert subject.license == "MIT"
    assert kept_tree(subject.tree.digest, folder).files == subject.tree.files


async def test_each_task_is_paid_for_the_reference_alone(subject: TaskSource, box: Sandbox, tmp_path: Path) -> None:
    made = await generate(subject, {"bug_fix": 6}, tmp_path / "tasks.jsonl")
    tasks = repository.read(tmp_path / "tasks.jsonl")
    assert list(tasks) == made["bug_fix"].tasks
    assert len(tasks) == 6
    for task in tasks:
        assert "parcels/" not in task.statement
        start, right = task.start(subject.tree).files, task.right(subject.tree).files
        left = (right, start, _stubbed(task, subject), _edited(task, subject))
        paid = [await verify(task, subject.tree, files, box) for files in left]
        assert [each.value for each in paid] == [1.0, 0.0, 0.0, 0.0], [each.evidence for each in paid]


def _stubbed(task: RepositoryTask, subject: TaskSource) -> dict[str, bytes]:
    """Whoever ends the tests before they fail."""
    files = dict(task.start(subject.tree).files)
    path = next(iter(task.base))
    files[path] = b"import os\nos._exit(0)\n" + files[path]
    return files


def _edited(task: RepositoryTask, subject: TaskSource) -> dict[str, bytes]:
    """Whoever makes the tests agree with what is wrong, and replaces what runs them."""
    files = {path: data for path, data in task.start(subject.tree).files.items() if not path.startswith("tests/")}
    files["conftest.py"] = b"def pytest_collection_modifyitems(items): items.clear()\n"
    path = next(iter(task.base))
    patched = "import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n"
    files[path] = patched.encode() + files[path]
    return files


async def test_the_same_seed_makes_the_same_file_and_another_one_another(subject: TaskSource, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        await generate(subject, {"bug_fix": 4}, tmp_path / name, seed=seed)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


async def test_what_a_killed_run_has_tried_is_not_tried_again(
    subject: TaskSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from journeyman.experiments.task_generation.bug_fix import BugFix

    original, tried = BugFix.task, list[str]()

    async def counted(self: BugFix, draft: object, *rest: object) -> object:
        tried.append(draft.key)  # type: ignore[attr-defined]
        if len(tried) == 5:
            raise InputError("killed")
        return await original(self, draft, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(BugFix, "task", counted)
    with pytest.raises(InputError, match="killed"):
        await generate(subject, {"bug_fix": 6}, tmp_path / "killed")
    assert not (tmp_path / "killed").exists()
    with (tmp_path / ".killed.tried").open("a") as file:
        file.write('{"key": "bug_fix half a li')
    await generate(subject, {"bug_fix": 6}, tmp_path / "killed")
    monkeypatch.setattr(BugFix, "task", original)
    await generate(subject, {"bug_fix": 6}, tmp_path / "whole")
    assert (tmp_path / "killed").read_bytes() == (tmp_path / "whole").read_bytes()
    done = [key for key in tried if tried.count(key) > 1]
    assert len(set(done)) <= 2, "only what was under way when it was killed"
    assert {each.name for each in tmp_path.iterdir()} == {"killed", "whole"}


_SUMS = """def total(numbers):
    found = 0
    for number in numbers:
        found = found + number
    return found


def mean(numbers):
    return sum(numbers) / len(numbers)
"""
_OF_TOTAL = """from parcels.sums import total


def test_total():
    assert total([1, 2, 4]) == 7


def test_total_of_none():
    assert total([]) == 0
"""
_OF_MEAN = """from pathlib import Path

from parcels.sums import mean

SOURCE = Path("src/parcels/sums.py")


def test_where_its_source_lies():
    assert SOURCE.exists()


def test_mean_where_its_source_lies():
    assert SOURCE.exists()
    assert mean([1, 3]) == 2
"""


async def test_a_task_whose_reference_would_not_be_paid_is_none_and_it_is_said_why(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "parcels"
    files = {"pyproject.toml": FILES["pyproject.toml"], "src/parcels/__init__.py": "", "src/parcels/sums.py": _SUMS}
    for path, text in {**files, "tests/test_total.py": _OF_TOTAL, "tests/test_mean.py": _OF_MEAN}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subject = await prepare(root, EnvironmentOptions(folder=folder))
    assert len(subject.suite.passing) == 4
    found = (await generate(subject, {"bug_fix": 30}, tmp_path / "tasks"))["bug_fix"]
    # The tests of `mean` pass where they lie, and cannot where the code lies beside its tests to be examined.
    assert {each.source for each in found.tasks} == {"parcels.sums:total"}
    assert found.reasons["whether its reference is right cannot be told"] >= 1


async def test_files_that_a_task_was_not_made_of_are_refused(subject: TaskSource, box: Sandbox, tmp_path: Path) -> None:
    (task,) = (await generate(subject, {"bug_fix": 1}, tmp_path / "tasks"))["bug_fix"].tasks
    with pytest.raises(InputError, match="starts from the files"):
        await verify(dataclasses.replace(task, tree="0" * 16), subject.tree, {}, box)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tests/test_rates.py": "def test_a():\n    assert 0\n", "tests/test_labels.py": "x = 1\n"}, "no test of .* passes"),
        ({"tests/test_rates.py": "import nowhere\n", "tests/test_labels.py": "import nowhere\n"}, "No module named 'nowhere'"),
        ({"tests/test_rates.py": "import os\nos._exit(3)\n"}, "cannot be run"),
    ],
)
async def test_a_repository_whose_tests_decide_nothing_is_refused_with_what_they_say(
    changed: dict[str, str], said: str, folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=said):
        await prepare(package(tmp_path, changed=changed), EnvironmentOptions(folder=folder))


async def test_a_repository_without_tests_is_refused(folder: Path, tmp_path: Path) -> None:
    root = package(tmp_path)
    for path in (root / "tests").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="has no tests"):
        await prepare(root, EnvironmentOptions(folder=folder))
