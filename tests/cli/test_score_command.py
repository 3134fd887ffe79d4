import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.score import Reward, Score
from journeyman.core.task import Split
from journeyman.stores import AttemptRecord, RunRecord, open_store
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import Query
from journeyman.tracing.importers.jsonl import line
from tests.support.traces import done, reply, said, used

pytestmark = pytest.mark.service

SAMPLE = Path(__file__).parents[1] / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scored(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> dict[str, Any]:
    assert main(["score", *arguments, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["score", *arguments]) == 2
    return capsys.readouterr().err


def test_a_file_of_traces_is_scored_and_the_table_counts_the_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", str(SAMPLE), "--rewards", "tool-success, task_completion"]) == 0
    out = capsys.readouterr().out
    assert "task_completion" in out
    assert "4 traces: " in out
    found = scored(capsys, str(SAMPLE))
    completed = found["rewards"]["task_completion"]
    assert (completed["mean"], completed["known"]) == (0.5, 2), "of two there is no more to see than replies"
    unknown = {"mean": None, "known": 0, "unknown": 4, "weight": 2.0, "unreachable": 0, "broken": 0}
    assert found["rewards"]["code_execution"] == unknown


def test_each_traces_verdicts_can_be_written_and_compared(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    scored(capsys, str(SAMPLE), "--out", "a.jsonl")
    rows = [json.loads(text) for text in (here / "a.jsonl").read_text().splitlines()]
    assert {row["trial"] for row in rows} == {0}
    assert [row["trace_id"] for row in rows] == ["13/1", "47/1", "44/3", "9/3"]
    assert rows[3]["label"] is False
    assert rows[3]["rewards"]["task_completion"]["evidence"].startswith("it broke off: StepLimit")
    assert main(["compare", "a.jsonl", "a.jsonl"]) == 1


def test_fitted_weights_count_instead_of_the_rewards_own(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "weights.toml").write_text("[rewards.weights]\ntool_success = 0.0\ntask_completion = 3.0\n")
    found = scored(capsys, str(SAMPLE), "--rewards", "tool_success,task_completion", "--weights", "weights.toml")
    assert (found["rewards"]["tool_success"]["weight"], found["rewards"]["task_completion"]["weight"]) == (0.0, 3.0)
    assert found["mean"] == found["rewards"]["task_completion"]["mean"]
    assert "nowhere.toml is not there" in refused(capsys, str(SAMPLE), "--weights", "nowhere.toml")


def test_what_was_scored_before_comes_from_the_projects_folder(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    first = scored(capsys, str(SAMPLE))
    assert (here / ".journeyman" / "scores.db").exists()
    again = scored(capsys, str(SAMPLE), "--workers", "local:2")
    assert (first["cached"], again["cached"]) == (0, 4 * 6)
    assert {**again, "seconds": 0, "cached": 0} == {**first, "seconds": 0}


def test_nothing_is_kept_when_nothing_shall_be(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    scored(capsys, str(SAMPLE), "--no-cache")
    assert list(here.iterdir()) == []


def test_the_attempts_of_a_store_are_scored(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    trace = done(used("a", "Error: no"), reply("all went well"))
    with open_store(here / "my.db") as store:
        store.add_run(RunRecord(id="r", kind="train playbook", config={}, started_at=trace.started_at))
        score = Score(trace_id=trace.id, rewards=(Reward(name="answer", value=1.0),))
        store.add_attempts([AttemptRecord(run_id="r", split=Split.TRAIN, trace=trace, score=score)])
    found = scored(capsys, "--store", "my.db", "--out", "scores.jsonl")
    assert json.loads((here / "scores.jsonl").read_text())["split"] == "train"
    assert found["rewards"]["tool_success"]["mean"] == 0.0
    assert (found["rewards"]["recorded"]["mean"], found["good"]) == (1.0, 1), "its run has found it right"


def test_what_traces_are_worth_is_kept_with_them_and_is_no_verdict_of_the_recorder(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    own = Reward(name="stars", value=0.5)
    with open_traces(here / "my.db") as store:
        store.add([replace(done(used("a", "Error: no"), reply("sorry")), rewards=(own,)), done(reply("Hello"), id="other")])
    once = scored(capsys, "--store", "my.db", "--rewards", "tool_success", "--keep")
    again = scored(capsys, "--store", "my.db", "--rewards", "tool_success", "--keep")
    assert once["kept"] == again["kept"] == 1
    assert once["rewards"] == again["rewards"]
    with open_traces(here / "my.db") as store:
        ((found, said),) = [(store.get(line.id), store.rewards(line.id)) for line in store.page(Query(max_reward=0.5)).lines]
        assert found is not None
        assert [reward.name for reward in found.rewards] == ["stars", "tool_success"]
        assert found.worth == 0.5, "a user's word goes before heuristics"
        assert [(each.reward.value, each.by.split()[0]) for each in said] == [(0.0, "journeyman")]
        assert "no" in said[0].reward.evidence


@pytest.mark.parametrize(
    ("reward", "counts"),
    [
        (Reward(name="checks", value=0.5, evidence="1 of 2 checks passed"), (0, 1)),
        (Reward(name="checks", value=1.0), (1, 0)),
        (Reward(name="checks", value=None, evidence="the checks could not be run"), (0, 0)),
        (Reward(name="reading", value=0.2), (1, 0)),
    ],
)
def test_what_a_run_has_verified_decides_what_was_good(
    capsys: pytest.CaptureFixture[str], here: Path, reward: Reward, counts: tuple[int, int]
) -> None:
    trace = done(used("a", "fine"), reply("all went well"))
    with open_store(here / "my.db") as store:
        store.add_run(RunRecord(id="r", kind="train playbook", config={}, started_at=trace.started_at))
        score = Score(trace_id=trace.id, rewards=(reward,))
        store.add_attempts([AttemptRecord(run_id="r", split=Split.TRAIN, trace=trace, score=score)])
    found = scored(capsys, "--store", "my.db", "--out", "rows.jsonl")
    assert (found["good"], found["bad"]) == counts
    recorded = json.loads((here / "rows.jsonl").read_text())["rewards"]["recorded"]
    assert recorded["score"] == (None if reward.name == "reading" else reward.value)


def test_what_was_watched_is_scored_with_what_its_recorder_found(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    seen = done(used("a", "fine"), reply("all went well"))
    judged = replace(seen, id="judged", rewards=(Reward(name="reward", value=0.0, evidence="the wrong order"),))
    (here / "journeyman.toml").write_text('[store]\nurl = "kept.db"\n')
    with open_traces("sqlite:///kept.db") as store:
        store.add([replace(seen, id="seen"), judged])
    found = scored(capsys, "--store", "--out", "scores.jsonl")
    assert (found["traces"], found["good"], found["bad"]) == (2, 1, 1)
    rows = [json.loads(row) for row in (here / "scores.jsonl").read_text().splitlines()]
    assert {row["trace_id"]: row["rewards"]["recorded"]["score"] for row in rows} == {"seen": None, "judged": 0.0}


def test_where_nothing_can_be_kept_scoring_goes_on_and_says_so(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / ".journeyman").touch()
    assert main(["score", str(SAMPLE), "--rewards", "tool_success"]) == 0
    out, err = capsys.readouterr()
    assert "4 traces: " in out
    assert "scores are not kept for the next time: " in err
    assert main(["score", str(SAMPLE), "--rewards", "tool_success", "--no-cache"]) == 0
    assert "not kept" not in capsys.readouterr().err


def test_code_is_run_where_the_options_say(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "t.jsonl").write_text(line(said("```python\nassert 2 > 1\n```")) + "\n")
    found = scored(capsys, "t.jsonl", "--unsafe-local")
    assert found["rewards"]["code_execution"]["mean"] == 1.0


def answer(here: Path, task: dict[str, Any], output: str, name: str = "output.json") -> list[str]:
    (here / "task.json").write_text(json.dumps(task))
    (here / name).write_text(output)
    return ["--task", "task.json", "--output", name, "--rewards", "format_compliance"]


@pytest.mark.parametrize(
    ("task", "output", "name", "good"),
    [
        ({"question": "6*7?", "answer": "42", "check": "numeric"}, '{"output": "So 42"}', "output.json", True),
        ({"question": "6*7?", "answer": "42"}, '"43"', "output.json", False),
        ({"question": "6*7?", "answer": "42"}, "It is 42", "output.txt", True),
        (
            {"answer": {"calls": [{"f": {"x": [1]}}]}, "check": "tool_calls"},
            json.dumps(
                {
                    "messages": [
                        {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"x": 1}'}}]},
                        {"role": "tool", "content": "fine"},
                    ]
                }
            ),
            "output.json",
            True,
        ),
        ({"answer": "1", "check": "exact"}, line(done(reply("Answer: 1"), task="task")), "output.json", True),
    ],
)
def test_one_answer_is_scored_and_the_exit_code_is_the_verdict(
    capsys: pytest.CaptureFixture[str], here: Path, task: dict[str, Any], output: str, name: str, good: bool
) -> None:
    found = scored(capsys, *answer(here, task, output, name), code=0 if good else 1)
    assert found["label"] is good
    assert found["rewards"]["answer"]["score"] == float(good)


@pytest.mark.parametrize(("code", "good"), [("return a + b", True), ("return 3", False)])
def test_a_program_is_checked_by_its_unit_tests(capsys: pytest.CaptureFixture[str], here: Path, code: str, good: bool) -> None:
    tests = {"test": "assert add(1, 2) == 3\nassert add(2, 2) == 4"}
    reply = f"```python\ndef add(a, b):\n    {code}\n```"
    arguments = answer(here, {"answer": tests, "check": "unit_tests"}, reply, "output.txt")
    found = scored(capsys, *arguments, "--unsafe-local", code=0 if good else 1)
    assert found["rewards"]["answer"]["score"] == float(good)


def test_one_answers_table_says_why(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    assert main(["score", *answer(here, {"answer": "42"}, '"43"')]) == 1
    out = capsys.readouterr().out
    assert 'expected "42", got "43"' in out
    assert out.splitlines()[-1].startswith("bad: ")


@pytest.mark.parametrize(
    ("task", "output", "said"),
    [
        ({"answer": "1", "check": "luck"}, '"x"', "no answer check 'luck'"),
        ({"answr": "1"}, '"x"', "a task has no field 'answr'"),
        ({"answer": "1"}, '{"result": 1}', "output.json: no reply in it"),
        ({"answer": "1"}, "{", "output.json is not JSON"),
        ({"answer": "1"}, '{"messages": 1}', "output.json: messages: "),
    ],
)
def test_an_answer_that_cannot_be_used_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, task: dict[str, Any], output: str, said: str
) -> None:
    message = refused(capsys, *answer(here, task, output))
    assert said in message
    assert "Traceback" not in message


def test_what_cannot_be_scored_is_one_sentence(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "bad.jsonl").write_text('{"x": 1}\n{\n')
    (here / "empty.jsonl").write_text("")
    message = refused(capsys, "bad.jsonl")
    assert "bad.jsonl:1: " in message
    assert "bad.jsonl:2: " in message
    assert "name what is to be scored" in refused(capsys)
    assert "name what is to be scored" in refused(capsys, str(SAMPLE), "--store")
    assert "needs both" in refused(capsys, "--task", "task.json")
    assert "no traces to score" in refused(capsys, "empty.jsonl")
    assert "is not there" in refused(capsys, "none.jsonl")
    assert "no reward 'luck'" in refused(capsys, str(SAMPLE), "--rewards", "luck")
    assert "no sandbox 'castle'" in refused(capsys, str(SAMPLE), "--sandbox", "castle")
    assert "no store at" in refused(capsys, "--store")
    assert "it is a folder" in refused(capsys, str(SAMPLE), "--out", str(here))


SLUGS = "def slug(title: str) -> str:\n    return '-'.join(title.lower().split())\n"
CHECKS = [
    {"name": "plain", "pytest": "from slugs import slug\ndef test_it():\n    assert slug('A b') == 'a-b'\n"},
    {"name": "nothing left", "edge": True, "pytest": "from slugs import slug\ndef test_it():\n    assert slug(' ') == 'x'\n"},
]


def test_development_work_is_scored_by_its_checks_and_not_by_what_is_said_of_it(
    capsys: pytest.CaptureFixture[str], here: Path
) -> None:
    task = {"question": "Write slugs.py", "checks": CHECKS, "development": {"bonus_threshold": 1.0}}
    (here / "task.json").write_text(json.dumps(task))
    (here / "output.json").write_text(json.dumps({"reply": "All tests pass.", "files": {"slugs.py": SLUGS}}))
    asked = ("--task", "task.json", "--output", "output.json", "--rewards", "development", "--unsafe-local")
    found = scored(capsys, *asked, code=1)
    development = found["rewards"]["development"]
    works = development["components"]["functionality"]
    assert works["score"] < 1.0
    assert development["score"] == pytest.approx(development["mean"])


SHARED = {
    "question": "Write slugs.py with slug(title)",
    "files": {"README.md": "x"},
    "checks": [
        {"name": "plain", "pytest": "from slugs import slug\ndef test_it():\n    assert slug('A b') == 'a-b'\n"},
        {"name": "starts", "shell": "python slugs.py", "edge": True},
    ],
    "development": {"weights": {"autonomy": 0}, "penalty_multiplier": 0.5, "bonus_threshold": 0.8, "profile": "V2"},
}
WRONG = "def slug(t):\n    return t\n"


@pytest.mark.parametrize("rewards", [(), pytest.param(("--rewards", "development"), marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("output", "good", "reason"),
    [
        ({"files": {"slugs.py": WRONG}}, False, "the check checks says bad: 1 of 2 checks passed; failed: plain"),
        ({"reply": "Done: it is written.", "files": {"slugs.py": WRONG}}, False, "the check checks says bad: 1 of 2"),
        ({"reply": "Done.", "files": {"slugs.py": "raise SystemExit(3)\n"}}, False, "failed: plain, starts"),
        ({"files": {"slugs.py": SLUGS}}, True, "the check checks says good"),
        ({"reply": "Done: it is written.", "output": "Done", "files": {"slugs.py": SLUGS}}, True, "the check checks says good"),
    ],
)
def test_the_checks_of_a_task_decide_and_neither_the_form_nor_a_reply(
    capsys: pytest.CaptureFixture[str], here: Path, output: dict[str, Any], good: bool, reason: str, rewards: tuple[str, ...]
) -> None:
    (here / "task.json").write_text(json.dumps(SHARED))
    (here / "output.json").write_text(json.dumps(output))
    asked = ("--task", "task.json", "--output", "output.json", *rewards)
    found = scored(capsys, *asked, "--unsafe-local", code=0 if good else 1)
    assert (found["label"], found["score"], found["decided_by"]) == (good, float(good), "check")
    assert reason in found["reason"]


@pytest.mark.parametrize(
    ("shell", "label"),
    [
        ("no-such-linter slugs.py", None),
        ("python slugs.py && no-such-linter", None),
        ("./build.sh", False),
        ("python leaves.py", False),
    ],
)
def test_a_check_whose_command_is_not_installed_is_no_verdict_and_code_cannot_pretend_it(
    capsys: pytest.CaptureFixture[str], here: Path, shell: str, label: bool | None
) -> None:
    checks = [{"name": "lint", "shell": shell}]
    (here / "task.json").write_text(json.dumps({"question": "Write slugs.py", "checks": checks}))
    leaves = "import sys\nprint('x: 1: no-such-linter: not found', file=sys.stderr)\nsys.exit(127)\n"
    (here / "output.json").write_text(json.dumps({"files": {"slugs.py": SLUGS, "leaves.py": leaves}}))
    found = scored(capsys, "--task", "task.json", "--output", "output.json", "--unsafe-local", code=1 if label is False else 0)
    assert (found["label"], found["score"]) == (label, None if label is None else 0.0)
    if label is None:
        assert "no-such-linter is not installed" in found["reason"]


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("checks", [{"name": "a"}], "check 1 needs either `shell` or `pytest`"),
        ("checks", [{"shell": "true", "edgy": True}], "checks.0.edgy"),
        ("development", {"profile": "nowhere.toml"}, "nowhere.toml"),
        ("development", {"weights": {"charm": 1.0}}, "no component is called charm"),
    ],
)
def test_a_fault_in_a_task_of_development_work_is_one_sentence(
    capsys: pytest.CaptureFixture[str], here: Path, field: str, value: Any, said: str
) -> None:
    (here / "task.json").write_text(json.dumps({"checks": CHECKS, field: value}))
    (here / "output.json").write_text(json.dumps({"files": {"slugs.py": SLUGS}}))
    assert said in refused(capsys, "--task", "task.json", "--output", "output.json")
