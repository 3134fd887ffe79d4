"""`journeyman evaluate`: the controls that must come out, and what is said when nothing can be examined."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import journeyman
from journeyman.cli import main
from journeyman.core.errors import ModelRefused
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.release import Release, Stage
from journeyman.experiments import wiring
from journeyman.models.base import Model
from journeyman.optimizers.playbook import files
from journeyman.stores import open_store
from journeyman.tasks.desk.world import SHOPS, rules
from tests.support.pupil import RULE, Pupil, write_sums

pytestmark = pytest.mark.training

PROMISED = ["tasks", "unknown", "baseline", "candidate", "gain", "low", "high", "passed", "reason"]
WEIGHTS = Path(journeyman.__file__).parent / "models" / "embedded" / "weights" / "base" / "config.json"
embedded = pytest.mark.skipif(not WEIGHTS.exists(), reason="the embedded model's weights are not installed")
DESK = ["--dataset", "desk", "--domain", "oslo", "--num-examples", "40", "--json"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sums(tmp_path / "sums.json")


@pytest.fixture
def pupil(monkeypatch: pytest.MonkeyPatch) -> Pupil:
    made = Pupil()
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: made)
    return made


@pytest.fixture(scope="module")
def desk_model() -> Model:
    pytest.importorskip("torch")
    return wiring.connect("embedded")


@pytest.fixture
def desk(desk_model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded model, loaded once."""
    monkeypatch.setattr(wiring, "connect", lambda *_, **__: desk_model)


def saved(name: str, contents: Sequence[str], domain: str = "fruit") -> str:
    bullets = tuple(Bullet(id=f"b-{n}", content=text, domain=domain) for n, text in enumerate(contents))
    files.save(Playbook(bullets=bullets), name)
    return name


