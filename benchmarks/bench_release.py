"""What a playbook in live requests costs, a rollout, and mirrored requests: gateways that only record, put a playbook in,
have a rollout open, or ask a candidate each request a second time behind the answer.

    python -m benchmarks.bench_release
    python -m benchmarks.bench_release --quick --json
    python -m benchmarks.bench_release --store postgres
    python -m benchmarks.bench_release --mirrored

The playbook is of about 2,000 tokens; the rollout gives half of the sessions to it. Where requests have no session's name,
each is the first of its session, whose arm is written before the upstream is asked; in the other rounds sessions are known.
Upstream, load and gateways are processes of their own (`bench_gateway`); each round loads all, one after the other, and what is
told is the median over the rounds of the difference and of the ratio. Rounds are many and short, and each time another begins:
what else goes on at a machine comes and goes in seconds, and is then not taken for what one of them costs.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.bench_gateway import cpu_seconds, free_port, journeyman, load, memory_mb, recorded, started
from journeyman.agents.answer import CHARACTERS_PER_TOKEN
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.rollout import Arm, Cause, EventKind, Rollout, RolloutEvent, Slot, SlotKind, nothing
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.core.task import Task
from journeyman.experiments.agents import candidate_of
from journeyman.optimizers.playbook import files
from journeyman.stores import open_store
from journeyman.stores.rollouts import open_rollouts
from tests.support.postgres import cluster

ADDED_MS = 0.3
"""What a request may take longer at the median."""
FIRST_MS = {"sqlite": 1.0, "postgres": 1.5}
"""What a session's first request may, where a rollout is open."""
THROUGHPUT = 0.85
"""Of what the gateway does that only records."""
_ADVICE = (
    "when a customer asks where order {number} is, look it up by its number and tell the city, the day and the carrier in one "
    "sentence of your own"
)


SESSIONS = 50
MIRRORED = "journeyman_release_mirrored_total"


def playbook() -> Playbook:
    numbers = range(54)
    return Playbook(bullets=tuple(Bullet(id=f"b-{each:012x}", content=_ADVICE.format(number=each)) for each in numbers))


def rollout(path: Path | str, *, mirrored: bool = False) -> None:
    """A store in which half of the sessions are given the playbook; or nobody, and every request is mirrored to it."""
    candidate = candidate_of(playbook())
    assert candidate is not None
    with open_store(path) as store:
        store.add_candidate(candidate)
    at = datetime.now(UTC)
    cause = Cause(reason="to see what it costs", actor="person:bench", at=at)
    begun = Rollout(
        id="bench",
        slot=Slot(SlotKind.CONTEXT),
        arms=(Arm(name="canary", candidate_id=candidate.id),),
        baseline=nothing(),
        salt="bench" * 4,
        plan=RolloutPlan(shadow_share=1.0, shadow_pairs=1_000_000, shadow_unpriced="go_on") if mirrored else RolloutPlan(),
        verdict="passed",
        created_at=at,
        events=(RolloutEvent(number=1, kind=EventKind.START, shares={}, cause=cause),),
    )
    with open_rollouts(path) as releases:
        releases.start(begun)
        ramp = begun.then(EventKind.RAMP, cause, begun.next_shares(0.5))
        releases.advance(begun.then(EventKind.SHADOW, cause, {}) if mirrored else ramp)


