"""What the loop promises of a playbook: training tasks do not count, only what was examined moves, nothing is paid twice."""

import json
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from journeyman import OfflineTrainer
from journeyman.cli import root
from journeyman.core.errors import InputError, ModelError
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.release import Stage
from journeyman.core.task import Split, fingerprint
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.journal import replay
from journeyman.stores import open_store
from tests.support.offline import config, everywhere, train
from tests.support.pupil import RULE, Pupil, question, write_sums


@pytest.fixture
def pupil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pupil:
    return everywhere(monkeypatch, tmp_path)


def write_rows(path: str, numbers: Sequence[int]) -> str:
    """Questions of which nobody says what split they are in."""
    rows = [{"question": question(n), "answer": str(n + n % 13), "domain": "fruit"} for n in numbers]
    Path(path).write_text(json.dumps(rows))
    return path


def evaluate(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["evaluate", "--playbook", "playbooks/offline_trained.json", *arguments, "--json"])


def told(found: Result) -> dict[str, object]:
    said: dict[str, object] = json.loads(found.output.splitlines()[-1])
    return said


def test_a_playbook_says_what_it_was_trained_on_at_every_revision(pupil: Pupil) -> None:
    result = train(num_examples=10, evaluate=False)
    trained_on = {fingerprint(question(n)) for n in range(10)}
    assert files.load(result.playbook_path).trained_on == trained_on
    journal = Path(".journeyman", "runs", result.run_id, "journal.jsonl")
    assert [len(replay(journal, revision).trained_on) for revision in range(3)] == [0, 5, 10]
    further = OfflineTrainer(config(evaluate=False)).train(result.playbook_path)
    assert trained_on < further.playbook.trained_on == {fingerprint(question(n)) for n in range(20)}


def test_another_seed_trains_in_another_order_and_holds_out_the_same(pupil: Pupil) -> None:
    write_rows("rows.json", range(100))
    plain, other = (OfflineTrainer(config(input_path="rows.json", seed=seed)).dataset for seed in (0, 1))
    assert plain.split(Split.HELD_OUT) == other.split(Split.HELD_OUT)
    assert plain.split(Split.TRAIN) != other.split(Split.TRAIN)
    assert set(plain.split(Split.TRAIN)) == set(other.split(Split.TRAIN))


def test_an_evaluation_under_another_seed_is_of_the_same_tasks(pupil: Pupil) -> None:
    write_rows("rows.json", range(100))
    learned = train(input_path="rows.json", evaluate=False)
    trained_on = files.load(learned.playbook_path).trained_on
    pupil.requests.clear()
    found = evaluate("--dataset", "custom", "--input", "rows.json", "--model", "pupil", "--seed", "1")
    assert found.exit_code == 0, found.output
    asked = {request.text for request in pupil.requests}
    assert not any(question(n) in text for n in range(100) if fingerprint(question(n)) in trained_on for text in asked)
    assert told(found)["contaminated"] == []


def test_training_questions_named_as_held_out_are_refused(pupil: Pupil) -> None:
    train(evaluate=False)
    write_rows("same.json", range(20))
    pupil.requests.clear()
    found = evaluate("--dataset", "custom", "--held-out-input", "same.json", "--model", "pupil")
    assert isinstance(found.exception, InputError)
    assert str(found.exception).startswith("all 20 held-out tasks were trained on (")
    assert str(found.exception).endswith(" and 15 more), so they prove nothing; examine on others")
    assert pupil.requests == []


def test_what_was_trained_on_is_left_out_of_the_examination_with_its_number_and_names(pupil: Pupil) -> None:
    train(evaluate=False)
    write_rows("some.json", range(12, 60))
    found = evaluate("--dataset", "custom", "--held-out-input", "some.json", "--model", "pupil")
    assert found.exit_code == 0, found.output
    said = told(found)
    assert said["tasks"] == 40
    assert len(said["contaminated"]) == 8  # type: ignore[arg-type]
    assert "; 8 more held-out tasks were trained on and do not count: " in str(said["reason"])