def examined(*arguments: str) -> list[str]:
    return ["evaluate", "--dataset", "custom", "--input", "sums.json", *arguments]


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_a_playbook_that_helps_passes(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(examined("--playbook", saved("p.json", [RULE]), "--json")) == 0
    found = report(capsys)
    assert list(found)[: len(PROMISED)] == PROMISED
    assert (found["tasks"], found["gain"], found["passed"]) == (40, 1.0, True)
    assert found["spent"]["candidate"]["cost"] == pytest.approx(0.04)


def test_people_see_a_table_and_a_sentence(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(examined("--playbook", saved("p.json", [RULE]))) == 0
    out = capsys.readouterr().out
    assert "passed: gain +1.000 on 40 tasks" in out
    assert "$0.04" in out


def test_a_harmful_playbook_fails_and_the_tasks_it_broke_are_named(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    pupil.line = lambda request: "Answer: 1" if "Always reply with one." in request.text else None
    against = saved("good.json", [RULE])
    assert (
        main(examined("--playbook", saved("bad.json", [RULE, "Always reply with one."]), "--against", against, "--json")) == 1
    )
    found = report(capsys)
    assert len(found["broken"]) == found["losses"] == 40
    assert "it broke test-1000, test-1001" in found["reason"]


def test_a_playbook_against_itself_does_not_pass(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    same = saved("p.json", [RULE])
    assert main(examined("--playbook", same, "--against", same, "--json")) == 1
    assert report(capsys)["gain"] == 0


def test_every_look_at_the_same_tasks_is_counted(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    for number, rule in enumerate(["Be brief.", "Be kind.", "Be brief."]):
        assert main(examined("--playbook", saved(f"{number}.json", [rule]), "--json")) == 1
    looks = [json.loads(line)["looks"] for line in capsys.readouterr().out.splitlines()]
    assert looks == [0, 1, 0], "the third is the first once more"


def test_results_are_written_for_compare(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(examined("--playbook", saved("p.json", [RULE]), "--output", "out", "--json")) == 0
    found = report(capsys)
    assert main(["compare", "out/baseline.jsonl", "out/candidate.jsonl", "--json"]) == 0
    again = report(capsys)
    assert [again[name] for name in PROMISED[:7]] == [found[name] for name in PROMISED[:7]]


def test_clusters_and_cost_go_from_the_tasks_to_the_verdict_and_to_what_is_kept_of_it(
    pupil: Pupil, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(Path("sums.json").read_text())
    Path("sums.json").write_text(json.dumps([{**row, "cluster": f"shop {n % 12}"} for n, row in enumerate(rows)]))
    playbook = ["--playbook", saved("p.json", [RULE])]
    assert main(examined(*playbook, "--guardrail", "cost:5%", "--output", "out", "--json")) == 0
    found = report(capsys)
    assert "on 40 tasks in 12 clusters" in found["reason"]
    assert found["clusters"] == 12
    (cost,) = found["guardrails"]
    assert (cost["change"], cost["passed"]) == (pytest.approx(0), True)
    assert main(["compare", "out/baseline.jsonl", "out/candidate.jsonl", "--guardrail", "tokens:5%", "--json"]) in (0, 1)
    again = report(capsys)
    assert (again["clusters"], again["low"]) == (12, found["low"])
    assert again["guardrails"][0]["unknown"] == 0
    assert main(examined(*playbook, "--min-clusters", "13", "--json")) == 1
    assert "of 12 clusters were compared" in report(capsys)["reason"]
    assert main(["evaluations", "list", "--json"]) == 0
    kept = report(capsys)["evaluations"]
    assert {each["report"]["clusters"] for each in kept} == {12}
    assert main(["evaluations", "show", kept[-1]["id"], "--json"]) == 0
    pair = report(capsys)["won"][0]
    assert pair["cluster"].startswith("shop ")
    assert pair["metrics"]["cost"] == [0.001, 0.001]


def test_a_repeat_that_contradicts_a_pass_marks_its_release(
    pupil: Pupil, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    playbook = ["--playbook", saved("p.json", [RULE])]
    assert main(examined(*playbook, "--json")) == 0
    with open_store(".journeyman/journeyman.db") as store:
        (passed,) = store.evaluations()
        store.add_release(Release.begin(passed.candidate_id, Stage.PRODUCTION, "it passed", passed.at))
    assert main(["releases", "show", passed.candidate_id, "--json"]) == 0
    assert report(capsys)["release"]["contradicted_by"] is None
    pupil.line = lambda request: "Answer: 1" if RULE in request.text else None
    assert main(examined(*playbook, "--token-budget", "500", "--json")) == 1
    assert "contradicts the one that let it pass: gain +0.000" in caplog.text
    assert main(["releases", "list", "--json"]) == 0
    (release,) = report(capsys)["releases"]
    assert (release["stage"], release["contradicted_by"].rpartition("/")[2]) == ("production", "2")
    assert main(["releases", "show", passed.candidate_id]) == 0
    assert "is contradicted by evaluate/" in capsys.readouterr().err


def test_a_task_without_a_cluster_among_others_is_refused_before_a_model_is_asked(
    pupil: Pupil, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = json.loads(Path("sums.json").read_text())
    Path("sums.json").write_text(json.dumps([{**row, "cluster": "one"} if n else row for n, row in enumerate(rows)]))
    assert main(examined("--playbook", saved("p.json", [RULE]))) == 2
    assert "no cluster, though other rows have one" in capsys.readouterr().err
    assert not pupil.requests


def test_a_refused_key_is_an_error_and_no_verdict(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    pupil.line = lambda _: ModelRefused("openai:x refused the key (401): set OPENAI_API_KEY")
    assert main(examined("--playbook", saved("p.json", [RULE]))) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "refused the key (401): set OPENAI_API_KEY. Nothing could be examined" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--playbook", "nowhere.json"], "nowhere.json is not there"),
        (["--playbook", "sums.json"], "sums.json"),
        (["--playbook", "none", "--against", "nowhere.json"], "nowhere.json is not there"),
        (["--playbook", "none", "--input", "nowhere.json"], "nowhere.json is not there"),
        (["--playbook", "none", "--output", "sums.json"], "sums.json is a file and not a folder"),
        (["--playbook", "none", "--attempts-per-task", "0"], "attempts-per-task is 0"),
        (["--playbook", "none", "--alpha", "1"], "alpha is 1"),
        (["--playbook", "none", "--split", "train"], "'train' is not one of"),
        (["--playbook", "none", "--input", "train.json"], "has no held-out tasks to examine on"),
    ],
)
def test_what_cannot_be_used_ends_with_2_before_a_model_is_asked(
    pupil: Pupil, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    write_sums(Path("train.json"), 5, 0)
    assert main(examined(*arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert pupil.requests == []


@embedded
def test_at_the_desk_an_empty_playbook_against_itself_does_not_pass(desk: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--playbook", "none", "--against", "none", *DESK]) == 1
    found = report(capsys)
    assert (found["tasks"], found["unknown"], found["gain"], found["wins"], found["losses"]) == (40, 0, 0.0, 0, 0)


@embedded
def test_at_the_desk_another_shops_rules_in_place_of_its_own_do_not_pass(
    desk: None, capsys: pytest.CaptureFixture[str]
) -> None:
    own = saved("own.json", rules(SHOPS["oslo"]), "oslo")
    other = saved("other.json", rules(SHOPS["cairo"]), "oslo")
    assert main(["evaluate", "--playbook", other, "--against", own, *DESK]) == 1
    found = report(capsys)
    if found["losses"]:
        assert f"it broke {found['broken'][0]}" in found["reason"]


def test_bullets_of_another_domain_are_not_shown_and_that_is_said(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    other = saved("p.json", [RULE], domain="vegetables")
    assert main(examined("--playbook", other, "--json")) == 1
    said = capsys.readouterr()
    assert "its 1 bullet is of domain vegetables and the tasks of fruit, so none is shown; --any-domain" in said.err
    assert main(examined("--playbook", other, "--any-domain", "--json")) == 0
    assert report(capsys)["gain"] == 1.0


def test_task_ids_that_look_like_markup_are_printed_as_they_are(pupil: Pupil, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{**row, "id": f"t[/b]{n}"} for n, row in enumerate(json.loads(Path("sums.json").read_text()))]
    Path("sums.json").write_text(json.dumps(rows))
    right, wrong = saved("right.json", [RULE]), saved("wrong.json", ["Be brief."])
    assert main(examined("--playbook", wrong, "--against", right)) == 1
    assert "t[/b]" in capsys.readouterr().out
