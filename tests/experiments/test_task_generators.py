"""Tasks of each category made of a small package: the reference passes, what is given fails, and what only looks done fails."""

import random
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from journeyman.experiments.task_generation.base import Rejected, TaskSource, generator_of, reference_paid, settled
from journeyman.experiments.task_generation.history import commits_of
from journeyman.experiments.task_generation.statements import told_by
from journeyman.rewards.repository import verify
from journeyman.rewards.repository.suite import steady
from journeyman.sandbox.base import Sandbox
from journeyman.sandbox.environments import VirtualEnvironment, interpreter_of
from journeyman.tasks.repository import Category, Checks, RepositoryTask
from journeyman.tasks.repository.foreign import read_foreign
from journeyman.tasks.repository.tree import Tree, read_tree
from tests.support.repositories import FILES, committed, package
from tests.support.walled import walled

pytestmark = pytest.mark.service

QUIXBUGS = Path(__file__).parents[1] / "data" / "quixbugs" / "quixbugs_python.jsonl"


@pytest.fixture
async def box() -> AsyncIterator[Sandbox]:
    async with walled() as found:
        yield found


async def subject_of(source: Path, box: Sandbox) -> TaskSource:
    """A repository in the environment of these tests, so that nothing need be installed."""
    interpreter, version = interpreter_of(sys.executable)
    environment = VirtualEnvironment(
        digest="0" * 16, folder=source.parent / "environments" / "0", interpreter=interpreter, python=version, distributions=()
    )
    tree = read_tree(source)
    suite = await steady(box, tree, times=1)
    return TaskSource(name="parcels", tree=tree, environment=environment, suite=suite, source=source, license="MIT")


async def made(category: str, subject: TaskSource, box: Sandbox, source: str = "") -> dict[str, RepositoryTask]:
    """The tasks of a category by what they are made of, each of which the reference does and nothing does not."""
    generator, found = generator_of(category), dict[str, RepositoryTask]()
    for draft in generator.drafts(subject, random.Random("0")):
        if source in draft.source:
            task = await generator.task(draft, subject, box)
            if not isinstance(task, Rejected):
                found[task.source] = task
    return found


async def worth(task: RepositoryTask, subject: TaskSource, box: Sandbox, changed: Mapping[str, str | None]) -> float | None:
    tree = subject.tree
    reward = await verify(task, tree, task.start(tree).changed(changed).files, box)
    print(changed and sorted(changed), reward.value, reward.evidence)
    return reward.value


async def test_a_function_without_its_body_is_written_anew(box: Sandbox, tmp_path: Path) -> None:
    subject = await subject_of(package(tmp_path), box)
    task = (await made("feature", subject, box, "parcels.rates:price"))["parcels.rates:price"]
    path, start = "parcels/rates.py", task.start(subject.tree)
    assert "a parcel weighs" not in start.text(path)
    assert "test_price_by_zone" not in start.text("tests/test_rates.py")
    assert "price(grams, country, express=False)" in task.statement
    assert "total" not in task.statement
    assert await worth(task, subject, box, task.reference) == 1
    assert await worth(task, subject, box, {}) == 0
    given = start.text(path)
    for stub in ("return None", "pass", "return 900", "import os; os._exit(0)"):
        assert await worth(task, subject, box, {path: given.replace("raise NotImplementedError", stub)}) == 0
    again = (await made("feature", subject, box, "parcels.rates:price"))["parcels.rates:price"]
    assert again.id == task.id


async def test_documentation_counts_where_its_examples_notice_a_fault(box: Sandbox, tmp_path: Path) -> None:
    subject = await subject_of(package(tmp_path), box)
    task = (await made("docs", subject, box, "parcels.labels:wrapped"))["parcels.labels:wrapped"]
    path = "parcels/labels.py"
    given = task.start(subject.tree).text(path)
    assert "broken between words" not in given
    assert await worth(task, subject, box, task.reference) == 1
    assert await worth(task, subject, box, {}) == 0

    def documented(words: str) -> Mapping[str, str]:
        return {path: given.replace("width=20):\n", f'width=20):\n    """{words}\n    """\n')}

    good = "Break text at width.\n\n    >>> wrapped('aa bb', 2)\n    ['aa', 'bb']\n    >>> wrapped('aa bb', 5)\n    ['aa bb']"
    assert await worth(task, subject, box, documented(good)) == 1
    cheats = [
        "",
        "Break text at width.",
        good.replace("width.", "it."),
        "text, width\n\n    >>> 1 + 1\n    2",
        "text, width\n\n    >>> assert wrapped",
        "text, width\n\n    >>> wrapped('') and None",
        good.replace("2)\n", "2)  # doctest: +SKIP\n").replace("5)\n", "5)  # doctest: +SKIP\n"),
        good.replace("['aa bb']", "['wrong']"),
        "text, width\n\n    >>> import inspect\n    >>> '< ' in inspect.getsource(wrapped)\n    False",
    ]
    for words in cheats:
        assert await worth(task, subject, box, documented(words)) == 0, words
    changed = {path: documented(good)[path].replace("lines = []", "lines = list()")}
    assert await worth(task, subject, box, changed) == 0


