"""`journeyman evaluate agent` on HumanEval, MBPP and BFCL, and `evaluate releases` over what a slot served, walked."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from journeyman import Playbook
from journeyman.cli import main
from journeyman.core.playbook import Bullet
from journeyman.io.jsonl import open_maybe_compressed
from journeyman.optimizers.playbook import files
from journeyman.stores import RunState, open_store
from tests.support.llm_server import Answer, completion, error, serving

pytestmark = pytest.mark.service

SAMPLES = Path(__file__).parents[1] / "data"
BFCL = SAMPLES / "bfcl"
EASY = ["--min-tasks", "1"]
RECORDED = [json.loads(line) for line in (BFCL / "sample.jsonl").read_text().splitlines()]
DATA = os.environ.get("JOURNEYMAN_DATA", "")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs `journeyman evaluate`; the object that it printed, and all that was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JOURNEYMAN_DATA", raising=False)

    def run(*arguments: str, code: int = 0) -> tuple[Mapping[str, Any], str]:
        found = main(["evaluate", *arguments, "--json"])
        out, err = capfd.readouterr()
        assert found == code, err
        return json.loads(out.splitlines()[-1]) if out else {}, err

    return run


def calling(result: Any) -> Answer:
    """A reply with the calls of a recorded result; a text in their place is what the model said instead."""
    pairs = [pair for call in result if isinstance(call, dict) for pair in call.items()]
    if not pairs:
        return completion(str(result))
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": name.replace(".", "_"), "arguments": arguments}}
        for at, (name, arguments) in enumerate(pairs)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    return completion(None, choices=[{"index": 0, "message": message, "finish_reason": "tool_calls"}])


@pytest.mark.parametrize("model", sorted({row["model"] for row in RECORDED if "model" in row}))
def test_a_model_s_recorded_calls_get_the_leaderboard_s_verdicts_by_way_of_the_command(told: Any, model: str) -> None:
    recorded = {row["id"]: row for row in RECORDED if row.get("model") == model}
    asked = {row["question"][0][0]["content"]: row["id"] for row in lines(BFCL / "BFCL_v4_simple_python.jsonl")}
    with serving() as server:
        server.default = lambda body: calling(recorded[asked[body["messages"][-1]["content"]]]["result"])
        path = str(BFCL / "BFCL_v4_simple_python.jsonl")
        found, _ = told("agent", "--tasks", path, "--agent", f"openai:m@{server.url}", *EASY, code=gate(recorded))
        (tool,) = server.bodies[0]["tools"]
        assert tool["function"]["parameters"]["type"] == "object"
    right = [row["valid"] for row in recorded.values()]
    assert (found["tasks"], found["unknown"]) == (len(right), 0)
    assert found["candidate"] == pytest.approx(sum(right) / len(right))
    with open_store(".journeyman/journeyman.db", make=False) as store:
        verdicts = {
            each.trace.task_id: each.score.total for each in store.attempts(run_id=found["run"]) if "/candidate/" in each.id
        }
    assert verdicts == {id: float(row["valid"]) for id, row in recorded.items()}


def gate(recorded: Mapping[str, Any]) -> int:
    """What is said of eight tasks against an agent that calls nothing."""
    return 0 if sum(row["valid"] for row in recorded.values()) > 4 else 1


def lines(path: Path) -> list[dict[str, Any]]:
    with open_maybe_compressed(path) as file:
        return [json.loads(line) for line in file]


def right_call(body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Of a request, by the possible answers."""
    asked = {row["question"][0][0]["content"]: row["id"] for row in lines(BFCL / "BFCL_v4_simple_python.jsonl")}
    right = {row["id"]: row["ground_truth"] for row in lines(BFCL / "possible_answer" / "BFCL_v4_simple_python.jsonl")}
    ((name, allowed),) = right[asked[body["messages"][-1]["content"]]][0].items()
    return name, {key: next(v for v in values if v != "") for key, values in allowed.items() if values != [""]}


