"""Which signals in a trace say whether it went well? Held against the recorded rewards of four sets, and four recorded judges.

    JOURNEYMAN_DATA=data python -m benchmarks.bench_signals [--shuffles 50] [--json]

1. The AUC for failure of each signal on tau-bench (airline, and a shop of a fork) and tau2-bench (airline, shop), read by the
   project's own importers, beside those that another program found on the raw files (`EXPECTED`). A trace holds what a model
   was sent: what a user says after the model's last reply ("No, thanks. ###STOP###") is in no trace. The second figure of a
   signal of words is with that last word; the first is what live traces show.
2. The signals whose side of one half is not the same over the sets.
3. tau2-bench's four judge prompts on 50 airline runs: which of them may vote.
4. Rewards of the first set dealt out anew: how often a signal's vote passes its examination then.

Ends with 1 where an AUC is off by more than .01, fewer than three judges are refused, or more than 2 of 50 shuffles pass.
"""

import argparse
import gzip
import json
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from journeyman.core.reward import Reward, Source
from journeyman.core.trace import Trace
from journeyman.rewards.signal_examination import JudgeFinding, SignalReport, may_vote, measure, refusal
from journeyman.rewards.signals import truth_of
from journeyman.tracing.base import NO_TIME
from journeyman.tracing.evidence import AttemptEvidence, evidence_of
from journeyman.tracing.importers import Problem, read

OTHERS = ("adaptive", "cascata", "ironforge")
"""Files of tau2-bench's submissions that choose among several attempts: no agent's own runs."""
JUDGES = ("customer_outcome_v1", "policy_chain_of_thought_v1", "policy_conversation_v1", "quick_triage_v1")
WORDS = frozenset({"user_corrects", "frustration", "no_thanks", "user_repeats"})
TOLERANCE = 0.01
EXPECTED: Mapping[str, Mapping[str, float]] = {
    "tau airline": {
        "tool_errors": 0.57, "unrepaired_errors": 0.50, "user_corrects": 0.42, "transfer": 0.35, "refusal_words": 0.37,
        "frustration": 0.44, "no_thanks": 0.47, "user_repeats": 0.52, "messages": 0.68, "same_call_twice": 0.55,
        "disagrees": 0.80, "differs_from_right": 0.97,
    },
    "tau retail": {
        "tool_errors": 0.64, "unrepaired_errors": 0.62, "user_corrects": 0.46, "transfer": 0.65, "refusal_words": 0.66,
        "frustration": 0.51, "no_thanks": 0.54, "user_repeats": 0.50, "messages": 0.57, "same_call_twice": 0.55,
    },
    "tau2 airline": {
        "tool_errors": 0.54, "unrepaired_errors": 0.53, "user_corrects": 0.43, "transfer": 0.46, "refusal_words": 0.52,
        "frustration": 0.53, "no_thanks": 0.50, "user_repeats": 0.63, "messages": 0.73, "same_call_twice": 0.57,
        "disagrees": 0.80, "differs_from_right": 0.81,
    },
    "tau2 retail": {
        "tool_errors": 0.54, "unrepaired_errors": 0.54, "user_corrects": 0.51, "transfer": 0.54, "refusal_words": 0.51,
        "frustration": 0.62, "no_thanks": 0.57, "user_repeats": 0.57, "messages": 0.51, "same_call_twice": 0.45,
    },
}  # fmt: skip


def recorded(data: Path) -> dict[str, list[tuple[Trace, str]]]:
    """The four sets, each trace with what its user said after the model's last reply."""
    tau, tau2 = data / "tau-bench", data / "tau2-bench" / "submissions"
    found = {
        "tau airline": airline(data),
        "tau retail": list(_runs(tau / "fork_grok-3_retail_composite_reward.json.gz")),
        "tau2 airline": [],
        "tau2 retail": [],
    }
    for path in sorted(tau2.rglob("*.gz")):
        if not any(word in path.name for word in OTHERS):
            for trace, last in _runs(path):
                if f"tau2 {trace.domain}" in found and truth_of(trace) is not None:
                    found[f"tau2 {trace.domain}"].append((trace, last))
    return found


def airline(data: Path) -> list[tuple[Trace, str]]:
    """The first of them alone."""
    return list(_runs(data / "tau-bench" / "gpt-4o-airline.json.gz"))


