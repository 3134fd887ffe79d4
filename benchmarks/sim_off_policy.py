"""Simulates what off-policy evaluation promises of two equal workers: how often one is called better, and what intervals cover.

    python benchmarks/sim_off_policy.py
    python benchmarks/sim_off_policy.py --logs 200 --json

Each line is a log of decisions between two workers that succeed equally often, of which the policy that always takes the second
is evaluated. At most 2.5 % of logs may call it better and as many worse, and the interval of its value holds the truth in 93 %
and more. What is at 2.5 % is now and then at 2.9 % of 2,000 logs: a line beyond a bar is drawn anew, ten times as many logs
with other seeds, and these alone count. Two standard errors are allowed for. The exit code is 1 when a line is beyond that.
"""

import argparse
import json
import math
from collections.abc import Mapping
from itertools import product

import numpy as np

from journeyman.stats import LoggedDecisions, evaluate_policy

FALSE, COVERED = 0.025, 0.93
AGAIN = 10
"""Times as many logs of a line that was beyond a bar."""
SUCCESSES = (0.5, 0.02, 0.97, 0.99)
LOGS = ((1000, 0.1), (2200, 0.1), (100, 1.0), (220, 1.0), (2000, 1.0), (500, 0.2), (10_000, 0.1))
"""Decisions, and the share of them in which either worker is drawn alike; in all others it is the first."""


def logged(chance: np.random.Generator, decisions: int, explored: float, successes: tuple[float, float]) -> LoggedDecisions:
    """Of two workers, each with how often it succeeds; the first is taken but for a share in which either is drawn."""
    actions = np.where(chance.random(decisions) < explored, chance.integers(2, size=decisions), 0)
    return LoggedDecisions(
        workers=("one", "other"),
        actions=actions,
        propensities=np.where(actions == 0, 1 - explored / 2, explored / 2),
        rewards=(chance.random(decisions) < np.take(successes, actions)).astype(np.float64),
        candidates=np.ones((decisions, 2), bool),
        features=np.zeros((decisions, 0)),
    )


def line(decisions: int, explored: float, success: float, logs: int, *, first: int = 0) -> dict[str, float]:
    """
    Args:
        first: The number of the first log; those of other numbers are other logs.
    """
    chance = np.random.default_rng([decisions, round(100 * explored), round(100 * success), first])
    other = np.tile([0.0, 1.0], (decisions, 1))
    found = [
        evaluate_policy(logged(chance, decisions, explored, (success, success)), other, seed=n, min_sample=0)
        for n in range(first, first + logs)
    ]
    told = [(each.gain, each.estimates["DR"]) for each in found if each.gain is not None]
    return {
        "success": success,
        "decisions": decisions,
        "logs": logs,
        "effective": round(float(np.mean([each.effective for each in found]))),
        "refused": sum(each.gain is None for each in found),
        "better": float(np.mean([gain.low > 0 for gain, _ in told])),
        "worse": float(np.mean([gain.high < 0 for gain, _ in told])),
        "covered": float(np.mean([value.low <= success <= value.high for _, value in told])),
    }


def is_kept(found: Mapping[str, float], errors: float) -> bool:
    """Whether a line is within the bars, and so many of their standard errors."""

    def error(share: float) -> float:
        return errors * math.sqrt(share * (1 - share) / found["logs"])

    return max(found["better"], found["worse"]) <= FALSE + error(FALSE) and found["covered"] >= COVERED - error(COVERED)


def tell(found: Mapping[str, float], as_json: bool) -> None:
    if not as_json:
        print("  ".join(f"{name} {value:g}" for name, value in found.items()), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    lines = []
    for success, (decisions, explored) in product(SUCCESSES, LOGS):
        found = line(decisions, explored, success, given.logs)
        tell(found, given.json)
        if not is_kept(found, 0.0):
            found = line(decisions, explored, success, AGAIN * given.logs, first=given.logs)
            tell(found, given.json)
        lines.append(found)
    kept = all(is_kept(each, 2.0) for each in lines)
    print(json.dumps({"lines": lines, "kept": kept}) if given.json else "all kept" if kept else "not kept")
    return int(not kept)


if __name__ == "__main__":
    raise SystemExit(main())
