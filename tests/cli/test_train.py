"""`journeyman train playbook`, through the real client against a server on loopback."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeyman.cli import main
from journeyman.core.errors import ModelRefused
from journeyman.experiments import wiring
from tests.support.llm_server import KEY, Answer, LLMServer, completion, error, serving
from tests.support.pupil import REFLECTOR, RULE, Pupil, over_http, write_sums

pytestmark = pytest.mark.service

PROMISED = {
    "run_id", "finished", "playbook_size", "stage", "forced", "reason", "playbook_path", "metrics_path", "metrics",
    "evaluation",
}  # fmt: skip


@pytest.fixture(scope="module")
def running() -> Iterator[LLMServer]:
    with serving() as state:
        yield state


@pytest.fixture
def server(running: LLMServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LLMServer:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    write_sums(tmp_path / "sums.json")
    running.reset()
    running.default = over_http
    running.key = KEY
    return running


def train(server: LLMServer, *more: str) -> int:
    sizes = ["--batch-size", "5", "--output", "p.json"]
    given = ["--dataset", "custom", "--input", "sums.json", "--model", f"openai:pupil@{server.url}", *sizes]
    return main(["train", "playbook", *given, *more])


def result(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_whole_run_over_http(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(server, "--target-stage", "production", "--json") == 0
    found = result(capsys)
    assert set(found) == PROMISED
    assert (found["finished"], found["stage"], found["evaluation"]["passed"]) == (True, "production", True)
    assert found["metrics"]["roles"]["generator"]["input_tokens"] == 20 * 7
    assert found["metrics"]["roles"]["generator"]["cost"] is None, "the price is unknown, and not 0"
    reflections = [body for body in server.bodies if "response_format" in body]
    assert len(reflections) == 20
    assert reflections[0]["response_format"]["json_schema"]["strict"] is True
    assert server.most_together <= 10
    assert any(bullet["content"] == RULE for bullet in json.loads(Path("p.json").read_text())["bullets"])


def test_people_are_told_what_happens(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(server) == 0
    out, err = capsys.readouterr()
    assert "20 examples, openai:pupil" in err
    assert "5/20 examples  0% right so far" in err
    assert "bullets in p.json (shadow); metrics in metrics/offline_training_metrics.json" in out
    assert "held-out tasks: 0.0% without the playbook, 100.0% with it" in out


def faulty(every: dict[int, Answer]) -> Any:
    """The pupil, with a fault at certain requests."""
    count = 0

    def answer(body: dict[str, Any]) -> Answer:
        nonlocal count
        count += 1
        return every.get(count) or over_http(body)

    return answer


def test_a_run_comes_through_faults_in_the_middle_and_counts_them(
    server: LLMServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = error(429, "slow down", headers={"retry-after": "0.01"})
    hiccup = error(500, "oops", headers={"retry-after": "0.01"})
    server.default = faulty({2: busy, 3: hiccup, 13: hiccup, 14: busy, 23: Answer(body="<html>"), 33: completion("{")})
    assert train(server, "--json", "--no-evaluate", "--concurrency", "2") == 0
    found = result(capsys)["metrics"]
    assert found["training_summary"]["total_examples"] == 20
    broken, unusable = found["training_summary"]["failed_generations"], found["insights"]["unusable_reflections"]
    assert broken + unusable == 1, "what is no completion; the busy answers were asked again"
    assert found["training_summary"]["successful_generations"] == 20 - broken


def test_malformed_reflections_are_repaired_once_or_counted(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    def answer(body: dict[str, Any]) -> Answer:
        first = REFLECTOR in body["messages"][0]["content"] and len(body["messages"]) == 2
        hopeless = "holds 3 plums" in str(body["messages"])
        return completion('{"insights": [{"ver') if first or ("response_format" in body and hopeless) else over_http(body)

    server.default = answer
    assert train(server, "--json", "--no-evaluate") == 0
    found = result(capsys)["metrics"]
    assert found["insights"]["unusable_reflections"] == 1
    assert found["roles"]["reflector"]["calls"] == 40
    assert found["playbook"]["final_size"] > 0
    assert train(server, "--no-evaluate") == 0
    assert "1 reflection could not be used" in capsys.readouterr().out


def test_a_wrong_key_is_one_sentence_at_once_and_the_run_goes_on_with_the_right_one(
    server: LLMServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-0987654321")
    assert train(server) == 2
    err = capsys.readouterr().err
    assert "refused the key (401): set OPENAI_API_KEY" in err
    assert "go on with --resume" in err
    assert "Traceback" not in err
    assert "sk-" not in err
    assert len(server.bodies) == 5, "one batch"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert main(["train", "playbook", "--resume", "--json"]) == 0
    assert result(capsys)["metrics"]["training_summary"]["failed_generations"] == 0


def test_a_reflector_that_is_not_there_is_named(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.default = lambda body: error(404, "no such model") if body["model"] == "mentor" else over_http(body)
    assert train(server, "--reflector-model", f"openai:mentor@{server.url}") == 2
    assert "openai:mentor@" in (err := capsys.readouterr().err)
    assert "is not there (404)" in err


def test_a_dry_run_asks_no_model_and_prices_the_run(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(server, "--dry-run") == 0
    assert "unknown: a model has no known price. Nothing was sent." in capsys.readouterr().out
    listed = ["--dataset", "custom", "--input", "sums.json", "--model", "openai:gpt-5-mini", "--dry-run", "--json"]
    assert main(["train", "playbook", *listed]) == 0
    found = result(capsys)
    assert [part["role"] for part in found["parts"]] == ["generator", "reflector", "evaluation"]
    assert [part["calls"] for part in found["parts"]] == [20, 20, 80]
    assert 0 < found["cost"] < 1
    assert server.bodies == []
    assert not Path(".journeyman").exists()


def test_the_limit_on_cost_is_said_and_the_next_step_too(
    server: LLMServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: Pupil())
    priced = ["--dataset", "custom", "--input", "sums.json", "--model", "openai:gpt-5-mini", "--batch-size", "5"]
    assert main(["train", "playbook", *priced, "--max-cost", "0.015"]) == 0
    out = capsys.readouterr().out
    assert "stopped after $0.0200, at the limit of $0.015" in out
    assert "journeyman train playbook --resume custom-" in out
    assert main(["train", "playbook", "--resume", "--max-cost", "5", "--json"]) == 0
    assert result(capsys)["finished"] is True


SEARCHES = """
class Endless:
    async def optimize(self, bench):
        while True:
            await bench.attempt(bench.texts, bench.tasks[:5])

