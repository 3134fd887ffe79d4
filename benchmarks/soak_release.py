"""A campaign of crashes against live releases: does a session ever see two arms, is a word lost, is a decision another one?

    python -m benchmarks.soak_release                          # on SQLite and on PostgreSQL
    python -m benchmarks.soak_release --quick --store sqlite
    python -m benchmarks.soak_release --only away --seed 7

Two gateways and a monitor, each a process of its own, on one store; an upstream that writes down which arm's text was in each
request, and whether its other bytes were the client's; 64 connections of http.client. What a session saw is what came to it.

    arms      sessions come by both gateways, often at once, while the canary's share goes from 1 to 50 and to 5 %
    rollback  somebody rolls back: from when on is all on production, byte for byte?
    kills     gateways, monitor and PostgreSQL are killed with -9 at random moments, beside a run that nobody disturbs
    monitors  two that decide at once, without a lease that keeps them apart
    away      the store does not answer for a minute: SQLite is locked, PostgreSQL stopped by a signal

A session that a gateway has to serve while the store does not answer stays on production for good, and is left out of the test:
that, and a rollback, are the only ways from one arm to another. Exit code 1 when a bar is missed.
"""

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, cast

from benchmarks.soak_release_site import (
    ID,
    LONGEST,
    Clients,
    Job,
    Seen,
    Site,
    Traffic,
    all_of,
    jobs,
    kill_server,
    server_processes,
    site,
    unit,
)
from journeyman.core.rollout import EventKind
from journeyman.serving.monitor import Monitor, RolloutEvidence
from journeyman.stores.base import DRAWN, Assignment
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from tests.support.postgres import Cluster, cluster

ADDED_MS = 25.0
"""What the 99th percentile may take longer while the store is away."""
_WINDOW, _QUICK_WINDOW = 15.0, 6.0
"""Seconds for which the monitor waits for a session's outcome."""


class Bar(NamedTuple):
    what: str
    found: str
    wanted: str
    kept: bool

    def __str__(self) -> str:
        return f"{'kept  ' if self.kept else 'MISSED'} {self.what}: {self.found} ({self.wanted})"


def none(what: str, found: Sequence[object], of: int) -> Bar:
    some = f", such as {', '.join(map(str, found[:3]))}" if found else ""
    return Bar(what, f"{len(found)} of {of:,}{some}", "none", not found and of > 0)


def two_arms(seen: Sequence[Seen], kept: Mapping[str, Assignment], *, moved: bool = False) -> tuple[list[str], list[str]]:
    """Sessions that saw two arms, and sessions that the store has on another one than they saw.

    Args:
        moved: Those that are on production as the store did not answer may have come there from the canary.
    """
    arms: dict[str, list[str]] = defaultdict(list)
    for each in sorted(seen):
        arms[each.session].append(each.arm)
    two, other = [], []
    for session, found in arms.items():
        row = kept.get(unit(session))
        out = moved and row is not None and row.why != DRAWN and "canary" not in found[found.index("production") :]
        if len(set(found)) > 1 and not out:
            two.append(f"{session} {''.join(arm[0] for arm in found)} {row and (row.arm, row.why)}")
        if row is None or row.arm != found[-1]:
            other.append(f"{session} {found[-1]} {row and (row.arm, row.why)}")
    return two, other


def wait_for_share(clients: Clients, todo: Sequence[Job], share: float) -> None:
    while clients.traffic.done < share * len(todo):
        time.sleep(0.05)