OWN_TESTS = """from parcels.labels import wrapped


def test_lines_are_as_long_as_they_may_be():
    assert wrapped("aa bb cc", 5) == ["aa bb", "cc"]
    assert wrapped("aa bb cc", 8) == ["aa bb cc"]
    assert wrapped("aa bb cc", 2) == ["aa", "bb", "cc"]
    assert wrapped("one two three", 7) == ["one two", "three"]


def test_nothing_is_nothing():
    assert wrapped("") == []
    assert wrapped("a" * 30) == ["a" * 30]
    assert wrapped("aaaaaaaaaa bbbbbbbbb") == ["aaaaaaaaaa bbbbbbbbb"]
    assert wrapped("aaaaaaaaaa bbbbbbbbbb") == ["aaaaaaaaaa", "bbbbbbbbbb"]
"""


async def test_tests_count_where_they_notice_what_the_tests_before_noticed(box: Sandbox, tmp_path: Path) -> None:
    subject = await subject_of(package(tmp_path), box)
    task = (await made("test", subject, box, "parcels.labels:wrapped"))["parcels.labels:wrapped"]
    there = task.start(subject.tree).text("tests/test_labels.py")
    assert "def test_a_label" in there
    assert "def test_a_text_is_broken" not in there
    new = "tests/test_wrapped.py"
    assert await worth(task, subject, box, task.reference) == 1
    assert await worth(task, subject, box, {new: OWN_TESTS}) == 1
    # Code outside of tests is not taken over, so nothing is gained by breaking it.
    assert await worth(task, subject, box, {new: OWN_TESTS, "parcels/labels.py": ""}) == 1
    head = "from parcels.labels import wrapped\n\n\n"
    reads = f"import inspect\n{head}def test_it():\n    assert 'len(line) + 1' in inspect.getsource(wrapped)\n"
    tuned = f"{head}def test_it():\n    assert 'word' in getattr(wrapped, '__co' + 'de__').co_varnames\n"
    cheats: list[Mapping[str, str | None]] = [
        {},
        {new: "def test_it():\n    assert True\n"},
        {new: f"{head}def test_it():\n    wrapped('aa bb', 3)\n"},
        {new: f"{head}def test_it():\n    assert wrapped('a') == ['b']\n"},
        {new: reads},
        {new: tuned},
        {new: OWN_TESTS, "tests/test_labels.py": None},
        {new: OWN_TESTS, "tests/test_labels.py": "def test_a_label():\n    pass\n"},
        {new: OWN_TESTS, "tests/test_labels.py": there.replace("== ['ANN LEE'", "!= ['ANN LEE'").replace('"OSLO"', '"X"')},
        {"tests/helpers.py": OWN_TESTS},
    ]
    for changed in cheats:
        assert await worth(task, subject, box, changed) == 0, changed


MENDED = FILES["parcels/rates.py"].replace("(grams - 1000) // 500 * 50", "-(-(grams - 1000) // 500) * 50")
MENDED_TESTS = FILES["tests/test_rates.py"].replace(
    'assert price(2600, "NO") == 1050', 'assert price(2600, "NO") == 1100\n    assert price(1001, "NO") == 950'
)
ADDED = f'''{MENDED}

def dearest(parcels):
    """The parcel that costs most."""
    return max(parcels, key=lambda each: price(*each))
'''
ADDED_TESTS = MENDED_TESTS.replace("import cheapest, price, zone", "import cheapest, dearest, price, zone") + (
    '\n\ndef test_the_dearest_of_some():\n    assert dearest([(500, "DE"), (700, "NO")]) == (500, "DE")\n'
)


def with_history(folder: Path) -> tuple[Path, list[str]]:
    """The package as a repository: a fault mended, a function added, and commits that are no tasks."""
    root = package(folder)
    made = [committed(root)]
    steps = [
        ("Begun half kilograms cost as whole ones, also the first (#12)", MENDED, MENDED_TESTS),
        ("Words alone, without a test of them", MENDED.replace("What a parcel costs.", "What it costs."), MENDED_TESTS),
        ("The dearest of some parcels can be asked for\n\nSee parcels/rates.py.", ADDED, ADDED_TESTS),
        ("A rename that no test can tell from what was there", ADDED.replace("total", "sum_"), f"{ADDED_TESTS}\n# Kept.\n"),
    ]
    for message, code, tests in steps:
        (root / "parcels/rates.py").write_text(code)
        (root / "tests/test_rates.py").write_text(tests)
        made.append(committed(root, message))
    return root, made


