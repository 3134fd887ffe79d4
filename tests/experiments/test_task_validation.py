"""Tasks of a small package, made, checked and cheated on behind walls."""

import asyncio
import gzip
import random
import shutil
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman import sandbox
from journeyman.core.errors import InputError
from journeyman.core.score import Reward
from journeyman.experiments.task_generation import validate as validation
from journeyman.experiments.task_generation.base import Metered, Rejected, TaskSource, generator_of, given_away, is_stub
from journeyman.experiments.task_generation.generate import EnvironmentOptions, generate, prepare
from journeyman.experiments.task_generation.statements import told_by
from journeyman.experiments.task_generation.validate import _searched, alike, commented, validate
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.cheats import CHEATS, KINDS, attempts, place_of
from journeyman.rewards.repository.suite import SuiteRun, run_suite
from journeyman.rewards.repository.verdict import TESTS_SECONDS, done
from journeyman.sandbox.base import Program, Sandbox
from journeyman.tasks.repository import Category, Checks, RepositoryTask
from journeyman.tasks.repository.tree import Tree
from tests.support import repository_tasks
from tests.support.repositories import package
from tests.support.wheels import without_network

pytestmark = pytest.mark.service

_WRAPPED = "            lines.append(line)\n            line = word\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("repository")
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_network(monkeypatch, folder / "wheels")
        repository_tasks.environment(folder / "envs")
        yield folder


@pytest.fixture(scope="module")
def subject(place: Path) -> TaskSource:
    return asyncio.run(prepare(package(place), EnvironmentOptions(folder=place / "envs")))


@pytest.fixture
async def box(subject: TaskSource) -> AsyncIterator[Sandbox]:
    async with sandbox.started(interpreter=subject.environment.interpreter) as opened:
        yield opened


def bug(subject: TaskSource) -> RepositoryTask:
    """A word is lost where a line is full."""
    text = subject.tree.text("parcels/labels.py")
    assert _WRAPPED in text
    failing = "tests/test_labels.py::test_a_text_is_broken_between_words"
    return RepositoryTask(
        category=Category.BUG_FIX,
        repository="parcels",
        tree=subject.tree.digest,
        environment=subject.environment.digest,
        statement="Words are missing in long texts.",
        base={"parcels/labels.py": text.replace("line = word\n", 'line = ""\n')},
        reference={"parcels/labels.py": text},
        checks=Checks(
            fail_to_pass=(failing,),
            pass_to_pass=("tests/test_labels.py::test_a_label", "tests/test_labels.py::test_no_text_is_no_line"),
        ),
        source="parcels.labels:wrapped",
        made_by="by hand",
    )


async def test_no_cheat_is_paid_though_many_make_the_plain_run_pass(subject: TaskSource, place: Path, box: Sandbox) -> None:
    task = bug(subject)
    found = await validate([task], place / "envs", every=True)
    assert found.flaws == []
    assert sum(found.attempts.values()) == len(CHEATS)
    assert set(found.attempts) == set(KINDS)
    assert found.cpu_seconds > 1
    fooled = set[str]()
    for each in attempts(task, subject.tree, every=True):
        left = task.examined(subject.tree, task.taken(subject.tree, each.left))
        run = await run_suite(box, left, task.checks.fail_to_pass)
        fooled |= {each.cheat.name} if all(map(run.passed, task.checks.fail_to_pass)) else set()
    # The control: if nobody were fooled by them, that they are not paid would say nothing.
    assert fooled >= {
        "patches_calls", "patches_reports", "patches_hooks", "forges_report", "reads_tests", "swallows_errors", "empties_tests"
    }  # fmt: skip


