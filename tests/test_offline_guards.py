"""What stops a run of training, what is refused before it begins, and what it never writes over."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from journeyman import OfflineTrainer, PlaybookStage
from journeyman.core.errors import InputError, JourneymanError, MissingExtra, ModelBusy, ModelError
from journeyman.core.installation import installing
from journeyman.core.playbook import Bullet, Playbook
from journeyman.experiments import wiring
from journeyman.experiments.playbook import cost_estimate
from journeyman.optimizers.playbook import files
from journeyman.optimizers.playbook.journal import replay
from tests.support.offline import config, everywhere, learned_nothing, playbook, train
from tests.support.pupil import Pupil, question, reflecting, write_sums


@pytest.fixture
def pupil(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pupil:
    return everywhere(monkeypatch, tmp_path)


@pytest.mark.parametrize("setting", ["base_url", "generator_model", "reflector_model"])
@pytest.mark.parametrize(
    "url", ["http://me:hush@host/v1", "http://hush@host", "http://host/v1?api-key=hush", "HTTP://host#hush"]
)
def test_a_secret_in_a_url_is_refused_and_not_repeated(pupil: Pupil, setting: str, url: str) -> None:
    with pytest.raises(InputError, match=f"^{setting} must name a server by its bare URL, .* OPENAI_API_KEY$") as caught:
        train(**{setting: url if setting == "base_url" else f"openai:x@{url}"})
    assert "hush" not in str(caught.value)
    assert not Path(".journeyman").exists()


@pytest.mark.parametrize("url", ["http://me:hush@127.0.0.1/v1", "http://127.0.0.1/v1?api-key=hush"])
def test_a_secret_in_the_environments_url_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    write_sums(tmp_path / "sums.json")
    with pytest.raises(InputError, match=r"^OPENAI_BASE_URL must name a server by its bare URL") as caught:
        train()
    assert "hush" not in str(caught.value)
    assert not Path(".journeyman").exists()


def test_the_price_is_that_of_the_server_in_the_environment(pupil: Pupil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(InputError, match="openai:gpt-5-mini has no known price"):
        train(max_cost=1)
    assert cost_estimate.report(OfflineTrainer(config()).work())["cost"] is None
    assert wiring.price("openai:gpt-5-mini@https://api.openai.com/v1") is not None
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.openai.com/v1/")
    assert cost_estimate.report(OfflineTrainer(config()).work())["cost"] > 0
    assert cost_estimate.report(OfflineTrainer(config(base_url="http://127.0.0.1:9/v1")).work())["cost"] is None
    assert wiring.price("embedded") is not None


def test_an_unknown_cost_stops_a_limited_run_until_the_limit_is_taken_off(pupil: Pupil) -> None:
    pupil.cost = None
    stopped = train(max_cost=5, evaluate=False)
    assert not stopped.finished
    assert stopped.reason == (
        "stopped after at least $0.0000: what 10 of the calls cost is not known, so the limit of $5 cannot be kept; "
        "it can be resumed without one (--max-cost inf)"
    )
    assert not OfflineTrainer(config(max_cost=9)).resume().finished
    assert len(pupil.attempted) == 5, "a higher limit can be kept no better"
    assert OfflineTrainer(config(max_cost=math.inf)).resume().finished


def test_nothing_takes_the_place_of_a_playbook(pupil: Pupil) -> None:
    train(output_playbook_path="mine.json")
    before = Path("mine.json").read_bytes()
    pupil.line = lambda request: "{" if reflecting(request) else None
    empty = train(output_playbook_path="mine.json")
    assert empty.finished
    assert Path("mine.json").read_bytes() == before
    assert (empty.playbook_path, playbook(empty.playbook_path)["bullets"]) == ("mine.empty.json", [])
    assert empty.reason.endswith("; nothing was learned, so mine.json was left as it was")
    assert train(output_playbook_path="mine.empty.json").playbook_path == "mine.empty.json"
    Path("notes.json").write_text("not a playbook")
    assert train(output_playbook_path="notes.json").playbook_path == "notes.empty.json"


def test_a_dead_server_leaves_a_run_to_go_on_with_and_no_output(pupil: Pupil) -> None:
    pupil.line = lambda _: ModelBusy("openai:x could not be reached: is the server running?")
    with pytest.raises(ModelError, match="is the server running"):
        train()
    assert not Path("playbooks").exists()
    pupil.line = lambda _: None
    assert OfflineTrainer(config()).resume().finished


@pytest.mark.parametrize("domain", ["math/algebra", "../../x", "a b\0c", "." * 300, "x" * 300])
def test_a_domain_of_any_name_gets_one_folder_among_the_runs(pupil: Pupil, domain: str) -> None:
    row = {"question": question(5000), "answer": "5008", "domain": domain}
    Path("odd.json").write_text(json.dumps([row]))
    run = train(input_path="odd.json", domain=domain, evaluate=False, held_out_path="sums.json").run_id
    assert [path.name for path in Path(".journeyman", "runs").iterdir()] == [run]
    assert (Path(".journeyman", "runs", run) / "result.json").exists()


@pytest.mark.parametrize("name", ["../runs", "..", "/etc", "a/b", "./"])
def test_what_is_no_name_of_a_run_is_refused(pupil: Pupil, name: str) -> None:
    with pytest.raises(InputError, match=r"is no name of a run; name a folder in .journeyman/runs"):
        OfflineTrainer(config()).resume(name)


def test_a_locked_bullet_goes_where_the_gate_says(pupil: Pupil) -> None:
    kept = Bullet(id="b-own", content="Be brief.", domain="fruit", locked=True)
    files.save(Playbook(bullets=(kept,)), "seed.json")
    OfflineTrainer(config(target_stage="production")).train("seed.json")
    assert {bullet["stage"] for bullet in playbook()["bullets"]} == {"production"}
    learned_nothing(pupil)
    files.save(Playbook(bullets=(replace(kept, stage=PlaybookStage.PRODUCTION),)), "seed.json")
    OfflineTrainer(config()).train("seed.json")
    stages = {bullet["id"]: bullet["stage"] for bullet in playbook()["bullets"]}
    assert stages.pop("b-own") == "production", "that what was added failed is no word against it"
    assert set(stages.values()) == {"shadow"}


def test_the_output_is_the_last_revision_of_the_runs_journal(pupil: Pupil, monkeypatch: pytest.MonkeyPatch) -> None:
    result = train(target_stage="production")
    folder = Path(".journeyman", "runs", result.run_id)
    assert replay(folder / "journal.jsonl").bullets == files.load(result.playbook_path).bullets
    lines, written = (folder / "journal.jsonl").read_bytes(), Path(result.playbook_path).read_bytes()
    (folder / "result.json").unlink()
    asked = len(pupil.attempted)
    again = OfflineTrainer(config()).resume()
    assert (again.run_id, again.stage) == (result.run_id, PlaybookStage.PRODUCTION)
    assert len(pupil.attempted) == asked, "a kill before the result: the examination that is kept is not held again"
    assert (folder / "journal.jsonl").read_bytes() == lines
    assert Path(result.playbook_path).read_bytes() == written


def test_what_the_embedded_model_needs_is_looked_for_first(pupil: Pupil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=re.escape(f"torch is missing: {installing('embedded')}")):
        train(generator_model="embedded")
    assert not Path(".journeyman").exists()


def test_what_is_wrong_with_the_data_is_said_before_a_missing_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match=r"sums.json is not there"):
        train()
    with pytest.raises(JourneymanError, match="no data set 'nope'"):
        train(dataset_name="nope")


def test_a_result_is_a_mapping_where_programs_take_it_for_one(pupil: Pupil) -> None:
    result = train(num_examples=5)
    as_dict = dict(result)
    assert as_dict.keys() == result.json().keys()
    assert as_dict["metrics"] is result["metrics"] is result.metrics
    assert result["metrics"]["training_summary"]["total_examples"] == result["metrics"].total_examples == 5
    for name in ("json", "keys", "nonsense", "__class__"):
        with pytest.raises(KeyError):
            result[name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_examples": "many"}, "num_examples is 'many', and must be a whole number; restore the file"),
        ({"base_url": "http://me:hush@host"}, "base_url must name a server by its bare URL"),
        ({"tasks": 3}, "is not what was written"),
        ({"name": None}, "is not what was written"),
    ],
)
def test_a_settings_file_that_was_edited_by_hand_is_named(pupil: Pupil, change: dict[str, Any], message: str) -> None:
    run = train(max_cost=0.001)
    path = Path(".journeyman", "runs", run.run_id, "config.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(JourneymanError, match=r"config\.json") as caught:
        OfflineTrainer(config()).resume()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