def test_a_question_is_known_again_in_other_blanks_and_case(pupil: Pupil) -> None:
    assert fingerprint("How  many\nPLUMS?") == fingerprint("how many plums?") != fingerprint("how many pears?")


def test_a_start_that_was_trained_on_the_held_out_tasks_is_refused_before_anything_is_paid(pupil: Pupil) -> None:
    learned = train(evaluate=False)
    split_of = {**dict.fromkeys(range(20), "test"), **dict.fromkeys(range(100, 110), "train")}
    rows = [
        {"id": f"r-{n}", "question": question(n), "answer": str(n + n % 13), "domain": "fruit", "split": split}
        for n, split in split_of.items()
    ]
    Path("turned.json").write_text(json.dumps(rows))
    asked = len(pupil.requests)
    with pytest.raises(InputError, match="all 20 held-out tasks were trained on"):
        OfflineTrainer(config(input_path="turned.json")).train(learned.playbook_path)
    assert len(pupil.requests) == asked


def seed_of_three() -> None:
    """A playbook with a bullet of the tasks' domain, one of another domain, and one in production there."""
    own = Bullet(id="b-own", content=RULE, domain="fruit")
    other = Bullet(id="b-other", content="Say please.", domain="manners")
    proven = Bullet(id="b-proven", content="Say thanks.", domain="manners", stage=Stage.PRODUCTION)
    files.save(Playbook(bullets=(own, other, proven)), "seed.json")


def test_only_what_stood_in_a_prompt_of_the_examination_is_promoted(pupil: Pupil) -> None:
    seed_of_three()
    files.save(replace(files.load("seed.json"), bullets=files.load("seed.json").bullets[1:]), "seed.json")
    result = OfflineTrainer(config(target_stage="production")).train("seed.json")
    stages = {bullet.id: bullet.stage for bullet in result.playbook.bullets}
    assert result.stage is Stage.PRODUCTION
    assert (stages.pop("b-other"), stages.pop("b-proven")) == (Stage.SHADOW, Stage.PRODUCTION)
    assert set(stages.values()) == {Stage.PRODUCTION}
    assert result.reason.endswith("; 1 bullet that stood in no prompt of the examination stays where it was")


def test_what_was_not_examined_is_not_sent_back_either(pupil: Pupil) -> None:
    seed_of_three()
    result = OfflineTrainer(config(evaluate=False)).train("seed.json")
    assert {bullet.id: bullet.stage for bullet in result.playbook.bullets}["b-proven"] is Stage.PRODUCTION


@pytest.mark.parametrize("passes", [False, True])
def test_what_stood_in_production_stays_there_while_what_was_added_waits(pupil: Pupil, passes: bool) -> None:
    proven = Bullet(id="b-proven", content="Say thanks." if passes else RULE, domain="fruit", stage=Stage.PRODUCTION)
    files.save(Playbook(bullets=(proven,)), "seed.json")
    result = OfflineTrainer(config()).train("seed.json")
    assert result.evaluation is not None
    assert (result.evaluation.passed, "b-proven" in result.evaluation.shown) == (passes, True)
    stages = {bullet.id: bullet.stage for bullet in result.playbook.bullets}
    assert stages.pop("b-proven") is Stage.PRODUCTION
    assert set(stages.values()) == {Stage.SHADOW}


def test_sixty_questions_are_enough_for_the_gate(pupil: Pupil) -> None:
    write_rows("sixty.json", range(60))
    result = train(input_path="sixty.json")
    assert result.evaluation is not None
    assert (result.evaluation.tasks, result.evaluation.passed) == (30, True)


