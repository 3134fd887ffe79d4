"""`journeyman train router`, `route` and `evaluate router`, end to end on files."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.optimizers.router import decisions
from tests.support import routing

pytestmark = pytest.mark.training

SAMPLE = Path(__file__).parents[1] / "data" / "routellm"
RECORDED = [
    "--outcomes",
    str(SAMPLE / "gsm8k.jsonl.gz"),
    "--prices",
    str(SAMPLE / "prices.json"),
    "--assume-output-tokens",
    "250",
]
SUM = "How many are 12 apples plus 30 coins? Compute the sum."
VERSE = "Write verse number 7 about stars that dream of ships, with a rhyme."


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which a router was trained from the command line, and passed."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        routing.write(folder / "outcomes.jsonl", 600)
        words = ["train", "router", "--outcomes", "outcomes.jsonl", "--objective", "quality - 20*cost"]
        assert main([*words, "--target-stage", "production", "--json"]) == 0
    return folder


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_real_file_is_read_priced_and_split_without_training(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "router", *RECORDED, "--dry-run", "--json"]) == 0
    found = told(capsys)
    assert found["rows"] == 300
    rates = {each["model"]: (round(each["success"], 3), each["cost"] > 0, each["seconds"]) for each in found["workers"]}
    assert rates == {"weak": (0.647, True, None), "strong": (0.837, True, None)}
    assert not Path("routers").exists()


def test_from_a_real_file_to_an_explained_choice(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["train", "router", *RECORDED, "--objective", "quality - 20*cost", "--json"])
    trained = told(capsys)
    assert code == (0 if trained["passed"] else 1)
    assert trained["rows"]["train"] + trained["rows"]["validation"] + trained["rows"]["held_out"] == 300
    main(["evaluate", "router", *RECORDED, "--json"])
    found = told(capsys)
    assert found["requests"] == trained["rows"]["held_out"]
    assert {"router", "weak", "strong", "random", "oracle"} == set(found["sides"])
    assert found["sides"]["oracle"]["utility"] >= found["sides"]["router"]["utility"]
    assert 0 <= found["ece"] <= 1
    assert main(["route", "How many eggs are in two dozen?", "--unproven", "--explain"]) == 0
    shown = capsys.readouterr().out
    assert "weak" in shown
    assert "strong" in shown
    assert "chosen" in shown


def test_route_names_a_model_on_stdout_and_says_why_on_stderr(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert main(["route", SUM, VERSE]) == 0
    out, err = capsys.readouterr()
    assert out == "counter\npoet\n"
    assert "next is" in err


def test_requests_come_from_a_file_and_decisions_go_to_a_log(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    Path("asked.jsonl").write_text(f"{json.dumps({'request': SUM, 'type': 'sum'})}\n{json.dumps({'request': VERSE})}\n")
    Path("asked.txt").write_text(f"{SUM}\n\n{VERSE}\n")
    for name in ("asked.jsonl", "asked.txt"):
        assert main(["route", "--input", name, "--log", "log.jsonl", "--no-text", "--explore", "0.2", "--json"]) == 0
        found = told(capsys)
        assert [each["request"] for each in found["choices"]] == [SUM, VERSE]
        assert found["proven"] is True
    logged = decisions.read(Path("log.jsonl"))
    assert len(logged) == 4
    assert {each.request for each in logged} == {None}


def test_a_router_is_examined_on_what_it_has_not_learned_from(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    assert main(["evaluate", "router", "--outcomes", "outcomes.jsonl", "--json"]) == 0
    again = told(capsys)
    assert 60 < again["requests"] < 200
    assert again["low"] > 0
    routing.write(Path("later.jsonl"), 300, seed=9)
    assert main(["evaluate", "router", "--outcomes", "later.jsonl", "--all"]) == 0
    shown = capsys.readouterr().out
    assert "oracle" in shown
    assert "on 300 requests" in shown
    assert "ECE" in shown


def test_too_few_held_out_requests_are_said_before_they_are_looked_at(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    routing.write(Path("few.jsonl"), 20, seed=9)
    assert main(["evaluate", "router", "--outcomes", "few.jsonl", "--all", "--json"]) == 1
    assert "20 held-out tasks, and the gate needs 30: nothing can pass" in capsys.readouterr().err


def test_the_id_of_a_router_is_enough(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project)
    main(["route", SUM, "--json"])
    id = told(capsys)["policy"]
    assert main(["route", SUM, "--policy", id[:6], "--json"]) == 0
    assert told(capsys)["policy"] == id


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["train", "router"], "nothing to learn from is named"),
        (["train", "router", "--store"], "holds no request that one model alone answered"),
        (["train", "router", "--outcomes", "bad.jsonl"], "bad.jsonl:2: success of 'a' is 7"),
        (["train", "router", "--outcomes", "one.jsonl"], "are of 1 worker"),
        (["train", "router", *RECORDED, "--objective", "joy - 3*cost"], "names 'joy'"),
        (["train", "router", *RECORDED, "--safe", "nobody"], "'nobody' is allowed, denied or safe, and no outcome of it"),
        (["train", "router", "--outcomes", "one.jsonl", "--prices", "bad.jsonl"], "prices stand there as"),
        (["route", "Add.", "--policy", "nowhere"], "no router 'nowhere' is in the store"),
        (["route"], "no request is given"),
        (["route", "Add."], "no router 'routers/trained' is in the store"),
        (["evaluate", "--seed", "1", "router", *RECORDED], "--seed stands before 'router'"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = {"request": "Add.", "model": "a", "success": 1}
    Path("one.jsonl").write_text(f"{json.dumps(line)}\n")
    Path("bad.jsonl").write_text(f"{json.dumps(line)}\n{json.dumps({**line, 'success': 7})}\n")
    assert main(arguments) == 2
    assert said in capsys.readouterr().err


def test_lines_that_cannot_be_used_are_left_out_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    routing.write(Path("outcomes.jsonl"), 50)
    with Path("outcomes.jsonl").open("a") as file:
        file.write('{"request": "Add.", "model": "counter", "success": 7}\n')
    assert main(["train", "router", "--outcomes", "outcomes.jsonl", "--skip-unusable", "--dry-run"]) == 0
    assert "left out: outcomes.jsonl:51" in capsys.readouterr().err


def test_what_is_no_text_on_stdin_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"fine\n\xff"), encoding="utf-8"))
    assert main(["route", "--input", "-"]) == 2
    assert "standard input is not UTF-8 text (byte 5)" in capsys.readouterr().err
