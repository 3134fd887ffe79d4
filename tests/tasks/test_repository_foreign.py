"""Tasks that others made, read from their rows; patches that are none are refused, and nothing of them is run."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.experiments.task_generation.base import Rejected, settled
from journeyman.io.jsonl import Unusable
from journeyman.rewards.repository import verify
from journeyman.tasks.repository.foreign import FORMATS, applied, read_foreign
from journeyman.tasks.repository.tree import Tree
from tests.support.repositories import FILES, committed, package
from tests.support.walled import walled

ENVIRONMENT = "0" * 16
RIGHT = FILES["parcels/rates.py"].replace("(grams - 1000) // 500 * 50", "-(-(grams - 1000) // 500) * 50")
TESTS = FILES["tests/test_rates.py"].replace("== 1050", "== 1100")
TEST = "tests/test_rates.py::test_price_by_weight"


def with_two_commits(folder: Path) -> tuple[Path, str, str]:
    """The package with a fault, and without it."""
    root = package(folder)
    before = committed(root)
    (root / "parcels/rates.py").write_text(RIGHT)
    (root / "tests/test_rates.py").write_text(TESTS)
    return root, before, committed(root, "Begun half kilograms cost as whole ones")


def difference(root: Path, one: str, other: str, path: str) -> str:
    done = subprocess.run(["git", "-C", str(root), "diff", one, other, "--", path], capture_output=True, text=True, check=True)
    return done.stdout


def row_of_bench(root: Path, before: str, after: str, **other: Any) -> dict[str, Any]:
    return {
        "instance_id": "ann__parcels-12",
        "repo": "ann/parcels",
        "base_commit": before,
        "patch": difference(root, before, after, "parcels"),
        "test_patch": difference(root, before, after, "tests"),
        "problem_statement": "Begun half kilograms cost nothing.",
        "FAIL_TO_PASS": json.dumps([TEST]),
        "PASS_TO_PASS": json.dumps(["tests/test_rates.py::test_a_weight_that_no_parcel_has[0]", TEST]),
        "created_at": "2026-03-01T10:00:00Z",
        **other,
    }


def row_of_smith(root: Path, before: str, after: str) -> dict[str, Any]:
    return {
        "instance_id": "ann__parcels.lm_modify__1",
        "repo": "swesmith/ann__parcels.1234",
        "patch": difference(root, after, before, "parcels"),
        "FAIL_TO_PASS": [TEST],
        "PASS_TO_PASS": ["tests/test_rates.py::test_price_by_zone"],
    }


def written(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_row_of_swe_bench_is_its_issue_and_two_patches(tmp_path: Path) -> None:
    root, before, after = with_two_commits(tmp_path)
    file = written(tmp_path / "rows.jsonl", row_of_bench(root, before, after))
    (found,) = read_foreign("swe-bench", file, environment=ENVIRONMENT, clone=root)
    task = found.task
    assert task.statement == "Begun half kilograms cost nothing."
    assert task.reference == {"parcels/rates.py": RIGHT}
    assert task.checks.tests == {"tests/test_rates.py": TESTS}
    assert task.checks.fail_to_pass == (TEST,)
    assert task.checks.pass_to_pass == ("tests/test_rates.py::test_a_weight_that_no_parcel_has",)
    assert (task.created, task.repository, task.tree) == ("2026-03-01", "parcels", found.tree.digest)
    assert found.tree.text("parcels/rates.py") == FILES["parcels/rates.py"]


def test_a_row_of_swe_smith_is_the_patch_that_broke_it(tmp_path: Path) -> None:
    root, before, after = with_two_commits(tmp_path)
    file = written(tmp_path / "rows.jsonl", row_of_smith(root, before, after))
    (found,) = read_foreign("swe-smith", file, environment=ENVIRONMENT, clone=root)
    assert found.task.base == {"parcels/rates.py": FILES["parcels/rates.py"]}
    assert found.task.reference == {"parcels/rates.py": RIGHT}
    assert "rates" not in found.task.statement


@pytest.mark.service
async def test_rows_are_believed_when_running_them_has_shown_what_they_say(tmp_path: Path) -> None:
    root, before, after = with_two_commits(tmp_path)
    bench = written(tmp_path / "bench.jsonl", row_of_bench(root, before, after))
    smith = written(tmp_path / "smith.jsonl", row_of_smith(root, before, after))
    steady = {"FAIL_TO_PASS": ["tests/test_rates.py::test_price_by_zone"], "PASS_TO_PASS": []}
    idle = written(tmp_path / "idle.jsonl", row_of_bench(root, before, after, **steady))
    async with walled() as box:
        for format, file in (("swe-bench", bench), ("swe-smith", smith)):
            (found,) = read_foreign(format, file, environment=ENVIRONMENT, clone=root)
            done = await settled(found.task, found.tree, box)
            assert not isinstance(done, Rejected), done
            task, tree = done.task, found.tree
            assert task.checks.fail_to_pass == (TEST,)
            assert (await verify(task, tree, task.right(tree).files, box)).value == 1
            assert (await verify(task, tree, task.start(tree).files, box)).value == 0
        (found,) = read_foreign("swe-bench", idle, environment=ENVIRONMENT, clone=root)
        refused = await settled(found.task, found.tree, box)
        assert isinstance(refused, Rejected)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"patch": ""}, "there is no 'patch' in it"),
        ({"patch": "nothing of a patch"}, "changes no file"),
        ({"patch": "--- a/../x.py\n+++ b/../x.py\n@@ -0,0 +1 @@\n+a\n"}, "outside of the repository"),
        ({"patch": "--- a/parcels/rates.py\n+++ b/parcels/rates.py\n@@ -1 +1 @@\n-b\n+a\n"}, "does not apply"),
        ({"FAIL_TO_PASS": "[]"}, "names no test"),
        ({"FAIL_TO_PASS": ["test_a (tests.test_rates)"]}, "not named as pytest does it"),
        ({"base_commit": "feedfeed"}, "failed"),
    ],
)
def test_a_row_that_cannot_be_used_is_said_with_its_line(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    root, before, after = with_two_commits(tmp_path)
    file = written(tmp_path / "rows.jsonl", row_of_bench(root, before, after, **changed))
    with pytest.raises(InputError, match=said):
        list(read_foreign("swe-bench", file, environment=ENVIRONMENT, clone=root))


def test_a_patch_that_makes_a_link_is_refused(tmp_path: Path) -> None:
    header = "diff --git a/x.py b/x.py\nnew file mode 120000\n--- /dev/null\n+++ b/x.py\n"
    patch = f"{header}@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"
    with pytest.raises(Unusable, match="a link"):
        applied(Tree({"a.py": b""}), patch)


def test_a_patch_is_taken_back_too() -> None:
    patch = "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    assert applied(Tree({"a.py": b"x = 1\n"}), patch) == {"a.py": "x = 2\n"}
    assert applied(Tree({"a.py": b"x = 2\n"}), patch, reverse=True) == {"a.py": "x = 1\n"}


def test_formats_that_are_none_and_rows_without_a_clone_are_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are swe-bench, swe-smith, quixbugs"):
        list(read_foreign("swe", tmp_path / "x", environment=ENVIRONMENT))
    for format in FORMATS[:2]:
        with pytest.raises(InputError, match="name a clone"):
            list(read_foreign(format, tmp_path / "x", environment=ENVIRONMENT))
    file = written(tmp_path / "rows.jsonl", {"name": "gcd"})
    with pytest.raises(InputError, match=r"rows.jsonl:1: no program of QuixBugs"):
        list(read_foreign("quixbugs", file, environment=ENVIRONMENT))