def test_the_interval_that_decided_stands_beside_the_plain_one(pupil: Pupil) -> None:
    first, second = train(), train(token_budget=1900)
    plain, decided = (found.evaluation for found in (first, second))
    assert plain is not None
    assert decided is not None
    assert (plain["level"], plain["chosen_among"], plain["gain_shrunk"]) == (0.95, 1, plain["gain"])
    assert (plain["decided_low"], plain["decided_high"]) == (plain["low"], plain["high"])
    assert (decided["looks"], decided["chosen_among"]) == (1, 2)
    assert decided["level"] == pytest.approx(1 - 0.05 / 4)
    assert decided["decided_low"] < decided["low"]
    assert "of the gain is left when it is shrunk for the choice among 2" in decided.reason


def test_an_evaluation_that_is_kept_is_not_paid_for_again(pupil: Pupil) -> None:
    pupil.deterministic = False
    result = train(target_stage="production")
    Path(".journeyman", "runs", result.run_id, "result.json").unlink()
    asked = len(pupil.requests)
    again = OfflineTrainer(config()).resume(result.run_id)
    assert len(pupil.requests) == asked
    assert again.evaluation is not None
    assert result.evaluation is not None
    assert again.evaluation.json() == result.evaluation.json()
    assert (again.stage, again.reason) == (result.stage, result.reason)
    with open_store(".journeyman/journeyman.db") as store:
        assert len(list(store.evaluations())) == 1


def test_a_run_whose_output_cannot_be_written_goes_on_with_another_output(pupil: Pupil) -> None:
    stopped = train(max_cost=0.015, output_playbook_path="out/p.json")
    Path("out").rename("gone")
    Path("out").write_text("a file")
    with pytest.raises(InputError, match="out is a file and not a folder"):
        OfflineTrainer(config(max_cost=5)).resume(stopped.run_id)
    ended = OfflineTrainer(config(max_cost=5, output_playbook_path="there/p.json")).resume(stopped.run_id)
    assert (ended.finished, ended.playbook_path) == (True, "there/p.json")


def test_the_command_goes_on_with_a_run_under_another_output(pupil: Pupil) -> None:
    stopped = train(max_cost=0.015)
    said = ["train", "playbook", "--resume", stopped.run_id, "--max-cost", "5", "--output", "new/p.json", "--json"]
    found = CliRunner().invoke(root, said)
    assert told(found)["playbook_path"] == "new/p.json"
    assert Path("new/p.json").exists()


def test_a_run_that_cannot_end_blocks_no_other(pupil: Pupil, caplog: pytest.LogCaptureFixture) -> None:
    good = train(max_cost=0.015)
    write_sums(Path("other.json"), train=15)
    bad = train(max_cost=0.015, input_path="other.json", output_playbook_path="other_out.json")
    assert not good.finished
    assert not bad.finished
    Path("other.json").unlink()
    ended = OfflineTrainer(config(max_cost=5)).resume()
    assert (ended.run_id, ended.finished) == (good.run_id, True)
    assert f"the run {bad.run_id} is passed over" in caplog.text


def test_a_server_that_is_not_there_is_said_before_a_run_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    model = f"openai:m@http://127.0.0.1:{port}/v1"
    write_sums(Path("sums.json"))
    with pytest.raises(ModelError, match=rf"nobody listens at http://127\.0\.0\.1:{port}/v1 \(Connection refused\)"):
        OfflineTrainer(config(generator_model=model)).train()
    assert not Path(".journeyman", "runs").exists()


def test_a_run_that_is_gone_on_with_keeps_its_own_limit_on_cost_whatever_the_projects_is(
    pupil: Pupil, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = train(max_cost=0.015)
    assert not stopped.finished
    monkeypatch.setenv("JOURNEYMAN_BUDGET__MAX_COST", "50")
    arguments = ["train", "playbook", "--resume", stopped.run_id, "--json"]
    again = CliRunner().invoke(root, arguments)
    assert again.exit_code == 0, again.output
    assert told(again)["finished"] is False, "nobody typed another limit"
    assert told(CliRunner().invoke(root, [*arguments, "--max-cost", "5"]))["finished"] is True
