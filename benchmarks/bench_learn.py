"""A shop that changes its ways again and again, and nobody who trains: how many orders until they are taken again?

    python -m benchmarks.bench_learn                       # 1,000 orders a time, three changes, the embedded model as the clerk
    python -m benchmarks.bench_learn --model known --orders 500 --changes 1      # a clerk that is right at once: the way alone

`journeyman serve` with `learn = true` in [serve] before a clerk, orders by a stock client whose tool is the shop's API, and the
shop's word on each as feedback. Every so many orders the API takes other skus, amounts, dates and prices than before. What is
learned goes by a plan that is printed, without a person, to half of the sessions and on when it is better. Beside it comes one
order in six of another shop, which changes nothing: what it had is to stay. Orders come at a rate, as learning takes its time.
Ends with 0 when, after each change, at most 400 orders pass until 90 % of 50 in a row are taken, and the other shop has lost
nothing.
"""

import argparse
import json
import os
import resource
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_from_traces import run
from journeyman.tasks.desk import customers
from tests.serving.gateway.test_process import served, stopped
from tests.support.clerk import clerk
from tests.support.shops import PLAN, SETTINGS, SHOP, STEADY, TOKEN, Orders

WAYS = ("oslo", "cairo", "rome", "quito", "tokyo", "delhi")
"""Whose ways the shop has in turn."""
BAR, WITHIN, IN_A_ROW = 0.9, 400, 50


def recovered(taken: Sequence[bool]) -> int | None:
    """After how many orders 90 % of so many in a row are taken; `None` where that never is."""
    sums = (sum(taken[at : at + IN_A_ROW]) for at in range(len(taken) - IN_A_ROW + 1))
    return next((at for at, good in enumerate(sums) if good >= BAR * IN_A_ROW), None)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded", help="the clerk: embedded, embedded:small or known")
    parser.add_argument("--orders", type=int, default=1000)
    parser.add_argument("--changes", type=int, default=3)
    parser.add_argument("--per-second", type=float, default=4.0, metavar="N", help="orders")
    parser.add_argument("--keep", type=Path, help="the project's folder, which stays")
    given = parser.parse_args()
    print(f"{given.model}, {given.orders} orders a time, {given.changes} changes; the plan: {json.dumps(PLAN.as_json())}")
    with tempfile.TemporaryDirectory() as place, clerk(given.model) as up:
        folder = given.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        return walked(folder, up, given)


def walked(folder: Path, up: str, given: argparse.Namespace) -> int:
    count, changes = given.orders, given.changes
    (folder / "journeyman.toml").write_text(SETTINGS)
    (folder / "plan.json").write_text(json.dumps(PLAN.as_json()))
    token = secrets.token_hex(16)
    # For the commands that look on, too.
    os.environ |= {TOKEN: token, "JOURNEYMAN_SERVE__FEEDBACK_TOKEN_ENV": TOKEN, "JOURNEYMAN_USER": "bench"}
    steady = customers.orders(STEADY, count * (changes + 1))
    good, began = True, time.monotonic()
    with served(folder, "--upstream", f"clerk={up}/v1") as (url, process):
        traffic = Orders(url, token, steady, given.per_second)
        for number, ways in enumerate(WAYS[: changes + 1]):
            before = len(traffic.taken[SHOP])
            traffic.come(customers.orders(ways, count))
            good &= _told(number, ways, traffic, before)
        stopped(process)
    turns = run(folder, "learn", "history", "--limit", "500")["turns"]
    for turn in reversed(turns):
        told = f"{turn['began'][11:19]} {turn['domain']:>5} {turn['state']:>8} {turn['spent']['cpu_seconds']:>6.1f} s"
        print(f"  {told}  {turn['reason'][:150]}")
    others = traffic.taken[STEADY]
    back, at_end = recovered(others), sum(others[-100:]) / min(100, len(others))
    print(f"{STEADY}, which changes nothing: {len(others)} orders, taken again after {back}, {at_end:.0%} of the last 100")
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    ours, cpu = sum(turn["spent"]["cpu_seconds"] for turn in turns), sum(each.ru_utime + each.ru_stime for each in used)
    wall = time.monotonic() - began
    print(f"{len(turns)} turns, {ours:.0f} s of CPU in them of {cpu:.0f} s in all but the clerk, {wall:.0f} s of time")
    good &= back is not None and at_end >= BAR
    print("as it should be" if good else "NOT as it should be")
    return 0 if good else 1


def _told(number: int, ways: str, traffic: Orders, before: int) -> bool:
    taken = traffic.taken[SHOP][before:]
    back = recovered(taken)
    parts = [taken[at : at + 100] for at in range(0, len(taken), 100)]
    shares = " ".join(f"{sum(part) / len(part):.0%}" for part in parts)
    when = "at first" if number == 0 else f"change {number}"
    print(f"{when}, the ways of {ways}: back after {back} orders; by hundreds: {shares}", flush=True)
    return back is not None and back <= WITHIN


if __name__ == "__main__":
    sys.exit(main())
