"""`journeyman tasks`, as a team types it: from a package to a file of tasks."""

import json
from pathlib import Path

import pytest

from journeyman.cli import main
from journeyman.cli.tasks import shared_out
from journeyman.core.errors import InputError
from tests.support.repositories import package
from tests.support.wheels import without_network

SAMPLE = Path(__file__).parents[1] / "data/quixbugs"


@pytest.mark.parametrize(
    ("categories", "count", "wanted"),
    [
        ("bug_fix=30", 100, {"bug_fix": 30}),
        ("bug_fix", 7, {"bug_fix": 7}),
        (" bug_fix = 3 , mine:Own ", 10, {"bug_fix": 3, "mine:Own": 7}),
    ],
)
def test_a_number_is_shared_out_among_categories(categories: str, count: int, wanted: dict[str, int]) -> None:
    assert shared_out(categories, count) == wanted


def test_all_categories_share_a_number() -> None:
    assert sum(shared_out("", 100).values()) == 100


@pytest.mark.parametrize(
    ("categories", "said"),
    [("bugfix=3", "bug_fix may be meant"), ("bug_fix=3,bug_fix=4", "named twice"), ("bug_fix=x", "bug_fix=x")],
)
def test_a_category_that_is_none_is_named(categories: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        shared_out(categories, 10)


@pytest.mark.service
def test_the_way_from_a_package_to_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_network(monkeypatch, tmp_path / "wheels")
    root = package(tmp_path)
    monkeypatch.chdir(tmp_path)

    def typed(*words: str, code: int = 0) -> tuple[str, str]:
        assert main(["tasks", *words]) == code, capsys.readouterr().err
        return capsys.readouterr()

    built = json.loads(typed("environment", "build", str(root), "--json")[0].splitlines()[-1])
    assert (built["name"], built["passing"], built["flaky"], built["failing"]) == ("parcels", 14, [], [])
    assert any(each.startswith("pytest==") for each in built["distributions"])

    out, err = typed("generate", "--from", str(root), "--categories", "bug_fix=2")
    assert "2 of 2" in out
    assert "2 tasks in tasks.jsonl" in out
    assert "installing" not in err, "the environment is there"

    told = json.loads(typed("stats", "tasks.jsonl", "--json")[0].splitlines()[-1])
    assert told["tasks"] == told["categories"]["bug_fix"]["tasks"] == 2
    assert told["made"]["categories"]["bug_fix"]["made"] == 2

    checked = json.loads(typed("validate", "tasks.jsonl", "--json")[0].splitlines()[-1])
    assert (checked["tasks"], checked["sound"], checked["flaws"]) == (2, 2, [])
    assert sum(checked["attempts"].values()) >= 14, "seven kinds of cheats, each at each task"

    ids = json.loads(typed("show", "tasks.jsonl", "--json")[0].splitlines()[-1])["tasks"]
    shown = typed("show", "tasks.jsonl", ids[0])[0]
    assert "Something that used to work" in shown
    assert "+++" not in shown
    assert "+++ right/parcels/" in typed("show", "tasks.jsonl", ids[0], "--reference")[0]

    (root / "tests" / "test_wrong.py").write_text("def test_wrong():\n    assert 1 == 2, 'no ship today'\n")
    said = typed("environment", "build", str(root))[0]
    assert "the first that fails: tests/test_wrong.py::test_wrong: AssertionError: no ship today" in said

    assert "is there already" in typed("generate", "--from", str(root), code=2)[1]
    assert "has no task 't-nothing'" in typed("show", "tasks.jsonl", "t-nothing", code=2)[1]
    assert "no such folder" in typed("generate", "--from", "nowhere", "-o", "x.jsonl", code=2)[1]
    few = typed("generate", "--from", str(root), "--categories", "feature=900", "-o", "few.jsonl", code=1)[0]
    assert "of 900" in few
    assert not list(tmp_path.glob(".*.tried"))


@pytest.mark.service
def test_rows_that_others_wrote_become_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_network(monkeypatch, tmp_path / "wheels")
    monkeypatch.chdir(tmp_path)
    (sample,) = SAMPLE.glob("*.jsonl*")
    assert main(["tasks", "generate", "--from", "quixbugs", str(sample), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["categories"]["quixbugs"]
    assert told["made"] == told["tried"] > 0
    for words, said in (
        (["--from", "swe-smith", str(sample), "-o", "x"], "name a clone"),
        (["--from", "swebench", str(sample), "-o", "x"], "no format of tasks 'swebench'"),
        (["--from", "quixbugs", "nowhere.jsonl", "-o", "x"], "nowhere.jsonl"),
    ):
        assert main(["tasks", "generate", *words]) == 2
        assert said in capsys.readouterr().err
    assert not Path("x").exists()


def test_where_there_is_no_history_no_commits_are_asked_for_unless_they_are_named() -> None:
    assert "commits" in shared_out("", 80)
    without = shared_out("", 80, history=False)
    assert "commits" not in without
    assert sum(without.values()) == 80
    assert shared_out("commits=3", 80, history=False) == {"commits": 3}
