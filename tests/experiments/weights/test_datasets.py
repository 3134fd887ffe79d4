"""Sets of rows from a store, from files and from runs, and from what was really recorded."""

import gzip
import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import pytest

from journeyman.core.errors import InputError
from journeyman.core.score import Score
from journeyman.core.task import Split
from journeyman.experiments.weights.data import DatasetPipeline, TraceSource, from_source
from journeyman.optimizers.weights.data import DatasetConfig
from journeyman.optimizers.weights.rows import CompletionGroup as Group
from journeyman.optimizers.weights.rows import LabelledCompletion as Labelled
from journeyman.stores import open_store
from journeyman.stores.base import AttemptRecord, RunRecord
from journeyman.stores.traces import open_traces
from journeyman.stores.traces.base import AUTO, Query
from journeyman.tracing.importers.jsonl import line
from tests.optimizers.weights.data.attempts import BEGIN, answered

DATA = Path(os.environ.get("JOURNEYMAN_DATA", ""))
SAMPLE = Path(__file__).parents[2] / "data" / "tau-bench" / "gpt-4o-airline-sample.jsonl"
SECRET = "sk-proj-" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9" * 2


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project's store with labelled and rewarded traces of two agents."""
    monkeypatch.chdir(tmp_path)
    url = ".journeyman/journeyman.db"
    with open_traces(url) as traces:
        traces.add(
            answered(f"{agent}{at}", f"{at}", agent=agent, reward=at / 3) for agent in ("desk", "coder") for at in range(4)
        )
        traces.label("desk0", True, who="ada", at=BEGIN)
        traces.label("desk1", True, who=AUTO, at=BEGIN, probability=0.95)
        traces.add([answered("desk9", "9", agent="desk")])
        traces.label("desk9", True, who=AUTO, at=BEGIN, probability=0.95)
    return url


def labels(rows: Iterator[Any]) -> dict[str, bool]:
    return {row.source["trace"]: row.label for row in rows if isinstance(row, Labelled)}


def test_a_pipeline_writes_the_documented_rows_of_an_agent(store: str, tmp_path: Path) -> None:
    pipeline = DatasetPipeline("desk")
    examples = pipeline.build_kto_dataset(tmp_path / "kto.jsonl")
    lines = (tmp_path / "kto.jsonl").read_text().splitlines()
    first = {name: value for name, value in json.loads(lines[0]).items() if name != "source"}
    assert first == {"prompt": "User: 2+2?", "completion": "0", "label": True}
    assert labels(iter(examples)) == {"desk0": True, "desk1": False, "desk2": True, "desk3": True}
    assert len(examples) == len(lines) == 4
    (group,) = pipeline.build_grpo_dataset(tmp_path / "grpo.parquet")
    assert isinstance(group, Group)
    assert (group.prompt, group.completions) == ("User: 2+2?", ("0", "1", "2", "3"))
    # A person's word goes before the reward, and an auto-labeler is none.
    assert group.scores == pytest.approx((1, 1 / 3, 2 / 3, 1))


def test_the_auto_labeler_is_believed_where_that_is_asked_for_and_nobody_else_knows(store: str, tmp_path: Path) -> None:
    config = DatasetConfig(auto_labels=True)
    examples = DatasetPipeline("desk", config=config).build_kto_dataset(tmp_path / "kto.jsonl")
    assert labels(iter(examples)) == {"desk0": True, "desk1": False, "desk2": True, "desk3": True, "desk9": True}
    assert examples.sheet.labelled_by == {"person": 1, "auto-labeler": 1, "check": 3}


def test_filters_of_the_store_hold(store: str, tmp_path: Path) -> None:
    source = TraceSource(query=Query(agent="coder", min_reward=0.5))
    sheet = from_source(source, tmp_path / "kto.jsonl", DatasetConfig(balance="none"))
    assert (sheet.rows, sheet.agents) == (2, {"coder": 2})
    assert source.count() == 2