def _runs(path: Path) -> Iterator[tuple[Trace, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        whole = json.load(file)
    rows = whole["simulations"] if isinstance(whole, dict) else whole
    traces = [found for found in read(path) if not isinstance(found, Problem)]
    for row, found in zip(rows, traces, strict=True):
        yield found.trace, _last_word(row.get("traj") or row.get("messages") or [])


def _last_word(messages: Sequence[Mapping[str, Any]]) -> str:
    text = messages[-1].get("content") if messages and messages[-1].get("role") == "user" else ""
    return text if isinstance(text, str) and not text.startswith("###") else ""


def with_last_word(attempt: AttemptEvidence, last: str) -> AttemptEvidence:
    return replace(attempt, words=(*attempt.words, last)) if last else attempt


def judged(data: Path, strange: float | None) -> Sequence[JudgeFinding]:
    """What recorded judges' words are worth.

    Args:
        strange: What an answer counts for that is none of those that were asked for; `None`: it is no opinion.
    """
    said = {"pass": 1.0, "satisfied": 1.0, "fail": 0.0, "unsatisfied": 0.0}
    rewards: dict[str, list[Reward]] = {}
    tasks: dict[str, str] = {}
    for name in JUDGES:
        path = data / "tau2-bench" / "judge" / f"airline-multi-judge-full.json.summary_{name}.json.gz"
        for entry in json.loads(gzip.decompress(path.read_bytes()))["entries"]:
            id, tasks[entry["simulation_id"]] = entry["simulation_id"], entry["task_id"]
            truth = Reward(name="outcome", value=entry["tau2_reward"], source=Source.TRUTH)
            opinion = Reward(name=name, value=said.get(entry["judge_verdict"], strange), source=Source.JUDGE)
            rewards.setdefault(id, [truth]).append(opinion)
    traces = (
        Trace(id=id, task_id=tasks[id], candidate_id="base", started_at=NO_TIME, rewards=tuple(each))
        for id, each in rewards.items()
    )
    return measure(map(evidence_of, traces)).judges


def shuffled(traces: Sequence[Trace], seed: int) -> SignalReport:
    """The report where each attempt has another one's reward."""
    labels = [truth_of(trace) for trace in traces]
    random.Random(seed).shuffle(labels)
    dealt = (replace(trace, rewards=(), label=label) for trace, label in zip(traces, labels, strict=True))
    return measure(map(evidence_of, dealt), seed=seed)


def passes(report: SignalReport) -> list[str]:
    """Signals of whole sessions whose vote an examination confirms: those that fire too rarely are not examined."""
    return [each.signal.name for each in report.findings if each.votes and each.examined]


def compared(name: str, live: SignalReport, whole: SignalReport) -> Iterator[dict[str, Any]]:
    for each in live.findings:
        other = whole.finding(each.signal.name)
        expected = EXPECTED[name].get(each.signal.name)
        if each.auc is None or other is None or other.auc is None:
            continue
        used = other.auc if each.signal.name in WORDS else each.auc
        yield {
            "set": name, "signal": each.signal.name, "expected": expected, "auc": each.auc.json(),
            "with_last_word": round(other.auc.value, 3) if each.signal.name in WORDS else None,
            "off": None if expected is None else round(abs(used.value - expected), 4),
            "fail_if_fires": each.fail_if_fires and each.fail_if_fires.json(),
            "fail_if_not": each.fail_if_not and each.fail_if_not.json(),
            "within": each.within, "votes": each.votes, "reason": each.reason,
        }  # fmt: skip


def line(row: Mapping[str, Any]) -> str:
    found = row["auc"]
    last = "" if row["with_last_word"] is None else f", {row['with_last_word']:.3f} with the last word"
    expected = "" if row["expected"] is None else f"  expected {row['expected']:.2f}, off by {row['off']:.3f}"
    votes = "votes" if row["votes"] else "no vote"
    return f"  {row['signal']:24} {found['value']:.3f} [{found['low']:.2f}, {found['high']:.2f}]{last}{expected}  {votes}"


def flips(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Signals that say failure in one set and success in another, with intervals that exclude one half or without."""
    for signal in dict.fromkeys(row["signal"] for row in rows):
        of = {row["set"]: row["auc"] for row in rows if row["signal"] == signal}
        values = [each["value"] for each in of.values()]
        if min(values) < 0.5 - TOLERANCE and max(values) > 0.5 + TOLERANCE:
            sure = any(each["high"] < 0.5 for each in of.values()) and any(each["low"] > 0.5 for each in of.values())
            told = ", ".join(f"{name} {each['value']:.2f}" for name, each in of.items())
            yield f"  {signal:24} {told}{'; both beyond their intervals' if sure else ''}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", default=os.environ.get("JOURNEYMAN_DATA", ""), required=not os.environ.get("JOURNEYMAN_DATA"))
    parser.add_argument("--shuffles", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    data = Path(options.data)
    sets = recorded(data)
    rows = []
    for name, runs in sets.items():
        attempts = [evidence_of(trace) for trace, _ in runs]
        live = measure(attempts)
        whole = measure(with_last_word(attempt, last) for attempt, (_, last) in zip(attempts, runs, strict=True))
        found = list(compared(name, live, whole))
        rows += found
        print(f"{name}: {live.attempts} attempts of {live.groups} tasks, {live.failed} failed")
        print("\n".join(json.dumps(row) if options.json else line(row) for row in found))
    print("The sign is not the same everywhere:", *flips(rows), sep="\n")
    refused = 0
    for strange, said in ((None, "is no opinion"), (0.0, "counts as fail")):
        judges = judged(data, strange)
        refused = max(refused, sum(not may_vote(judge) for judge in judges))
        print(f"Judges, where an answer that was not asked for {said}:")
        print("\n".join(f"  {each.name:28} {each.sessions} sessions: {refusal(each) or 'votes'}" for each in judges))
    airline = [trace for trace, _ in sets["tau airline"]]
    passed = [names for seed in range(options.shuffles) if (names := passes(shuffled(airline, seed)))]
    print(f"Rewards dealt out anew {options.shuffles} times: a vote passes its examination in {len(passed)}: {passed}")
    off = [row for row in rows if row["off"] is not None and row["off"] > TOLERANCE]
    print(f"{len(off)} of {sum(row['off'] is not None for row in rows)} AUCs are off by more than {TOLERANCE}", *off, sep="\n")
    return int(bool(off) or refused < 3 or len(passed) > options.shuffles * 2 / 50)


if __name__ == "__main__":
    raise SystemExit(main())
