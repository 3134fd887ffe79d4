"""Whole collections that others recorded: what comes in is what their owners counted and published."""

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.trace import Trace
from journeyman.tracing.base import RecordedTrace
from journeyman.tracing.importers import Problem, read

DATA = Path(os.environ.get("JOURNEYMAN_DATA", "nowhere"))
pytestmark = pytest.mark.skipif(not DATA.exists(), reason="set JOURNEYMAN_DATA to the folder of the data sets")


def traces(path: Path, problems: int = 0) -> list[Trace]:
    found = list(read(path))
    assert len([one for one in found if isinstance(one, Problem)]) == problems
    return [one.trace for one in found if isinstance(one, RecordedTrace)]


def mean(found: list[Trace]) -> float:
    """Of the known rewards."""
    known = [reward.value for trace in found for reward in trace.rewards if reward.value is not None]
    return sum(known) / len(known)


def whole(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def asked(messages: list[dict[str, Any]]) -> int:
    return sum(len(message.get("tool_calls") or ()) for message in messages)


@pytest.mark.parametrize(
    ("name", "count", "right"),
    [("gpt-4o-airline.json.gz", 200, 84), ("fork_grok-3_retail_composite_reward.json.gz", 115, 78)],
)
def test_tau_bench(name: str, count: int, right: int) -> None:
    path = DATA / "tau-bench" / name
    found, rows = traces(path), whole(path)
    assert len(found) == len({trace.id for trace in found}) == count
    assert sum(len(trace.tool_calls) for trace in found) == sum(asked(row["traj"]) for row in rows)
    assert sum(len(trace.calls) for trace in found) == sum(m["role"] == "assistant" for row in rows for m in row["traj"])
    assert sum(trace.verdict.good is True for trace in found) == right
    assert sum(trace.verdict.good is False for trace in found) == count - right


@pytest.mark.parametrize(("name", "count", "tools"), [("Airline", 19, 105), ("Retail", 69, 479)])
def test_tau_benchs_examples(name: str, count: int, tools: int) -> None:
    found = traces(DATA / "tau-bench" / f"Mock{name}DomainEnv-few_shot.jsonl.gz")
    assert (len(found), sum(len(trace.tool_calls) for trace in found)) == (count, tools)


PUBLISHED = {
    "toolorchestra_airline_gpt-5_1trial": 56.0,
    "toolorchestra_retail_gpt-5_1trial": 84.2,
    "claude-sonnet-4-5_airline_default_gpt4.1_1trials": 72.0,
    "langchain_agent_airline_2025-11-26_00-37-06": 38.0,
    "airline": 76.0,
    "ironshell_airline_gpt54_run1": 56.0,
    "ironshell_airline_opus46_run1": 70.5,
}
"""Mean reward in percent: pass^1 of the leaderboard, and of ironshell's single runs what the files themselves hold."""


@pytest.mark.parametrize("path", sorted(DATA.glob("tau2-bench/submissions/**/*.json.gz")), ids=lambda path: path.name[:40])
def test_tau2_bench(path: Path) -> None:
    found, given = traces(path), whole(path)
    simulations = given if isinstance(given, list) else given["simulations"]
    assert len(found) == len({trace.id for trace in found}) == len(simulations)
    assert sum(len(trace.tool_calls) for trace in found) == sum(asked(each.get("messages") or []) for each in simulations)
    rewards = [(each.get("reward_info") or {}).get("reward") for each in simulations]
    known = [reward for reward in rewards if reward is not None]
    assert mean(found) == pytest.approx(sum(known) / len(known))
    assert sum(not trace.rewards for trace in found) == len(rewards) - len(known)
    name = path.name.removesuffix(".json.gz")
    if name in PUBLISHED:
        assert round(100 * mean(found), 1) == PUBLISHED[name]


@pytest.mark.parametrize(
    ("path", "what"),
    [("judge", "verdicts of a judge"), ("leaderboard_submissions.jsonl.gz", "entries of a leaderboard"), ("domains", "tasks")],
)
def test_what_of_tau2_bench_is_no_trace_is_named(path: str, what: str) -> None:
    at = DATA / "tau2-bench" / path
    for file in [at] if at.is_file() else sorted(at.glob("*.gz")) or sorted(at.glob("*/tasks*")):
        (problem,) = read(file)
        assert isinstance(problem, Problem)
        assert problem.why.startswith(f"holds {what}")


def test_swe_agent() -> None:
    files = sorted((DATA / "swe-agent-trajs").glob("*.gz"))
    found = [trace for file in files for trace in traces(file)]
    assert Counter(trace.source for trace in found) == {"swe-agent": 22, "mini-swe-agent": 2}
    assert sum(len(trace.calls) for trace in found) == sum(len(trace.tool_calls) for trace in found) == 244
    assert not any(trace.rewards or trace.error for trace in found)


def test_langfuse() -> None:
    files = sorted((DATA / "langfuse-traces").glob("*.trace.json.gz"))
    for file in files:
        (trace,) = traces(file)
        observations = whole(file)["observations"]
        generations = [each for each in observations if each["type"] == "GENERATION"]
        assert 0 < len(trace.calls) <= len(generations)
        assert {call.id for call in trace.calls} <= {each["id"] for each in generations}
    assert len(files) == 18


def test_langsmith() -> None:
    files = sorted((DATA / "langsmith-runs").glob("*.json"))
    found = [traces(file)[0] for file in files]
    assert len(found) == len({trace.id for trace in found}) == 8
    assert all(len(trace.calls) == 1 and trace.reply for trace in found)
    assert {file.stem for file, trace in zip(files, found, strict=True) if trace.input_tokens is None} == {
        file.stem for file in files if "no" in file.stem and "usage" in file.stem
    }


@pytest.mark.parametrize(
    "path", sorted({*DATA.glob("inspect-logs/*.eval"), *DATA.glob("inspect-logs/*.gz")}), ids=lambda path: path.name[-40:]
)
def test_inspect(path: Path) -> None:
    found = traces(path)
    if path.suffix == ".gz":
        log = whole(path)
        assert len(found) == len(log["samples"])
        scores = log["results"]["scores"]
        recorded = scores[0]["metrics"]["accuracy"]["value"] if scores and found and found[0].rewards else None
        if recorded is not None:
            assert mean(found) == pytest.approx(recorded)
        used = log["stats"]["model_usage"]
        if (
            len(used) == 1
            and not any(score["name"].startswith("model_graded") for score in scores)
            and found
            and found[0].calls
        ):
            assert sum(trace.input_tokens or 0 for trace in found) == next(iter(used.values()))["input_tokens"]


def test_kayba() -> None:
    found = traces(DATA / "kayba-ace" / "car_bench_traces.jsonl.gz")
    assert Counter(trace.task_id.partition("_")[0] for trace in found) == {
        "base": 50,
        "hallucination": 48,
        "disambiguation": 31,
    }
    assert all(trace.rewards == () and trace.label is None for trace in found)
    with gzip.open(DATA / "kayba-ace" / "car_bench_traces.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line)["traj"] for line in file]
    assert sum(len(trace.tool_calls) for trace in found) == sum(map(asked, rows))
    assert len(traces(DATA / "kayba-ace" / "f967d602-325a-4a45-8d54-ee17484cfd96.jsonl")) == 1
    # The first line of this one begins with what somebody typed into it.
    assert len(traces(DATA / "kayba-ace" / "b3db607f-7ae8-4089-b806-44800e961672.jsonl", problems=1)) == 1


def test_agentgym_where_every_attempt_failed() -> None:
    found = traces(DATA / "agentgym-webshop" / "webshop_fncall_eval.jsonl.gz")
    assert len({trace.id for trace in found}) == len(found) == 1200
    assert (len({trace.task_id for trace in found}), mean(found)) == (200, 0)


def test_chats() -> None:
    folder = DATA / "chat-finetune"
    assert len(traces(folder / "openai_cookbook_toy_first4.jsonl")) == 4
    assert len(traces(folder / "tinker_conversations.jsonl")) == 128