async def test_a_check_that_pays_for_a_cheat_is_named(
    subject: TaskSource, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from journeyman.rewards.repository import verdict

    async def trusting(*_: object) -> object:
        return verdict.done(True, "it says so")

    monkeypatch.setattr(verdict, "believed", trusting)
    found = await validate([bug(subject)], place / "envs", every=True)
    assert "paid: patches_calls" in {flaw.what for flaw in found.flaws}
    assert not found.sound


def _right(task: RepositoryTask, tree: Tree) -> tuple[Mapping[str, bytes], Mapping[str, bytes]]:
    """The reference as it is, and with a comment."""
    right = task.right(tree)
    return right.files, commented(task, tree, right).files


async def test_what_may_never_end_is_waited_for_by_what_the_reference_took(
    subject: TaskSource, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, asked = bug(subject), list[float]()

    async def paid(
        task: RepositoryTask, tree: Tree, left: Mapping[str, bytes], box: Sandbox, *, plugins: object, seconds: float
    ) -> Reward:
        asked.append(seconds)
        is_right = left in _right(task, tree)
        if is_right:
            await box.run(Program(code="import time\nwhile time.process_time() < 0.5: pass"))
        return done(is_right, "")

    monkeypatch.setattr(validation, "verify", paid)
    assert (await validate([task], place / "envs")).sound
    assert asked[:3] == [TESTS_SECONDS] * 3
    assert set(asked[3:]) == {asked[3]}
    assert 15 <= asked[3] < 60


async def test_a_validation_that_was_killed_goes_on_where_it_was(
    subject: TaskSource, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [replace(bug(subject), statement=f"Words are missing in {which} texts.") for which in ("long", "all", "some")]
    examined, searched, killed = list[str](), list[int](), [True]

    async def paid(task: RepositoryTask, tree: Tree, left: Mapping[str, bytes], *_: object, **how: object) -> Reward:
        if killed and task is tasks[2]:
            raise InputError("killed")
        examined.append(task.id)
        return done(left in (*_right(task, tree), next(attempts(tasks[1], tree)).left), "it says so")

    async def nowhere(*_: object) -> list[tuple[str, str]]:
        searched.append(1)
        return []

    monkeypatch.setattr(validation, "verify", paid)
    monkeypatch.setattr(validation, "_searched", nowhere)
    monkeypatch.setattr(validation, "JOBS", 1)
    journal = tmp_path / ".tasks.examined"
    with pytest.raises(InputError, match="killed"):
        await validate(tasks, place / "envs", journal=journal)
    before = set(examined)
    assert before == {tasks[0].id, tasks[1].id}
    with journal.open("a") as file:
        file.write('{"key": "half a li')
    killed.clear()
    examined.clear()
    gone_on = await validate(tasks, place / "envs", journal=journal)
    assert set(examined) == {tasks[2].id}
    assert searched == [1]
    whole = await validate(tasks, place / "envs")
    assert gone_on.as_json() == whole.as_json()
    assert {flaw.what.partition(":")[0] for flaw in whole.flaws} == {"paid"}
    assert not journal.exists()
    assert set(examined) == {task.id for task in tasks}


async def test_what_was_asked_in_another_way_is_asked_again(tmp_path: Path) -> None:
    kept = validation._Kept.opened(tmp_path / "journal", every=False)
    kept.add("a", validation.Validation(tasks=1, unknown=Counter(stub=1)))
    assert validation._Kept.opened(tmp_path / "journal", every=False).found == kept.found
    assert validation._Kept.opened(tmp_path / "journal", every=True).found == {}


def test_tests_may_take_on_broken_code_some_times_what_they_take_on_right_code(subject: TaskSource) -> None:
    run = SuiteRun(seconds={"a": 0.5, "b": 1.5})
    suite = replace(subject.suite, cpu_seconds=3.0, run=run)
    slow = replace(subject, suite=suite)
    assert slow.patience(["a"], 30.0) == 2 + 1 + 10 * 0.5
    assert slow.patience(["a", "b"], 20.0) == 20.0
    assert replace(subject, suite=replace(suite, cpu_seconds=1.0)).patience([], 30.0) == 2.0


async def test_a_reference_that_does_not_pass_and_a_fault_that_nothing_notices_are_named(
    subject: TaskSource, place: Path
) -> None:
    task = bug(subject)
    wrong = replace(task, reference=task.base)
    unnoticed = replace(task, base={path: f"{text}\n\nx = 1\n" for path, text in task.reference.items() if text})
    found = await validate([wrong, unnoticed], place / "envs")
    by_task = {(flaw.task, flaw.what) for flaw in found.flaws}
    assert (wrong.id, "reference") in by_task
    assert (unnoticed.id, "empty") in by_task


def test_statements_that_tell_too_much_and_tasks_that_are_alike_are_named(subject: TaskSource) -> None:
    task = bug(subject)
    assert list(told_by(task, subject.tree)) == []
    for statement in ("It is in labels.py.", "Look at line 12.", "There it should be line = word again."):
        assert len(list(told_by(replace(task, statement=statement), subject.tree))) == 1
    many = [replace(task, statement=f"{number}") for number in range(5)]
    assert [flaw.task for flaw in alike(many)] == [many[3].id, many[4].id]


async def test_a_copy_of_what_is_right_in_the_sandbox_is_found(subject: TaskSource, box: Sandbox) -> None:
    import pluggy

    text = Path(pluggy.__file__).with_name("_callers.py").read_text()
    wanted = {"elsewhere/of_another_name.py": text[:400], "parcels/labels.py": subject.tree.text("parcels/labels.py")}
    found = await _searched(box, wanted)
    assert {path for path, _ in found} == {"elsewhere/of_another_name.py"}
    assert "_callers.py" in found[0][1]


async def test_a_copy_of_what_is_right_is_found_in_whatever_it_is_packed(
    subject: TaskSource, box: Sandbox, tmp_path: Path
) -> None:
    right = "def answer():\n    return 'nowhere else is it said like this'\n"
    (tmp_path / "answer.py").write_text(right)
    shown = Path(subject.environment.interpreter.prefix) / "packed"
    shown.mkdir()
    try:
        for kind in ("zip", "tar", "gztar", "bztar", "xztar"):
            shutil.make_archive(str(shown / kind), kind, tmp_path)
        (shown / "answer.py.gz").write_bytes(gzip.compress(b"# Before it.\n") + gzip.compress(right.encode()))
        (shown / "cut.gz").write_bytes(gzip.compress(random.Random(0).randbytes(9999))[:5000])
        (shown / "no.zip").write_bytes(b"PK but no archive")
        found = await _searched(box, {"parcels/answered.py": right})
    finally:
        shutil.rmtree(shown)
    names = {Path(evidence.rpartition("sandbox: ")[2]).name for _, evidence in found}
    packed = ("zip.zip: answer.py", "tar.tar", "gztar.tar.gz", "bztar.tar.bz2", "xztar.tar.xz", "answer.py.gz")
    assert names == {*packed}
    assert len(found) == len(packed)


async def test_what_is_right_among_what_is_given_is_found(subject: TaskSource, place: Path) -> None:
    task = bug(subject)
    base = {**task.base, "old/copy.txt": task.reference["parcels/labels.py"]}
    found = await validate([replace(task, base=base)], place / "envs")
    assert "found" in {flaw.what for flaw in found.flaws}


async def test_a_draft_of_which_what_is_right_stands_in_what_is_given_is_no_task(subject: TaskSource, place: Path) -> None:
    task, tree = bug(subject), subject.tree
    assert list(given_away(task, task.start(tree))) == []
    copied = tree.changed({"old/copy.txt": tree.text("parcels/labels.py")})
    assert list(given_away(task, task.start(copied))) == ["old/copy.txt"]


@pytest.mark.parametrize(
    ("body", "is_one"),
    [
        ("return x", True),
        ('"""As it came."""\n    return x', True),
        ("pass", True),
        ("return 3", True),
        ("return -x", False),
        ("x.clear()", False),
        ("y = x\n    return y", False),
    ],
)
def test_a_function_that_does_nothing_is_told_from_one_that_does(body: str, is_one: bool) -> None:
    text = f"@cached\ndef f(x):\n    {body}\n"
    assert is_stub(text) is is_one
    assert is_stub(textwrap.indent(text, "    ")) is is_one


async def test_code_is_made_complex_and_only_simple_code_that_does_the_same_is_paid(
    subject: TaskSource, place: Path, box: Sandbox
) -> None:
    made = await generate(subject, {"refactor": 2}, place / "refactor.jsonl")
    again = await generate(subject, {"refactor": 2}, place / "again.jsonl")
    assert (place / "refactor.jsonl").read_bytes() == (place / "again.jsonl").read_bytes()
    assert len(made["refactor"].tasks) == len(again["refactor"].tasks) == 2
    task = next(each for each in made["refactor"].tasks if each.source.endswith((":wrapped", ":price", ":cheapest")))
    path, function = task.checks.measure["path"], task.checks.measure["function"]
    tree, given = subject.tree, task.start(subject.tree)
    right = subject.tree.text(path)

    async def paid(text: str, files: dict[str, bytes] | None = None) -> tuple[float | None, str]:
        reward = await verify(task, tree, {**given.files, path: text.encode(), **(files or {})}, box)
        return reward.value, reward.evidence

    assert (await paid(right))[0] == 1.0
    assert (await paid(f"{given.text(path)}\n# better\n"))[0] == 0.0
    renamed = (
        given.text(path).replace(f"def {function}(", "def _inner(")
        + f"\n\ndef {function}(*args, **more):\n    return _inner(*args, **more)\n"
    )
    assert (await paid(renamed))[0] == 0.0
    hidden = f"{right}\n\n_same = eval('1')\n"
    assert await paid(hidden) == (0.0, "'eval' is used where it was not")
    assert "is now" in (await paid(f"{right}\n\ndef another():\n    pass\n"))[1]
    stub = f"{right}\n\n_before = {function}\n\n\ndef _other(*args, **more):\n    return _before(*args, **more) or []\n"
    assert (await paid(stub))[0] == 1.0, "a helper that nobody calls changes nothing"


async def test_what_only_other_inputs_show_is_no_refactoring(subject: TaskSource, place: Path, box: Sandbox) -> None:
    made = await generate(subject, {"refactor": 3}, place / "more.jsonl")
    task = next(each for each in made["refactor"].tasks if each.source == "parcels.rates:price")
    right = subject.tree.text("parcels/rates.py")
    other = right.replace("(grams - 1000) // 500 * 50", "(grams - 1000) // 500 * 50 if grams < 15000 or grams == 20_000 else 0")
    assert other != right
    reward = await verify(task, subject.tree, {**task.start(subject.tree).files, "parcels/rates.py": other.encode()}, box)
    assert reward.value == 0.0
    assert "it was" in str(reward.evidence)


async def test_a_function_without_a_branch_is_no_draft(subject: TaskSource, box: Sandbox) -> None:
    import random

    generator = generator_of("refactor")
    sources = {draft.source for draft in generator.drafts(subject, random.Random(1))}
    assert "parcels.rates:zone" not in sources
    assert sources
    metered = Metered(box)
    draft = next(generator.drafts(subject, random.Random(1)))
    assert not isinstance(await generator.task(replace(draft, base=draft.reference), subject, metered), RepositoryTask)
    assert isinstance(await generator.task(draft, subject, metered), RepositoryTask | Rejected)
    assert metered.cpu_seconds > 0
    assert place_of(bug(subject), subject.tree) is not None


async def test_a_module_that_must_not_know_another_is_told_by_its_imports(
    subject: TaskSource, place: Path, box: Sandbox
) -> None:
    made = await generate(subject, {"architecture": 1}, place / "architecture.jsonl")
    (task,) = made["architecture"].tasks
    given, tree = task.start(subject.tree), subject.tree
    (path,) = [each for each in task.base if tree.module_of(each) == task.checks.measure["module"]]
    assert (await verify(task, tree, {**given.files, path: f"{given.text(path)}\n# the same\n".encode()}, box)).value == 0.0
    assert (await verify(task, tree, task.right(tree).files, box)).value == 1.0
    hidden = f"{tree.text(path)}\n\ndef _late():\n    return __import__({task.checks.measure['forbidden']!r})\n"
    reward = await verify(task, tree, {**task.right(tree).files, path: hidden.encode()}, box)
    assert (reward.value, reward.evidence) == (0.0, "'__import__' is used where it was not")


_MUCH = """def firsts(items):
    \"\"\"The first of each length.\"\"\"
    found = {}
    for item in items:
        if len(item) not in found:
            found[len(item)] = item
    return found


def doubled(numbers, *, times=2):
    \"\"\"All of them, twice as much.\"\"\"
    return [number * times for number in numbers]


def even(numbers):
    \"\"\"Those that are even, as they come.\"\"\"
    for number in numbers:
        if number % 2 == 0:
            yield number
"""
_MUCH_TESTS = """from parcels.much import doubled, even, firsts


def test_firsts():
    assert firsts(["a", "bb", "cc"]) == {1: "a", 2: "bb"}


def test_doubled():
    assert doubled(range(3)) == [0, 2, 4]


def test_even():
    assert list(even([1, 2, 4])) == [2, 4]
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
async def test_code_is_made_slow_in_more_than_one_way_and_only_what_is_as_fast_is_paid(tmp_path: Path, place: Path) -> None:
    root = package(tmp_path)
    (root / "parcels/much.py").write_text(_MUCH)
    (root / "tests/test_much.py").write_text(_MUCH_TESTS)
    subject = await prepare(root, EnvironmentOptions(folder=place / "envs"))
    generator = generator_of("performance")
    drafts = {draft.key.partition(":")[2]: draft for draft in generator.drafts(subject, random.Random(0))}
    ways = {key.rpartition(":")[2] for key in drafts}
    assert {"spell", "remember", "walk", "gather"} <= ways
    async with sandbox.started(interpreter=subject.environment.interpreter) as box:
        # Called once, with a range, and with an argument that may be named and was not.
        task = await generator.task(drafts["doubled:spell"], subject, box)
        assert isinstance(task, RepositoryTask), task
        assert task.level["slower"] > 2
        given = task.start(subject.tree)
        comment = f"{given.text('parcels/much.py')}\n# as it was\n"
        slow = given.text("parcels/much.py")
        head = "def doubled(numbers, *, times=2):\n"
        # Quick only where it can see that it is counted, and then wrong.
        assert slow.count(head) == 1
        cheat = slow.replace(head, f'{head}    if "vgpreload" in str(os.environ):\n        return []\n')
        for text, worth, why in (
            (_MUCH, 1.0, "instructions beside"),
            (comment, 0.0, "instructions beside"),
            (f"import os\n\n\n{cheat}", 0.0, "it does not give what it should"),
        ):
            reward = await verify(task, subject.tree, given.changed({"parcels/much.py": text}).files, box)
            assert reward.value == worth, reward.evidence
            assert why in str(reward.evidence)
            if text is comment:
                # Too much at the smaller size is told, and the larger is not counted.
                assert " at 1000;" in str(reward.evidence)