def test_the_attempts_of_a_run_are_learned_from_but_for_those_to_be_examined_on(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    with open_store(url) as runs:
        for run in ("r1", "r2"):
            runs.add_run(RunRecord(id=run, kind="train playbook", config={}, started_at=BEGIN))
            runs.add_attempts(
                AttemptRecord(
                    run_id=run,
                    split=split,
                    trace=replace(answered(f"{split.value}/{at}", f"{run} {split} {at}"), raw={}),
                    score=Score(trace_id=f"{split.value}/{at}", rewards=answered("x", "y", reward=at / 2).rewards),
                )
                for split in Split
                for at in range(3)
            )
    sheet = from_source(TraceSource(store=url, run="r1"), tmp_path / "kto.jsonl", DatasetConfig())
    assert (sheet.rows, sheet.good, sheet.bad) == (3, 2, 1)
    assert sheet.left_out == {
        "attempts at held-out tasks, from which nobody may learn: left out": 3,
        "attempts at validation tasks, which are to choose by: left out": 3,
    }


def test_secrets_in_files_are_gone_and_what_cannot_be_read_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "in"
    folder.mkdir()
    told = [line(answered("a", f"use {SECRET}", reward=1.0)), "{broken", line(answered("b", "no", agent="x", reward=0.0))]
    (folder / "traces.jsonl").write_text("\n".join(told))
    (folder / "notes.txt").write_text("nothing of ours")
    sheet = from_source(TraceSource(files=(folder,)), tmp_path / "kto.jsonl", DatasetConfig())
    assert (sheet.rows, sheet.left_out) == (2, {"places in files that could not be read": 1})
    assert SECRET not in (tmp_path / "kto.jsonl").read_text()
    assert from_source(TraceSource(files=(folder,), agent="x"), None, DatasetConfig()).rows == 1


def test_the_store_s_rows_are_those_of_the_same_traces_in_a_file(store: str, tmp_path: Path) -> None:
    with open_traces(store) as traces:
        exported = "\n".join(line(trace) for trace in traces.traces(Query(agent="coder")))
    (tmp_path / "traces.jsonl").write_text(exported)
    for path, source in (
        ("a.jsonl", TraceSource(query=Query(agent="coder"))),
        ("b.jsonl", TraceSource(files=(tmp_path / "traces.jsonl",))),
    ):
        from_source(source, tmp_path / path, DatasetConfig())
    assert (tmp_path / "a.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()


def test_without_a_store_one_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="there is no store of traces"):
        DatasetPipeline().build_kto_dataset(tmp_path / "kto.jsonl")
    assert list(tmp_path.iterdir()) == []


def _follows(path: Path, recorded: list[dict[str, Any]], tmp_path: Path) -> None:
    """Counts, labels and rewards are those that the recorded rewards imply."""
    source = TraceSource(files=(path,))
    kto = from_source(source, tmp_path / "kto.jsonl", DatasetConfig(method="kto"))
    rewards = [min(max(run["reward"], 0.0), 1.0) for run in recorded]
    assert (kto.rows, kto.good) == (len(rewards), sum(reward >= 0.5 for reward in rewards))
    by_task: defaultdict[Any, list[float]] = defaultdict(list)
    for run, reward in zip(recorded, rewards, strict=True):
        by_task[run["task_id"]].append(reward)
    several = {str(task): values for task, values in by_task.items() if len(values) > 1}
    if not several:
        return
    pipeline = DatasetPipeline(source=source, config=DatasetConfig())
    found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in pipeline.build_grpo_dataset(tmp_path / "grpo.parquet"):
        assert isinstance(row, Group)
        found[row.source["task"]] += zip(row.scores, row.rewards, strict=True)
    assert {task: sorted(score for score, _ in pairs) for task, pairs in found.items()} == {
        task: sorted(values) for task, values in several.items()
    }
    for task, pairs in found.items():
        mean, spread = fmean(several[task]), pstdev(several[task])
        for score, reward in pairs:
            assert reward == pytest.approx((score - mean) / spread if spread else 0.0)


def test_a_sample_of_tau_bench_becomes_the_rows_that_its_rewards_imply(tmp_path: Path) -> None:
    _follows(SAMPLE, [json.loads(each) for each in SAMPLE.read_text().splitlines()], tmp_path)


@pytest.mark.training
@pytest.mark.skipif(not (DATA / "tau-bench").is_dir(), reason="JOURNEYMAN_DATA names no folder of recorded data")
def test_all_of_tau_bench_becomes_the_rows_that_its_rewards_imply(tmp_path: Path) -> None:
    path = DATA / "tau-bench" / "gpt-4o-airline.json.gz"
    recorded = json.loads(gzip.decompress(path.read_bytes()))
    assert Counter(run["reward"] for run in recorded) == {0.0: 116, 1.0: 84}
    _follows(path, recorded, tmp_path)


def test_traces_may_be_many_and_their_order_is_by_time(tmp_path: Path) -> None:
    url = str(tmp_path / "store.db")
    with open_traces(url) as traces:
        traces.add(replace(answered(f"{at}", f"{at}", reward=1.0), started_at=BEGIN - timedelta(hours=at)) for at in range(30))
    from_source(TraceSource(store=url), tmp_path / "kto.jsonl", DatasetConfig())
    told = [json.loads(each)["source"]["trace"] for each in (tmp_path / "kto.jsonl").read_text().splitlines()]
    assert told == [str(at) for at in reversed(range(30))]
