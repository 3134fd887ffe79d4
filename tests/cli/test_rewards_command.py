import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from journeyman import cli
from journeyman.cli import root
from journeyman.rewards import weight_fitting
from journeyman.tracing.importers.jsonl import line
from tests.rewards.test_learned import attempts
from tests.rewards.test_weights import rows

pytestmark = pytest.mark.training


@dataclass(frozen=True)
class Run:
    code: int
    output: str


@pytest.fixture
def journeyman(capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Runs `journeyman rewards`; what it printed, on both streams."""

    def run(*arguments: object) -> Run:
        code = cli.main(["rewards", *map(str, arguments)])
        captured = capsys.readouterr()
        return Run(code, captured.out + captured.err)

    return run


def written(path: Path, found: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    found = [{"trace": json.loads(line(one.trace)), "label": one.success} for one in attempts(120)]
    return written(tmp_path / "labelled.jsonl", [dict(row) for row in found])


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    found = [
        {
            "trace_id": str(place),
            "task_id": row.group,
            "score": 0.5,
            "label": True,
            "rewards": {
                name: {"score": row.values[name], "weight": weight} for name, weight in (("good", 1.0), ("noise", 2.0))
            },
        }
        for place, row in enumerate(rows(200, 0.4))
    ]
    written(tmp_path / "labels.jsonl", [{"trace_id": str(n), "label": row.label} for n, row in enumerate(rows(200, 0.4))])
    return written(tmp_path / "scores.jsonl", found)


def test_a_reward_is_taught_from_a_file_and_scores_another(
    journeyman: Callable[..., Run], labelled: Path, tmp_path: Path
) -> None:
    out = tmp_path / "reward.json"
    result = journeyman("train", labelled, "-o", out, "--json")
    assert result.code == 0
    report = json.loads(result.output)
    assert report["auc"]["low"] > 0.5
    assert report["silent"] is None
    traces = written(tmp_path / "traces.jsonl", [json.loads(line(one.trace)) for one in attempts(4)])
    scored = CliRunner().invoke(root, ["score", str(traces), "--rewards", f"learned:{out}", "--no-cache", "--json"])
    assert json.loads(scored.output)["rewards"]["learned"]["known"] == 4


def test_labels_beside_a_trace_and_around_it_are_one(journeyman: Callable[..., Run], labelled: Path, tmp_path: Path) -> None:
    beside = written(
        tmp_path / "beside.jsonl", [{**json.loads(line(one.trace)), "success": int(one.success)} for one in attempts(120)]
    )
    made = [tmp_path / "one.json", tmp_path / "other.json"]
    for path, out in zip((labelled, beside), made, strict=True):
        assert journeyman("train", path, "-o", out).code == 0
    assert made[0].read_bytes() == made[1].read_bytes()


def test_too_few_labels_are_written_said_and_exit_1(journeyman: Callable[..., Run], tmp_path: Path) -> None:
    few = written(
        tmp_path / "few.jsonl", [{"trace": json.loads(line(one.trace)), "label": one.success} for one in attempts(10)]
    )
    result = journeyman("train", few, "-o", tmp_path / "reward.json")
    assert result.code == 1
    assert "it will not speak: taught by" in result.output
    assert (tmp_path / "reward.json").exists()


def test_every_bad_row_is_named_and_nothing_is_written(
    labelled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = json.loads(line(attempts(1)[0].trace))
    bad = written(tmp_path / "bad.jsonl", [{"trace": trace}, {"trace": trace, "label": "yes"}, {"label": True}])
    out = tmp_path / "reward.json"
    assert cli.main(["rewards", "train", str(labelled), str(bad), "-o", str(out)]) == 2
    told = capsys.readouterr().err
    assert "bad.jsonl:1" in told
    assert 'no "label"' in told
    assert 'bad.jsonl:2: label is "yes"' in told
    assert "bad.jsonl:3" in told
    assert not out.exists()


def test_a_fault_in_every_row_is_named_five_times_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = written(tmp_path / "bad.jsonl", [{"steps": 1}] * 50)
    assert cli.main(["rewards", "train", str(bad), "-o", str(tmp_path / "r.json")]) == 2
    told = capsys.readouterr().err
    assert told.count("bad.jsonl:") == 5
    assert "and 45 more" in told


def test_weights_are_fitted_to_labels_and_written_for_the_engine(
    journeyman: Callable[..., Run], scores: Path, tmp_path: Path
) -> None:
    for name in ("w.toml", "w.json"):
        out = tmp_path / name
        result = journeyman("fit", scores, "--labels", tmp_path / "labels.jsonl", "-o", out, "--json")
        assert result.code == 0
        report = json.loads(result.output)
        assert report["better"]
        assert report["gain"]["low"] > 0
        assert report["defaults"] == {"good": 1.0, "noise": 2.0}
        assert weight_fitting.load(out) == pytest.approx(report["weights"])
        assert report["weights"]["good"] > report["weights"]["noise"]


def test_nothing_is_learned_from_rows_that_are_held_out(journeyman: Callable[..., Run], scores: Path, labelled: Path) -> None:
    labels = ("--labels", scores.with_name("labels.jsonl"))
    for file, command in ((scores, ("fit", *labels)), (labelled, ("train",))):
        first, *others = file.read_text().splitlines()
        held_out = json.dumps({**json.loads(first), "split": "held_out"})
        file.write_text("\n".join([held_out, *others]))
        result = journeyman(*command, file, "-o", file.with_name("out.json"))
        assert result.code == 2
        assert f"{file}:1: held out" in result.output


def test_what_the_rewards_said_themselves_is_no_label(scores: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rewards", "fit", str(scores)]) == 2
    assert "are the rewards' own" in capsys.readouterr().err


def test_a_later_success_in_the_rows_can_be_the_target(journeyman: Callable[..., Run], tmp_path: Path) -> None:
    found = [{"task_id": row.group, "rewards": dict(row.values), "success": row.label} for row in rows(200, 0.4)]
    result = journeyman("fit", written(tmp_path / "s.jsonl", [dict(row) for row in found]), "--target", "success")
    assert result.code == 0
    assert "agreement on held-out tasks" in result.output


def test_weights_that_are_not_better_exit_1_and_the_defaults_are_written(
    journeyman: Callable[..., Run], tmp_path: Path
) -> None:
    found = [{"task_id": row.group, "rewards": dict(row.values), "success": row.label} for row in rows(120, 0.0)]
    out = tmp_path / "w.toml"
    result = journeyman("fit", written(tmp_path / "s.jsonl", [dict(row) for row in found]), "--target", "success", "-o", out)
    assert result.code == 1
    assert "the defaults stay" in result.output
    assert set(weight_fitting.load(out).values()) == {1.0}


def test_a_judge_is_held_against_labels(journeyman: Callable[..., Run], tmp_path: Path) -> None:
    found: list[dict[str, object]] = [{"value": 0.9 if n % 3 else 0.2, "label": bool(n % 3), "task_id": n} for n in range(60)]
    path = written(tmp_path / "opinions.jsonl", [*found, {"value": None, "label": True}])
    result = journeyman("judge", path, "--json")
    assert result.code == 0
    report = json.loads(result.output)
    assert report["agreement"]["value"] == 1.0
    assert report["useless"] == 1
    short = written(tmp_path / "short.jsonl", found[:20])
    result = journeyman("judge", short)
    assert result.code == 1
    assert "it may not weigh in: 20 labels" in result.output


def test_the_list_names_every_reward_with_its_weight(journeyman: Callable[..., Run]) -> None:
    result = journeyman("list", "--json")
    found = json.loads(result.output)
    assert {"code_execution", "tool_success", "learned:FILE", "development"} <= {row["name"] for row in found["rewards"]}
    assert sum(row["weight"] for row in found["development"]) == pytest.approx(1.05)
    assert all(row["what"] for rows in found.values() for row in rows)