class Careful:
    async def optimize(self, bench):
        while not bench.exhausted:
            await bench.attempt(bench.texts, bench.tasks[:5])
        return {domain: ["Think twice."] for domain in bench.texts}
"""


def test_a_limit_on_cost_holds_for_any_optimizer_and_what_it_spent_counts_when_it_goes_on(
    server: LLMServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: Pupil())
    Path("searches_to_train.py").write_text(SEARCHES)
    priced = ["--dataset", "custom", "--input", "sums.json", "--model", "openai:gpt-5-mini", "--no-evaluate"]
    endless = ["train", "playbook", *priced, "--optimizer", "searches_to_train:Endless"]
    assert main([*endless, "--max-cost", "0.012", "--json"]) == 0
    first = result(capsys)
    assert (first["finished"], first["reason"].partition(",")[2]) == (
        False, " at the limit of $0.012; it can be resumed with a higher one"
    )  # fmt: skip
    spent = first["metrics"]["roles"]["generator"]["cost"]
    assert 0.012 <= spent < 0.024
    assert main(["train", "playbook", "--resume", "--max-cost", "0.03", "--json"]) == 0
    again = result(capsys)
    assert again["finished"] is False
    assert 0.03 <= again["metrics"]["roles"]["generator"]["cost"] < 0.042
    careful = ["train", "playbook", *priced, "--optimizer", "searches_to_train:Careful"]
    assert main([*careful, "--max-cost", "0.012", "--json"]) == 0
    ended = result(capsys)
    assert (ended["finished"], ended["playbook_size"]) == (True, 1)


def test_a_dry_run_of_an_optimizer_prices_what_can_be_known(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    Path("searches_to_price.py").write_text(SEARCHES)
    priced = ["--dataset", "custom", "--input", "sums.json", "--model", "openai:gpt-5-mini", "--optimizer"]
    assert main(["train", "playbook", *priced, "searches_to_price:Careful", "--dry-run", "--json"]) == 0
    estimate = result(capsys)
    assert [(part["role"], part["calls"]) for part in estimate["parts"]] == [
        ("generator", None), ("reflector", None), ("evaluation", 80)
    ]  # fmt: skip
    assert (estimate["parts"][2]["cost"] > 0, estimate["cost"]) == (True, None)
    assert main(["train", "playbook", *priced, "searches_to_price:Careful", "--dry-run"]) == 0
    assert "what searches_to_price:Careful asks of models is not known before it does" in capsys.readouterr().out
    assert main(["train", "playbook", *priced, "searches_to_price:Nobody", "--dry-run"]) == 2
    assert server.bodies == []


def test_an_evaluation_of_nothing_known_is_said_and_stops_nothing(
    server: LLMServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def line(request: Any) -> Any:
        return ModelRefused(f"{request.task_id} is too long") if request.task_id.startswith("test-") else None

    monkeypatch.setattr(wiring, "connect", lambda *_, **__: Pupil(line))
    assert train(server) == 0
    out = capsys.readouterr().out
    assert "held-out tasks: none could be compared" in out
    assert "40 of 40 tasks could not be compared" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "nowhere.json"], "nowhere.json is not there"),
        (["--batch-size", "0"], "--batch-size is 0"),
        (["--batch-size", "many"], "is not a valid integer"),
        (["--split", "test"], "test is for examining"),
        (["--output", "sums.json/p.json"], "sums.json is a file and not a folder"),
        (["--metrics-output", "."], "it is a folder"),
        (["--initial-playbook", "nowhere.json"], "nowhere.json is not there"),
        (["--initial-playbook", "sums.json"], "sums.json"),
        (["--max-cost", "0"], "--max-cost is 0.0, and must be above 0"),
        (["--max-cost", "1"], "has no known price; leave out --max-cost"),
        (["--target-stage", "canary"], "'canary' is not one of"),
        (["--embedder", "magic"], "no embedder 'magic'"),
        (["--domain", "wood"], "no tasks of domain 'wood'"),
        (["--nonsense"], "No such option"),
        (["--resume"], "--resume goes on under the settings of its run"),
        (["--resume", "other"], "--resume goes on under the settings of its run"),
    ],
)
def test_what_cannot_be_used_ends_with_2_before_a_model_is_asked(
    server: LLMServer, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert train(server, *arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert server.bodies == []
    assert not Path(".journeyman").exists()


def test_what_the_run_changed_can_be_read_from_its_journal(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(server, "--target-stage", "production") == 0
    (command,) = [line for line in capsys.readouterr().out.splitlines() if "journeyman playbook log" in line]
    assert main(["playbook", "log", command.rpartition(" ")[2]]) == 0
    assert capsys.readouterr().out


def test_a_resumed_run_is_not_priced_as_another_one(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "playbook", "--resume", "--dry-run"]) == 2
    assert "--dry-run prices a new run and --resume goes on with an old one" in capsys.readouterr().err


def test_a_dry_run_prices_the_server_that_is_asked(
    server: LLMServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [
        "train",
        "playbook",
        "--dataset",
        "custom",
        "--input",
        "sums.json",
        "--model",
        "openai:gpt-5-mini",
        "--dry-run",
        "--json",
    ]
    assert main([*listed, "--base-url", server.url]) == 0
    assert result(capsys)["cost"] is None
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    assert main(listed) == 0
    assert result(capsys)["cost"] is None
    assert main([word for word in listed if word != "--dry-run"] + ["--max-cost", "1"]) == 2
    assert "has no known price" in capsys.readouterr().err


def test_there_must_be_something_to_resume(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "playbook", "--resume"]) == 2
    assert "there is no unfinished run in" in capsys.readouterr().err
    assert main(["train", "playbook", "--resume", "other", "--max-cost", "3"]) == 2
    assert "there is no run 'other' in" in capsys.readouterr().err


def test_the_option_names_of_older_systems_work(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    older = ["--dataset=custom", "--input=sums.json", "--num_examples=5", f"--generator_model=openai:pupil@{server.url}"]
    older += [f"--reflector_model=openai:pupil@{server.url}", "--output=p.json", "--metrics_output=m.json", "--batch_size=5"]
    older += ["--similarity_threshold=0.85", "--target_stage=shadow", "--checkpoint_interval=5", "--no_checkpoints"]
    assert main(["train", "playbook", *older, "--no-evaluate", "--json"]) == 0
    assert result(capsys)["metrics_path"] == "m.json"
    assert not list(Path(".journeyman").glob("runs/*/checkpoints"))


def test_settings_of_the_project_hold_where_no_option_is_given(server: LLMServer, capsys: pytest.CaptureFixture[str]) -> None:
    Path("journeyman.toml").write_text(
        f'[models]\ngenerator = "openai:pupil"\nbase_url = "{server.url}"\nkey_env = "OPENAI_API_KEY"\n'
        "[playbook]\nbatch_size = 4\n"
    )
    assert main(["train", "playbook", "--dataset", "custom", "--input", "sums.json", "--no-evaluate", "--json"]) == 0
    run = Path(".journeyman", "runs", result(capsys)["run_id"])
    assert len(list((run / "batches").iterdir())) == 5


def test_no_secret_is_written_into_a_run(server: LLMServer) -> None:
    assert train(server, "--no-evaluate") == 0
    files = [path for path in Path().rglob("*") if path.is_file()]
    assert len(files) > 8
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


def test_a_server_that_only_a_file_names_is_not_sent_the_users_key(server: LLMServer) -> None:
    chosen = ("--model", "openai:pupil", "--dataset", "custom", "--input", "sums.json", "--no-evaluate")

    server.key = None

    def sent(key_env: str, *more: str) -> set[str]:
        server.headers.clear()
        Path("journeyman.toml").write_text(f'[models]\nbase_url = "{server.url}"\n{key_env}')
        assert main(["train", "playbook", *chosen, *more]) == 0
        return {headers["authorization"] for headers in server.headers}

    assert sent("") == {"Bearer none"}
    assert sent('key_env = "OPENAI_API_KEY"\n') == {f"Bearer {KEY}"}
    assert sent("", "--base-url", server.url) == {f"Bearer {KEY}"}