def arms_and_rollback(folder: Path, server: Cluster | None, given: argparse.Namespace) -> Iterator[Bar]:
    sessions = 400 if given.quick else 10_000
    with site(folder, server) as made:
        before = Clients(made.gateways, [Job(0, f"early{number}", 0, number % 2) for number in range(200)]).join()
        plain = made.seen()
        made.started(0.01, {})
        todo = jobs(random.Random(given.seed), sessions, 5, spread=0.3, words=False)
        clients, began = Clients(made.gateways, todo), time.monotonic()
        for at, share in ((1 / 3, "0.5"), (2 / 3, "0.05")):
            wait_for_share(clients, todo, at)
            made.says("ramp", "--share", share)
        traffic, took = clients.join(), time.monotonic() - began
        seen, kept = made.seen()[len(plain) :], made.assignments()
        two, other = two_arms(seen, kept)
        on_canary = sum(each.arm == "canary" for each in kept.values())
        degraded = [each.unit for each in kept.values() if each.why != DRAWN]
        said = f"{len(traffic.answered):,} of {sessions * 5:,} in {took:.0f} s, {len(traffic.failed)} sent again"
        yield Bar("chats answered", said, "all, at once", len(traffic.answered) == sessions * 5 and not traffic.failed)
        yield none(f"sessions on two arms ({on_canary:,} on the canary, {len(degraded)} degraded)", two, sessions)
        yield none("sessions whose row tells another arm", other, sessions)
        yield none("requests of production with other bytes", [e for e in seen if e.arm != "canary" and not e.same], len(seen))
        yield from _rolled_back(made, sorted({each.session for each in seen if each.arm == "canary"}), plain, before)


def _rolled_back(made: Site, canaries: Sequence[str], plain: Sequence[Seen], before: Traffic) -> Iterator[Bar]:
    count = len(made.seen())
    over = threading.Event()

    def going() -> Iterator[Job]:
        # The command takes as long as the machine is busy.
        for number in takewhile(lambda _: not over.is_set(), itertools.count()):
            yield Job(number / 100, canaries[number % len(canaries)], 5, number % 2)

    clients = Clients(made.gateways, going(), seconds=1)
    time.sleep(2)
    made.says("rollback")
    time.sleep(5)
    over.set()
    clients.join()
    with open_rollouts(made.store) as store:
        rollout = store.rollout(ID)
    assert rollout is not None
    at = rollout.events[-1].cause.at.timestamp()
    seen = made.seen()[count:]
    last = sorted(max([each.at - at for each in seen if each.gateway == gate and each.arm == "canary"]) for gate in (0, 1))
    found = f"{last[0]:.2f} and {last[1]:.2f} s after it was decided"
    yield Bar("the canary's last request by either gateway", found, "1 s and 3 s", last[0] <= 1 and last[1] <= 3)
    after = [each for each in seen if each.at > at + 3]
    yield none("requests 3 s after it that are not, byte for byte, as before",
               [each for each in after if not each.same or each.arm != "production"], len(after))  # fmt: skip
    yield none("requests before the rollout that were not the client's bytes", [e for e in plain if not e.same],
               len(before.answered))  # fmt: skip


def plan(window: float, on_harm: str = "hold") -> Mapping[str, Any]:
    """One step at half of the sessions, whose outcome is waited for so many seconds."""
    return {
        "on_harm": on_harm, "settle_seconds": window, "max_days": 1,
        "primary": {"name": "success", "window_seconds": window, "sources": ["ground truth"]},
        "guardrails": [{"name": "failed_requests", "tolerance": 0.01}],
        "steps": [0.5], "step_sessions": [100_000], "step_hours": [100], "step_worst": [1.0],
    }  # fmt: skip


class Outcome(NamedTuple):
    """What a run came to."""

    decided: tuple[str, ...]
    """What the monitor did."""
    means: Mapping[str, Sequence[float | None]]
    same_numbers: bool
    """Whether the rule comes to what was kept, over the rows of the store as they are now."""
    sessions: int
    arms: Mapping[str, Assignment]


class _Before:
    """A store as it was when sessions up to a `seq` were closed."""

    def __init__(self, store: RolloutStore, upto: int) -> None:
        self._store, self._upto = store, upto

    def assignments(self, id: str, *, after: int, limit: int) -> list[Assignment]:
        return [each for each in self._store.assignments(id, after=after, limit=limit) if each.seq <= self._upto]

    def served_sessions(self, id: str, units: Sequence[str]) -> Any:
        return self._store.served_sessions(id, units)