async def test_commits_that_touch_code_and_tests_are_tasks(box: Sandbox, tmp_path: Path) -> None:
    root, commits = with_history(tmp_path)
    subject = await subject_of(root, box)
    assert [each.sha for each in commits_of(root)] == [commits[4], commits[3], commits[1]]
    found = await made("commits", subject, box)
    assert {source: task.category for source, task in found.items()} == {
        commits[1]: Category.BUG_FIX,
        commits[3]: Category.FEATURE,
    }
    mended, added = found[commits[1]], found[commits[3]]
    assert "Begun half kilograms cost as whole ones" in mended.statement
    assert "#12" not in mended.statement
    assert "`parcels.rates`: `dearest(parcels)`" in added.statement
    assert "rates.py" not in added.statement
    assert mended.created > "2000-01-01"
    assert mended.checks.fail_to_pass == ("tests/test_rates.py::test_price_by_weight",)
    for task in found.values():
        tree = Tree.unpack(tmp_path / "environments" / "trees" / f"{task.tree}.tar.gz")
        before = replace(subject, tree=tree)
        assert await worth(task, before, box, task.reference) == 1
        assert await worth(task, before, box, {}) == 0
        assert await worth(task, before, box, {"parcels/rates.py": FILES["parcels/rates.py"] + "\n"}) == 0


async def test_what_a_commit_added_is_asked_for_by_its_documentation_where_its_message_says_little(
    box: Sandbox, tmp_path: Path
) -> None:
    root = package(tmp_path)
    committed(root)
    (root / "parcels/rates.py").write_text(ADDED)
    (root / "tests/test_rates.py").write_text(ADDED_TESTS)
    added = committed(root, "Add dearest()")
    (root / "parcels/rates.py").write_text(ADDED.replace("max(", "min("))
    (root / "tests/test_rates.py").write_text(ADDED_TESTS.replace('== (500, "DE")', '== (700, "NO")'))
    committed(root, "Mend dearest()")
    subject = await subject_of(root, box)
    found = await made("commits", subject, box)
    # What was there before has no words but the message.
    assert list(found) == [added]
    assert "Add dearest()\n\nWhat it does" in found[added].statement
    assert "    The parcel that costs most.\n" in found[added].statement
    tree = Tree.unpack(tmp_path / "environments" / "trees" / f"{found[added].tree}.tar.gz")
    assert list(told_by(found[added], tree)) == []
    secret = "return max(parcels, key=lambda each: price(*each))"
    assert list(told_by(replace(found[added], statement=f"Write {secret}."), tree)) == [f"it says {secret!r}"]


async def test_sets_of_faults_and_of_features_draw_from_history_too(box: Sandbox, tmp_path: Path) -> None:
    root, commits = with_history(tmp_path)
    subject = await subject_of(root, box)
    for category, own, other in [("bug_fix", commits[1], commits[3]), ("feature", commits[3], commits[1])]:
        generator = generator_of(category)
        drafts = list(generator.drafts(subject, random.Random("0")))
        kinds = [draft.kind for draft in drafts]
        assert kinds.count("commit") == 3
        assert len(drafts) > 6
        assert kinds[1] == "commit"
        of_commits = {draft.source: draft for draft in drafts if draft.kind == "commit"}
        task = await generator.task(of_commits[own], subject, box)
        assert isinstance(task, RepositoryTask)
        assert task.category == category
        assert isinstance(await generator.task(of_commits[other], subject, box), Rejected)


async def test_programs_of_quixbugs_are_tasks_with_their_own_tests(box: Sandbox) -> None:
    found = list(read_foreign("quixbugs", QUIXBUGS, environment="0" * 16))
    assert [each.task.source for each in found] == ["bitcount", "detect_cycle", "flatten", "gcd", "is_valid_parenthesization"]
    for each in found[1:4]:
        done = await settled(each.task, each.tree, box, seconds=3.0)
        assert not isinstance(done, Rejected), done
        task, tree = done.task, each.tree
        assert (await verify(task, tree, task.right(tree).files, box)).value == 1
        assert (await verify(task, tree, task.start(tree).files, box)).value == 0


async def test_tests_that_need_a_plugin_of_pytest_are_believed_with_it_alone(box: Sandbox, tmp_path: Path) -> None:
    needed = "import pytest\n\nfrom parcels.rates import zone\n\n\n@pytest.mark.asyncio\n"
    waiting = f'{needed}async def test_it():\n    assert zone("no") == 1\n'
    root = package(tmp_path, changed={"tests/test_waiting.py": waiting})
    subject = await subject_of(root, box)
    text = subject.tree.text("parcels/rates.py")
    task = RepositoryTask(
        category=Category.BUG_FIX,
        repository="parcels",
        tree=subject.tree.digest,
        environment=subject.environment.digest,
        statement="The zone of a country is another one.",
        base={"parcels/rates.py": text.replace("country.upper()", "country")},
        reference={"parcels/rates.py": text},
        checks=Checks(fail_to_pass=("tests/test_waiting.py::test_it",)),
        source="parcels.rates:zone",
    )
    plugins = ("pytest_asyncio.plugin",)
    assert isinstance(await reference_paid(task, subject.tree, box), Rejected)
    assert await reference_paid(task, subject.tree, box, plugins=plugins) == task
    given = task.start(subject.tree)
    fooled = f"import _pytest.python\n_pytest.python.Function.runtest = lambda self: None\n{given.text('parcels/rates.py')}"
    left = given.changed({"parcels/rates.py": fooled}).files
    assert (await verify(task, subject.tree, left, box, plugins=plugins)).value == 0.0
