"""From live traces to a candidate, shop by shop: what a stock client's refused orders taught, and how orders fare with it.

    python -m benchmarks.bench_from_traces                       # the eight shops, the embedded model behind a real gateway
    python -m benchmarks.bench_from_traces --model known oslo    # a clerk that is right at once: the way alone, in a minute
    python -m benchmarks.bench_from_traces --wire stream,messages,responses,otlp lima    # as other clients come

Each shop: `journeyman serve` before a clerk, 300 orders of 25 customers by a stock client whose tool is the shop's API,
`journeyman train playbook --from traces`, and, where it is checked, a release to all new sessions and 60 more orders: how many
of these the API takes is the hidden truth that the examination could not see. An agent that only reports (otlp) asks its model
itself: who that is, is named to the examination, and the later orders come through the gateway. CPU is that of the command, and
beside it that of the clerk while it was examined.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from journeyman.optimizers.playbook import files
from journeyman.stores.traces import open_traces
from journeyman.tasks.desk.customers import orders
from journeyman.tasks.desk.world import SHOPS
from tests.serving.gateway.test_process import served, stopped, until
from tests.support.clerk import clerk
from tests.support.desk_customers import visits

BAR = 0.95


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shops", nargs="*", default=[], metavar="SHOP")
    parser.add_argument("--model", default="embedded", help="the clerk: embedded, embedded:small or known")
    parser.add_argument("--orders", type=int, default=300)
    parser.add_argument("--customers", type=int, default=25)
    parser.add_argument("--wire", default="chat", help="chat, stream, messages, responses or otlp; several with commas")
    given = parser.parse_args()
    wires = given.wire.split(",")
    print(f"{given.model} behind a gateway, {given.orders} orders of {given.customers} customers", flush=True)
    print(
        f"{'wire':>9} {'shop':>6} {'live':>6} {'rules':>6} {'held':>5} {'verdict':>15} {'examined':>9} {'truth':>6} "
        f"{'calls':>6} {'CPU':>6} {'clerk':>6}  what was learned",
        flush=True,
    )
    good, shops = 0, given.shops or list(SHOPS)
    for shop in shops:
        for wire in wires:
            with tempfile.TemporaryDirectory() as folder, clerk(given.model) as up:
                row = one(Path(folder), up, shop, given.orders, wire, given.customers)
            good += row["verdict"] == "checked" and row["truth"] >= BAR
            print(
                f"{wire:>9} {shop:>6} {row['live']:>6.1%} {len(row['rules']):>6} {row['held']:>5} {row['verdict']:>15} "
                f"{row['examined']:>9.1%} {row['truth']:>6.1%} {row['calls']:>6} {row['cpu']:>5.0f}s {row['clerk']:>5.0f}s  "
                f"{'; '.join(row['rules'])}",
                flush=True,
            )
            if row["verdict"] != "checked":
                print(f"          {row['reason']}", flush=True)
    print(f"checked, and at least {BAR:.0%} of later orders right: {good} of {len(shops) * len(wires)}")
    return 0 if good == len(shops) * len(wires) else 1


def one(folder: Path, up: str, shop: str, count: int, wire: str, customers: int) -> dict[str, Any]:
    tasks = orders(shop, count + 60)
    with served(folder, "--upstream", up if wire == "messages" else f"{up}/v1", "--no-pages") as (url, process):
        live = visits(url, shop, tasks[:count], wire=wire, customers=customers, server=up)
        until(lambda: recorded(folder) >= count, 60)
        time.sleep(3)
        before, clerks = cpu(), cpu_of(up)
        # Nobody has seen who answers an agent that only reports.
        named = ("--model", f"openai:clerk@{up}/v1") if wire == "otlp" else ()
        slot = run(folder, "train", "playbook", "--from", "traces", "--reflector-model", "embedded", *named)["slots"][0]
        spent = {"cpu": cpu() - before, "clerk": cpu_of(up) - clerks}
        truth = 0.0
        if slot["verdict"] == "checked":
            about = ("--agent", "desk", "--domain", shop, "--share", "1", "--reason", "checked")
            run(folder, "releases", "start", slot["candidate"], *about)
            time.sleep(4)
            later = "chat" if wire == "otlp" else wire
            taken = visits(url, shop, tasks[count:], wire=later, customers=customers, first=count)
            truth = sum(taken) / len(taken)
        stopped(process)
    return {
        "live": sum(live) / len(live),
        "rules": rules_in(folder / slot["playbook_path"]),
        "examined": (slot["examination"] or {}).get("candidate") or 0.0,
        "truth": truth,
        **{name: slot[name] for name in ("held", "verdict", "reason", "calls")},
        **spent,
    }


def rules_in(path: Path) -> list[str]:
    """What is shown."""
    return sorted(bullet.content for bullet in files.load(path).active)


def run(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "journeyman", *arguments, "--json"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, env=env)
    if done.returncode:
        raise SystemExit(f"journeyman {' '.join(arguments)} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def recorded(folder: Path) -> int:
    with open_traces(str(folder / ".journeyman/journeyman.db"), make=False) as store:
        return sum(1 for _ in store.traces())


def cpu_of(up: str) -> float:
    """Seconds of the clerk."""
    with urlopen(f"{up}/cpu", timeout=60) as told:
        return float(told.read())


def cpu() -> float:
    """Seconds of all children that have ended: the command's own, and not the clerk's."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