def came_to(made: Site) -> Outcome:
    """Once the monitor has closed all sessions."""
    with open_rollouts(made.store) as store:

        def closed() -> bool:
            record, last = store.evidence(ID), all_of(store)[-1].seq
            return record is not None and record.upto >= last and len(record.state["cursors"]) == 3

        made.until(closed, "all sessions are closed", _WINDOW + LONGEST)
        assert made.monitor is not None
        made.monitor.stop()
        rollout, record = store.rollout(ID), store.evidence(ID)
        assert rollout is not None
        assert record is not None
        fresh = RolloutEvidence(rollout, None)
        before = cast("RolloutStore", _Before(store, record.upto))
        while fresh.close(before, datetime.now(UTC)):
            pass
        kept = {
            name: [row[f"mean_{arm}"] for arm in ("canary", "production")] for name, row in record.summary["metrics"].items()
        }
        again = json.loads(json.dumps(fresh.summary()))
        decided = tuple(f"{each.kind} by {each.cause.actor}" for each in rollout.events[2:])
        said = rollout.events[-1].cause.reason.partition(":")[0] if decided else "nothing"
        if again != record.summary:
            (made.folder / "differ.json").write_text(json.dumps([again, record.summary], indent=1))
            print(f"  kept {record.summary}\n  anew {again}", file=sys.stderr)
        return Outcome((*decided, said), kept, again == record.summary, record.summary["sessions"], made.assignments())


def _run(folder: Path, server: Cluster | None, given: argparse.Namespace, todo: Sequence[Job], seconds: float,
         hurt: Callable[[Site, Clients], None]) -> tuple[Outcome, Traffic, list[Seen], dict[str, set[str]], Site]:  # fmt: skip
    """A run, and every arm that the store was ever seen to have a session on."""
    with site(folder, server, monitored=True) as made:
        made.started(0.5, plan(_QUICK_WINDOW if given.quick else _WINDOW))
        clients = Clients(made.gateways, todo, seconds=seconds, seed=given.seed)
        watched: dict[str, set[str]] = defaultdict(set)
        over = threading.Event()

        def watch() -> None:
            while not over.wait(0.5):
                with suppress(Exception):
                    for each in made.assignments().values():
                        watched[each.unit].add(f"{each.arm} {each.why}")

        watcher = threading.Thread(target=watch)
        watcher.start()
        hurt(made, clients)
        traffic = clients.join()
        over.set()
        watcher.join()
        for each in made.gateways:
            each.wait()
        wanted = set(traffic.words)
        made.until(lambda: wanted <= _stored(made), "every acknowledged word is in the store", LONGEST)
        return came_to(made), traffic, made.seen(), watched, made


def _stored(made: Site) -> set[str]:
    words = _rows(made, "select id from feedback")
    if len(words) != len(set(words)):
        raise SystemExit("a word is in the store twice")
    return set(words)