@pytest.mark.skipif(not DATA, reason="set JOURNEYMAN_DATA to the folder of the data sets")
def test_the_leaderboard_s_published_number_comes_out_of_the_command(told: Any) -> None:
    folder = Path(DATA) / "bfcl"
    results = {
        row["id"]: row["result"]
        for row in lines(folder / "v4_runs_pr/result_claude_fix__BFCL_v4_simple_python_result.jsonl.gz")
    }
    path = folder / "v4" / "BFCL_v4_simple_python.jsonl.gz"
    asked: dict[str, list[str]] = {}
    for row in lines(path):
        # Two questions are asked twice, of other functions.
        asked.setdefault(json.dumps([row["question"][0][0]["content"], row["function"][0]["description"]]), []).append(
            row["id"]
        )

    def answer(body: dict[str, Any]) -> Answer:
        key = [body["messages"][-1]["content"], body["tools"][0]["function"]["description"]]
        (id,) = asked[json.dumps(key)]
        return calling(results[id])

    with serving() as server:
        server.default = answer
        found, _ = told("agent", "--tasks", str(path), "--agent", f"openai:m@{server.url}")
    assert (found["tasks"], round(found["candidate"] * found["tasks"])) == (400, 392)


def test_what_is_right_is_right_and_the_empty_hand_only_where_nothing_is_to_be_called(told: Any) -> None:
    found, _ = told("agent", "--tasks", str(BFCL), "--agent", "reference", *EASY)
    by = {each["category"]: (each["baseline"], each["candidate"]) for each in found["categories"]}
    assert by == {
        "irrelevance": (1.0, 1.0), "live_parallel_multiple": (0.0, 1.0), "parallel": (0.0, 1.0), "simple_python": (0.0, 1.0),
    }  # fmt: skip


@pytest.mark.parametrize("name", ["HumanEval.jsonl", "mbpp.jsonl"])
def test_programs_are_run_and_what_their_authors_wrote_passes(told: Any, name: str) -> None:
    # Four tasks show nothing to a gate, whoever attempts them.
    found, _ = told("agent", "--tasks", str(SAMPLES / "code" / name), "--agent", "reference", *EASY, code=1)
    assert (found["baseline"], found["candidate"], found["unknown"]) == (0.0, 1.0, 0)


def test_a_benchmark_is_found_by_its_name_where_the_data_lie_and_else_it_is_said_how(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, said = told("agent", "--tasks", "humaneval", "--agent", "reference", code=2)
    assert "the file of humaneval is not here: name it, as in --tasks HumanEval.jsonl.gz, or set JOURNEYMAN_DATA" in said
    monkeypatch.setenv("JOURNEYMAN_DATA", str(SAMPLES))
    found, _ = told("agent", "--tasks", "bfcl", "--agent", "reference", "--num-examples", "3", *EASY, code=1)
    assert found["tasks"] == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--agent", "cmd:my_agent {workspace}"), "a command works in repositories"),
        (("--agent", "reference", "--rounds", "3"), "--rounds is for tasks of repositories"),
        (("--agent", "reference", "--workers", "local:2"), "--workers here"),
        ((), "--agent"),
        (("--agent", "journeyman"), "needs a model to ask"),
    ],
)
def test_what_means_nothing_on_a_benchmark_is_refused_in_a_sentence(told: Any, arguments: tuple[str, ...], said: str) -> None:
    _, err = told("agent", "--tasks", str(BFCL), *arguments, code=2)
    assert said in err


def test_a_row_of_several_turns_or_without_its_right_calls_is_named_with_its_line(told: Any) -> None:
    row = lines(BFCL / "BFCL_v4_simple_python.jsonl")[0]
    turns = {**row, "id": "multi_turn_base_0", "question": row["question"] * 2}
    Path("f.jsonl").write_text(f"{json.dumps(turns)}\n{json.dumps(row)}\n")
    _, said = told("agent", "--tasks", "f.jsonl", "--agent", "reference", code=2)
    assert "f.jsonl:1: question must be one turn" in said
    assert "f.jsonl:2: no ground_truth of calls" in said


def test_a_model_without_tools_writes_its_calls_and_they_are_judged_alike(told: Any) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        if "tools" in body:
            return error(400, "this model does not support tools")
        assert '"parameters"' in body["messages"][0]["content"]
        name, arguments = right_call(body)
        return completion(f"I would call:\n```json\n{json.dumps([{'name': name, 'arguments': arguments}])}\n```")

    with serving() as server:
        server.default = answer
        path = str(BFCL / "BFCL_v4_simple_python.jsonl")
        found, _ = told("agent", "--tasks", path, "--agent", f"openai:m@{server.url}", *EASY)
    assert found["candidate"] == 1.0