def own_cpu_seconds(pid: int) -> float:
    """Of the gateway, without the process that records for it."""
    return sum(int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def one_round(
    servers: dict[str, tuple[int, int]], requests: int, connections: int, number: int, sessions: int = 0
) -> dict[str, dict[str, float]]:
    figures = {}
    # Who comes first has the processor as the other left it.
    names = sorted(servers)
    for name in names[number % len(names) :] + names[: number % len(names)]:
        pid, port = servers[name]
        before, own = cpu_seconds(pid), own_cpu_seconds(pid)
        told = load(port, requests, connections, stream=False, sessions=sessions)
        recorded(port)
        settled(port)
        spent, own_spent = cpu_seconds(pid) - before, own_cpu_seconds(pid) - own
        figures[name] = {**told, "cpu_ms": 1000 * spent / requests, "gateway_ms": 1000 * own_spent / requests}
    return figures


def counted(port: int, name: str) -> int:
    """A counter of a gateway, over all its labels that begin so."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return round(sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name)))


def settled(port: int) -> None:
    """Wait until no request is mirrored any more: what goes on behind the answers of one is no cost of the next."""
    before, deadline = -1, time.monotonic() + 60
    while (now := counted(port, MIRRORED)) != before and time.monotonic() < deadline:
        before = now
        time.sleep(0.3 if now else 0)


def added(rounds: list[dict[str, dict[str, float]]], what: str, by: str = "rollout") -> float:
    return statistics.median(each[by][what] - each["recording"][what] for each in rounds)


def ratio(rounds: list[dict[str, dict[str, float]]], what: str, of: str) -> float:
    """To recording alone."""
    return statistics.median(each[of][what] / each["recording"][what] for each in rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a load of one connection gave, of known sessions, and of many connections; in each round by server."""

    alone: list[dict[str, dict[str, float]]]
    known: list[dict[str, dict[str, float]]]
    many: list[dict[str, dict[str, float]]]
    memory: dict[str, float]
    sent: int
    """Requests to each server."""
    put_in: int
    mirrored: int


def measured(rounds: int, requests: int, store: str, *, mirror: bool) -> Measured:
    """Beside a gateway that only records: one that mirrors; or one with a playbook, and one with a rollout."""
    upstream = free_port()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # Where the server's own user gets to.
        folder.chmod(0o755)
        made = stack.enter_context(cluster(folder / "postgres")) if store == "postgres" else None

        def at(name: str) -> tuple[str, str]:
            return "--store", stack.enter_context(made.database()) if made else f"sqlite:///{folder / name}.db"

        stack.enter_context(started(sys.executable, "-m", "benchmarks.bench_gateway", "--answer", str(upstream)))
        time.sleep(2)
        servers = {"recording": stack.enter_context(journeyman(upstream, *at("recording")))}
        if mirror:
            shadow = at("mirrored")
            rollout(shadow[1], mirrored=True)
            servers["mirrored"] = stack.enter_context(journeyman(upstream, *shadow))
        else:
            file, ours = folder / "playbook.json", at("rollout")
            files.save(playbook(), file)
            rollout(ours[1])
            servers["playbook"] = stack.enter_context(journeyman(upstream, "--playbook", str(file), *at("playbook")))
            servers["rollout"] = stack.enter_context(journeyman(upstream, *ours))
        one_round(servers, max(50, requests // 10), 4, 0)
        ports = {name: port for name, (_, port) in servers.items()}
        return Measured(
            alone=[one_round(servers, requests, 1, number) for number in range(rounds)],
            known=[one_round(servers, requests, 1, number, SESSIONS) for number in range(rounds)],
            many=[one_round(servers, requests, 32, number, SESSIONS) for number in range(rounds)],
            memory={name: memory_mb(pid) for name, (pid, _) in servers.items()},
            sent=max(50, requests // 10) + 3 * rounds * requests,
            put_in=0 if mirror else counted(ports["playbook"], "journeyman_release_served_total{"),
            mirrored=counted(ports["mirrored"], f'{MIRRORED}{{outcome="answered"') if mirror else 0,
        )


def mirrored(found: Measured) -> dict[str, float]:
    return {
        "mirrored_share": found.mirrored / found.sent,
        "mirrored_p50_ms": added(found.known, "p50_ms", "mirrored"),
        "mirrored_p50": ratio(found.known, "p50_ms", "mirrored"),
        "mirrored_p99": ratio(found.known, "p99_ms", "mirrored"),
        "mirrored_throughput": ratio(found.many, "per_second", "mirrored"),
        "mirrored_memory_mb": found.memory["mirrored"] - found.memory["recording"],
    }


def compared(found: Measured) -> dict[str, float]:
    assert found.put_in == found.sent, "the playbook was not put into every request"
    return {
        "tokens": len(playbook().prompt(Task(id="", question=""))) // CHARACTERS_PER_TOKEN,
        "p50_ms": statistics.median(each["recording"]["p50_ms"] for each in found.alone),
        "added_p50_ms": added(found.alone, "p50_ms", "playbook"),
        "rollout_first_p50_ms": added(found.alone, "p50_ms"),
        "rollout_first_p99_ms": added(found.alone, "p99_ms"),
        "rollout_known_p50_ms": added(found.known, "p50_ms"),
        "rollout_throughput": ratio(found.many, "per_second", "rollout"),
        "rollout_memory_mb": found.memory["rollout"] - found.memory["recording"],
        "added_p99_ms": added(found.alone, "p99_ms", "playbook"),
        "added_cpu_ms": added(found.alone, "cpu_ms", "playbook"),
        "added_gateway_ms": added(found.alone, "gateway_ms", "playbook"),
        "per_second": statistics.median(each["recording"]["per_second"] for each in found.many),
        "throughput": ratio(found.many, "per_second", "playbook"),
        "added_memory_mb": found.memory["playbook"] - found.memory["recording"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=36)
    parser.add_argument("--requests", type=int, default=250, help="of each server in each round")
    parser.add_argument("--quick", action="store_true", help="15 rounds of 200 requests")
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--mirrored", action="store_true", help="what a client notices of a candidate that is asked behind it")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rounds, requests = (15, 200) if options.quick else (options.rounds, options.requests)
    told = measured(rounds, requests, options.store, mirror=options.mirrored)
    if options.mirrored:
        shown = mirrored(told)
        print(json.dumps(shown) if options.json else _mirrored(shown))
        return 0
    found = compared(told)
    first = FIRST_MS[options.store]
    kept = (
        max(found["added_p50_ms"], found["rollout_known_p50_ms"]) <= ADDED_MS
        and found["rollout_first_p50_ms"] <= first
        and min(found["throughput"], found["rollout_throughput"]) >= THROUGHPUT
    )
    if options.json:
        print(json.dumps({**found, "passed": kept}))
        return 0 if kept else 1
    print(
        f"a playbook of {found['tokens']:.0f} tokens: p50 {found['p50_ms']:.2f} ms +{found['added_p50_ms']:.3f}, "
        f"p99 {found['added_p99_ms']:+.2f} ms, CPU {found['added_cpu_ms']:+.2f} ms "
        f"(of which the gateway {found['added_gateway_ms']:+.2f}, the recorder the rest); at 32 connections "
        f"{found['throughput']:.1%} of {found['per_second']:.0f}/s; memory {found['added_memory_mb']:+.0f} MB"
    )
    print(
        f"a rollout: a session's first request p50 {found['rollout_first_p50_ms']:+.2f} ms, p99 "
        f"{found['rollout_first_p99_ms']:+.1f}; a known session p50 {found['rollout_known_p50_ms']:+.3f}; at 32 connections "
        f"{found['rollout_throughput']:.1%}; memory {found['rollout_memory_mb']:+.0f} MB"
    )
    print(
        f"budget: {ADDED_MS} ms at the median, {first} of a session's first request, {THROUGHPUT:.0%} of the throughput: "
        f"{'kept' if kept else 'broken'}"
    )
    return 0 if kept else 1


def _mirrored(found: dict[str, float]) -> str:
    return (
        f"every request mirrored ({found['mirrored_share']:.0%} were, others while there was much to do): a client's p50 "
        f"{found['mirrored_p50_ms']:+.3f} ms ({found['mirrored_p50']:.1%}), p99 {found['mirrored_p99']:.1%}; at 32 connections "
        f"{found['mirrored_throughput']:.1%}; memory {found['mirrored_memory_mb']:+.0f} MB"
    )


if __name__ == "__main__":
    sys.exit(main())