def _rows(made: Site, statement: str) -> list[Any]:
    import sqlalchemy as sa

    engine = sa.create_engine(made.store.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with engine.connect() as connection:
            return list(connection.scalars(sa.text(statement)))
    finally:
        engine.dispose()


def kills(folder: Path, server: Cluster | None, given: argparse.Namespace) -> Iterator[Bar]:
    sessions, seconds, count = (400, 20.0, 4) if given.quick else (2000, 120.0, 20)
    todo = jobs(random.Random(given.seed), sessions, 3, spread=0.2, words=True)
    calm, *_ = _run(folder / "calm", server, given, todo, seconds / 2, lambda *_: None)
    chance = random.Random(f"{given.seed} kills")
    moments = sorted(chance.uniform(1, seconds - 2) for _ in range(count))
    whom = ["gateway 0", "gateway 1", "monitor", *(["PostgreSQL"] if server else [])]
    drawn = [whom[number % len(whom)] for number in range(count)]
    chance.shuffle(drawn)

    gone: list[float] = []

    def hurt(made: Site, clients: Clients) -> None:
        assert made.monitor is not None
        what: dict[str, Callable[[], None]] = {
            "gateway 0": made.gateways[0].kill, "gateway 1": made.gateways[1].kill, "monitor": made.monitor.kill
        }  # fmt: skip
        if server:
            what["PostgreSQL"] = lambda: kill_server(server)
        for moment, name in zip(moments, drawn, strict=True):
            time.sleep(max(0.0, clients.began + moment - time.time()))
            gone.extend([time.time()] if name == "PostgreSQL" else [])
            what[name]()

    folder = folder / "hurt"
    hard, traffic, seen, watched, made = _run(folder, server, given, todo, seconds, hurt)
    killed = ", ".join(f"{name} {times}" for name, times in sorted(Counter(drawn).items()))
    degraded = sum(each.why != DRAWN for each in hard.arms.values())
    yield Bar(f"chats answered in the end ({killed} killed)", f"{len(traffic.answered):,} of {sessions * 3:,}, after "
              f"{len(traffic.failed)} attempts more", "all", len(traffic.answered) == sessions * 3)  # fmt: skip
    two, other = two_arms(seen, hard.arms, moved=True)
    # What one gateway was told in the last moment, the other could not hear of.
    fresh = {session for began, ended, session in traffic.answered if any(began < at and ended > at - 1 for at in gone)}
    late = sum(each.split()[0] in fresh for each in two)
    said = f"{degraded} on production as the store did not answer; {late} that were asked in a second in which PostgreSQL went"
    yield none(f"sessions on two arms ({said})", two, sessions)
    yield none("sessions whose row tells another arm", other, sessions)
    changed = [f"{id} {sorted(arms)}" for id, arms in watched.items() if len({each for each in arms if DRAWN in each}) > 1]
    yield none("assignments that became another", changed, len(watched))
    yield Bar("acknowledged words in the store, each once", f"{len(traffic.words):,} of {sessions:,}", "all",
              len(traffic.words) == sessions)  # fmt: skip
    apart = [each for each in hard.arms if each in calm.arms and DRAWN == hard.arms[each].why == calm.arms[each].why
             and hard.arms[each].arm != calm.arms[each].arm]  # fmt: skip
    yield none("sessions on another arm than in the run that nobody disturbed", apart, len(hard.arms))
    yield Bar("decisions", f"{'; '.join(hard.decided)} · undisturbed: {'; '.join(calm.decided)}", "the same",
              hard.decided == calm.decided and len(hard.decided) > 1)  # fmt: skip
    for name, run in (("", hard), (" of the undisturbed run", calm)):
        means = ", ".join(
            f"{what} {'/'.join('?' if each is None else f'{each:.3f}' for each in told)}" for what, told in run.means.items()
        )
        yield Bar(f"evidence{name} kept and computed anew over the rows", f"{run.sessions:,} sessions, {means}", "equal",
                  run.same_numbers)  # fmt: skip
    ended = [f"{each._folder.name}" for each in (*made.gateways, made.monitor) if each and each.traceback]
    yield none("processes that said a traceback", ended, 3)


def monitors(folder: Path, server: Cluster | None, given: argparse.Namespace) -> Iterator[Bar]:
    looks = 100 if given.quick else 500
    sessions = 300
    with site(folder, server) as made:
        made.started(0.5, plan(4.0, "rollback"))
        todo = jobs(random.Random(given.seed), sessions, 1, spread=0.05, words=True)
        clients = Clients(made.gateways, todo, seconds=8, seed=given.seed)
        command = [sys.executable, "-m", "benchmarks.soak_release", "--decide", made.store, str(looks)]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        told = [int(each.communicate(timeout=300)[0]) for each in both]
        clients.join()
        with open_rollouts(made.store) as store:
            rollout = store.rollout(ID)
            fault = store.verify()
        numbers = _rows(made, f"select number from evidence where rollout_id = '{ID}' order by seq")
    assert rollout is not None
    events = [each.number for each in rollout.events]
    back = sum(each.kind is EventKind.ROLLBACK for each in rollout.events)
    whole = events == list(range(1, len(events) + 1)) and sorted(numbers) == list(range(1, len(numbers) + 1)) and not fault
    said = f"{sum(told):,} looks, {len(numbers)} rows of evidence, {len(events)} events, {back} rollback{fault or ''}"
    yield Bar("two monitors at once", said, "no gap, nothing twice, one rollback", whole and back == 1)


def deciding(store: str, looks: int) -> None:
    """A monitor whose lease is over at once, so that nothing keeps two of them apart."""
    done, until = 0, time.monotonic() + 120
    with open_rollouts(store) as opened:
        monitor = Monitor(opened, lease_seconds=0.0)
        while time.monotonic() < until:
            done += monitor.once() is not None
            if done >= looks and not opened.live().rollouts:
                break
            time.sleep(0.01)
    print(done)


@contextmanager
def away(made: Site) -> Iterator[None]:
    """The store does not answer."""
    if made.server is None:
        with contextlib.closing(
            sqlite3.connect(made.store.removeprefix("sqlite:///"), timeout=20, isolation_level=None)
        ) as held:
            held.execute("begin immediate")
            yield
            held.execute("rollback")
        return
    pids = server_processes(made.server)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _added(traffic: Traffic, warm: float, begin: float, end: float) -> Bar:
    during = [ended - began for began, ended, _ in traffic.answered if begin < began < end]
    usual = [ended - began for began, ended, _ in traffic.answered if began > warm and ended < begin]
    figures = [1000 * sorted(each)[int(0.99 * len(each))] for each in (usual, during)]
    added = figures[1] - figures[0]
    said = f"{added:+.1f} ms to {figures[0]:.1f} (slowest {1000 * max(during):.0f})"
    return Bar("added to the 99th percentile", said, f"{ADDED_MS:g} ms", added <= ADDED_MS)


def gone(folder: Path, server: Cluster | None, given: argparse.Namespace) -> Iterator[Bar]:  # noqa: PLR0915 - one story
    lead, long, tail = (8.0, 25.0, 5.0) if given.quick else (20.0, 60.0, 10.0)
    seconds, rate = lead + long + tail, 7.5
    sessions = round(seconds * rate)
    with site(folder, server, monitored=True) as made:
        made.started(0.5, plan(_QUICK_WINDOW if given.quick else _WINDOW))
        todo = jobs(random.Random(given.seed), sessions, 8, spread=6 / seconds, words=True)
        clients = Clients(made.gateways, todo, seconds=seconds, seed=given.seed)
        time.sleep(lead)
        with away(made):
            begin = time.time()
            time.sleep(long)
            end = time.time()
        traffic = clients.join()
        back = time.time()
        wanted = set(traffic.words)
        made.until(lambda: wanted <= _stored(made), "every acknowledged word is in the store", LONGEST)
        waited = time.time() - back
        result = came_to(made)
        with open_rollouts(made.store) as store:
            scored = set(store.scores(ID, "success"))
        seen = made.seen()
    yield none(f"failed answers in {long:.0f} s", [why for _, why in traffic.failed], len(traffic.answered))
    yield _added(traffic, clients.began + 3, begin, end)
    first: dict[str, tuple[float, float]] = {}
    for began, ended, session in sorted(traffic.answered):
        first.setdefault(session, (began, ended))
    new = [session for session, (began, ended) in first.items() if began > begin and ended < end]
    known, names = result.arms, set(new)
    canary = sorted({each.session for each in seen if each.session in names and each.arm == "canary" and each.at < end})
    yield none("new sessions on the canary meanwhile", canary, len(new))
    unmarked = [each for each in new if unit(each) not in known or known[unit(each)].why == DRAWN]
    yield none("new sessions that are not marked as degraded", unmarked, len(new))
    yield none("new sessions in the evidence", [each for each in new if unit(each) in scored], len(new))
    # A gateway that was told of a session in the last second cannot have told the other.
    fresh = {session for session, (began, ended) in first.items() if began < begin and ended > begin - 1}
    two, other = two_arms([each for each in seen if each.session not in fresh], known, moved=True)
    late, _ = two_arms([each for each in seen if each.session in fresh], known, moved=True)
    moved = sum(each.why != DRAWN for each in known.values()) - len(new)
    said = f"{moved} begun before are on production for good; of {len(fresh)} begun in the second before it {len(late)} were"
    yield none(f"sessions on two arms ({said})", two, len(first) - len(fresh))
    yield none("sessions whose row tells another arm", other, len(first))
    meanwhile = sum(begin < at < end for at in traffic.words.values())
    yield Bar("words acknowledged meanwhile and stored afterwards", f"{meanwhile}, {waited:.1f} s later", "all", meanwhile > 0)


def unreachable(folder: Path, server: Cluster | None, given: argparse.Namespace) -> Iterator[Bar]:
    """A gateway that starts while the store does not answer."""
    if server is None:
        return
    with site(folder, server) as made:
        made.started(1.0, {})
        Clients(made.gateways, [Job(0, "known", 0, 0)]).join()
        for what in ("killed", "stopped by a signal"):
            pids = server_processes(server)
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if what == "killed" else signal.SIGSTOP)
            try:
                made.gateways[0].kill()
                took = made.gateways[0].wait()
                traffic = Clients(
                    made.gateways[:1] * 2, [Job(0, f"late-{what[0]}{number}", 0, 0) for number in range(20)]
                ).join()
            finally:
                if what == "killed":
                    kill_server(server) if (server.folder / "data" / "postmaster.pid").exists() else server.start()
                else:
                    for pid in pids:
                        with suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGCONT)
            served = [each for each in made.seen() if each.session.startswith(f"late-{what[0]}")]
            fine = len(traffic.answered) == 20 and not traffic.failed and {each.arm for each in served} == {"production"}
            said = f"answers after {took:.1f} s, {len(traffic.answered)} of 20 chats answered by production"
            yield Bar(f"a gateway that starts while PostgreSQL is {what}", said, "20 s", took <= 20 and fine)