def test_releases_of_a_slot_stand_in_one_table_and_nothing_is_measured_twice(
    told: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = "Call every function twice."
    for name, content in (("harm.json", rule), ("good.json", "Write amounts in cents.")):
        files.save(Playbook(bullets=(Bullet(id="b-1", content=content, domain="oslo"),)), name)
    for name in ("good.json", "harm.json"):
        where = ["--agent", "desk", "--domain", "oslo", "--share", "0.5", "--force", "--reason", "to see"]
        assert main(["releases", "start", name, *where]) == 0
        assert main(["releases", "promote", "context:desk/oslo", "--reason", "to see"]) == 0
        assert main(["releases", "close", "context:desk/oslo", "--reason", "to see"]) == 0
    capfd.readouterr()

    def answer(body: dict[str, Any]) -> Answer:
        name, arguments = right_call(body)
        result = [{name: json.dumps(arguments)}]
        return calling(result * 2 if rule in body["messages"][0]["content"] else result)

    path = str(BFCL / "BFCL_v4_simple_python.jsonl")
    with serving() as server:
        server.default = answer
        over = ["releases", "context:desk/oslo", "--tasks", path, "--model", f"openai:m@{server.url}"]
        planned, _ = told(*over, "--dry-run")
        assert (planned["attempts"], server.bodies) == (24, [])
        found, _ = told(*over)
        assert len(server.bodies) == 24
        again, _ = told(*over)
        assert len(server.bodies) == 24
        assert told(*over, "--dry-run")[0]["attempts"] == 0
        monkeypatch.setenv("COLUMNS", "200")
        assert main(["evaluate", *over]) == 0
    assert again == found
    base, good, harm = found["rows"]
    assert (base["release"], base["success"], base["gain"]) == ("base", 1.0, None)
    assert (good["success"], good["gain"], good["serving"]) == (1.0, 0.0, False)
    assert (harm["success"], harm["gain"], harm["serving"]) == (0.0, -1.0, True)
    assert 0 < good["low"] < 1.0 == good["high"]
    out = capfd.readouterr().out
    assert f"{harm['release']} (now)" in out
    assert "-1.000" in out


def test_a_table_that_was_killed_goes_on_with_what_was_not_attempted(told: Any, capfd: pytest.CaptureFixture[str]) -> None:
    files.save(Playbook(bullets=(Bullet(id="b-1", content="Write amounts in cents.", domain="oslo"),)), "good.json")
    where = ["--domain", "oslo", "--share", "0.5", "--force", "--reason", "to see"]
    assert main(["releases", "start", "good.json", *where]) == 0
    capfd.readouterr()
    path = str(BFCL / "BFCL_v4_simple_python.jsonl")

    def answer(body: dict[str, Any]) -> Answer:
        name, arguments = right_call(body)
        return calling([{name: json.dumps(arguments)}])

    with serving() as server:
        over = ["releases", "context:*/oslo", "--tasks", path, "--model", f"openai:m@{server.url}"]
        server.default = lambda body: answer(body) if len(server.bodies) <= 3 else Answer(delay=60)
        child = subprocess.Popen([sys.executable, "-m", "journeyman", "evaluate", *over], stderr=subprocess.DEVNULL)
        try:
            assert until(lambda: kept() == 3)
        finally:
            child.kill()
            child.wait()
        server.bodies.clear()
        server.default = answer
        found, _ = told(*over)
        assert len(server.bodies) == 5 + 8
    assert [(row["tasks"], row["success"], row["since"]) for row in found["rows"]] == [(8, 1.0, None), (8, 1.0, None)]
    with open_store(".journeyman/journeyman.db", make=False) as store:
        assert [run.state for run in store.runs("evaluate agent")] == [RunState.FINISHED] * 2


def kept() -> int:
    """Attempts of models in the store."""
    with open_store(".journeyman/journeyman.db", make=False) as store:
        return sum("/candidate/" in each.id for each in store.attempts())


def until(held: Callable[[], bool]) -> bool:
    """Whether it comes to hold within half a minute."""
    for _ in range(300):
        if held():
            return True
        time.sleep(0.1)
    return False


def test_a_slot_that_served_nothing_or_chooses_among_models_is_refused(told: Any) -> None:
    with open_store(".journeyman/journeyman.db"):
        pass
    for slot, said in (("context:desk/oslo", "nothing was ever served in context:desk/oslo"), ("route", "evaluate router")):
        _, err = told("releases", slot, "--tasks", str(BFCL), "--model", "openai:m@http://127.0.0.1:9/v1", code=2)
        assert said in err