PIECES: Mapping[str, Callable[[Path, Cluster | None, argparse.Namespace], Iterator[Bar]]] = {
    "arms": arms_and_rollback,
    "kills": kills,
    "monitors": monitors,
    "away": gone,
    "start": unreachable,
}


QUICK = ("arms", "kills")


def _piece(name: str, folder: Path, server: Cluster | None, given: argparse.Namespace) -> Iterator[Bar]:
    """Its bars; one that cannot be told is missed, and the others are tried all the same."""
    try:
        yield from PIECES[name](folder / "site" if name != "kills" else folder, server, given)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it is, it is told
        traceback.print_exc()
        yield Bar("the piece", f"{type(error).__name__}: {str(error)[-300:]}", "ends", kept=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three minutes: arms and kills alone, with fewer sessions")
    parser.add_argument("--store", choices=("sqlite", "postgres"), action="append", help="one alone")
    parser.add_argument("--only", choices=tuple(PIECES), action="append", help="may be said several times")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave logs and stores there")
    parser.add_argument("--decide", nargs=2, metavar=("STORE", "LOOKS"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.decide:
        deciding(given.decide[0], int(given.decide[1]))
        return 0
    missed, began = 0, time.monotonic()
    with ExitStack() as held:
        scratch = given.keep or Path(held.enter_context(tempfile.TemporaryDirectory(prefix="soak-release-")))
        scratch.mkdir(exist_ok=True)
        scratch.chmod(0o755)
        for kind in given.store or ("sqlite", "postgres"):
            server = held.enter_context(cluster(scratch / "postgres")) if kind == "postgres" else None
            for name in given.only or (QUICK if given.quick else PIECES):
                folder = scratch / f"{kind}-{name}"
                folder.mkdir()
                for bar in _piece(name, folder, server, given):
                    missed += not bar.kept
                    print(f"{kind:8} {name:8} {bar}", flush=True)
    print(f"{missed} bars missed, in {(time.monotonic() - began) / 60:.1f} minutes; seed {given.seed}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
