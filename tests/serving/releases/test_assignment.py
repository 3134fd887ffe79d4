"""A session sees one arm, whatever happens to shares, gateways and the store."""

import asyncio
import multiprocessing
import os
import random
import signal
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from journeyman.core.errors import StoreError
from journeyman.core.rollout import PRODUCTION, Cause, EventKind, Rollout, drawn, unit_of
from journeyman.serving.releases.assignment import Assigner
from journeyman.serving.releases.beside import DegradedSessions, GatewayName
from journeyman.serving.releases.context import SessionArm
from journeyman.serving.releases.live import PATIENCE
from journeyman.stores.base import DEGRADED, DRAWN, Assignment
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from tests.contracts.test_rollout_stores import NOON, begun, ramped
from tests.support import postgres


def at(share: float) -> Rollout:
    return ramped(begun(), share)


@contextmanager
def assigner(opened: Callable[[], RolloutStore], kept: Path | None = None) -> Iterator[Assigner]:
    made = Assigner(opened, kept=kept)
    made.warm()
    try:
        yield made
    finally:
        made.close()


def test_shares_are_kept_and_one_that_grows_takes_no_session_out() -> None:
    sessions = [unit_of("salt", str(number)).bucket for number in range(20_000)]
    before = {bucket for bucket in sessions if drawn(bucket, {"canary": 0.05}) == "canary"}
    after = {bucket for bucket in sessions if drawn(bucket, {"canary": 0.25}) == "canary"}
    assert before < after
    assert len(before) / len(sessions) == pytest.approx(0.05, abs=0.005)
    assert len(after) / len(sessions) == pytest.approx(0.25, abs=0.01)
    three = [drawn(bucket, {"a": 0.1, "b": 0.2}) for bucket in sessions]
    assert three.count("b") / len(three) == pytest.approx(0.2, abs=0.01)
    # Another rollout draws anew.
    others = [unit_of("other salt", str(number)).bucket for number in range(20_000)]
    both = sum(one < 0.5 and other < 0.5 for one, other in zip(sessions, others, strict=True))
    assert both / len(sessions) == pytest.approx(0.25, abs=0.015)


async def test_a_session_stays_where_it_was_drawn_when_the_shares_change(tmp_path: Path) -> None:
    opened = partial(open_rollouts, tmp_path / "journeyman.db")
    sessions = [f"s{number}" for number in range(200)]
    seen: dict[str, set[str]] = {session: set() for session in sessions}
    for share in (0.01, 0.5, 0.05, 1.0):
        # Each time by another gateway, which remembers nothing.
        with assigner(opened) as gateway:
            found = await asyncio.gather(*(gateway.arm(at(share), session) for session in (*sessions, *sessions)))
            assert gateway.degraded == 0
        for session, where in zip((*sessions, *sessions), found, strict=True):
            seen[session].add(where.arm)
    assert all(len(arms) == 1 for arms in seen.values())
    assert {"canary"} in seen.values()
    with opened() as store:
        assert len(store.assignments("r1")) == len(sessions)


async def test_while_the_store_is_locked_new_sessions_are_served_production_and_stay_there(tmp_path: Path) -> None:
    path = tmp_path / "journeyman.db"
    open_rollouts(path).close()
    with assigner(partial(open_rollouts, path, patience=0.05)) as gateway:
        before = await gateway.arm(at(1.0), "known")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        began = time.monotonic()
        new = await asyncio.gather(*(gateway.arm(at(1.0), f"s{number}") for number in range(50)))
        again = await gateway.arm(at(1.0), "late")
        assert time.monotonic() - began < 20
        assert {(each.arm, each.counts) for each in (*new, again)} == {(PRODUCTION, False)}
        assert await gateway.arm(at(1.0), "known") == before
        other.execute("rollback")
        other.close()
        while gateway.is_away:
            await asyncio.sleep(0.01)
        back = await gateway.arm(at(1.0), "afterwards")
        assert (back.arm, back.counts) == ("canary", True)
        assert (await gateway.arm(at(1.0), "s1")).arm == PRODUCTION
    with open_rollouts(path) as store:
        why = {each.unit: each.why for each in store.assignments("r1")}
        assert sorted(why.values()) == [DEGRADED] * 51 + [DRAWN] * 2


async def test_a_session_that_one_gateway_drew_and_another_had_to_serve_without_the_store_ends_on_production_in_both(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journeyman.db"
    opens = threading.Event()

    def cut_off() -> RolloutStore:
        if not opens.is_set():
            raise StoreError("it cannot be reached from here")
        return open_rollouts(path)

    with assigner(partial(open_rollouts, path)) as one, assigner(cut_off) as other:
        drawn_here, served_there = await asyncio.gather(one.arm(at(1.0), "s"), other.arm(at(1.0), "s"))
        assert (drawn_here.arm, served_there.arm) == ("canary", PRODUCTION)
        opens.set()
        while other.is_away:
            await asyncio.sleep(0.01)
        with open_rollouts(path) as store:
            (kept,) = store.assignments("r1")
            assert (kept.arm, kept.why) == (PRODUCTION, DEGRADED)
            one.follow(store.assignments("r1"))
        assert await one.arm(at(1.0), "s") == await other.arm(at(1.0), "s")
        assert not (await one.arm(at(1.0), "s")).counts


async def test_whom_a_killed_gateway_served_without_the_store_the_next_one_tells_it(tmp_path: Path) -> None:
    kept, path = tmp_path / "r1.degraded", tmp_path / "journeyman.db"
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_serves_without_a_store, args=(kept,))
    process.start()
    until = time.monotonic() + 30
    while not (kept.exists() and kept.read_text().count("\n[") == 3) and time.monotonic() < until:
        await asyncio.sleep(0.02)
    process.kill()
    process.join()
    again = Assigner(partial(open_rollouts, path), kept=kept)
    try:
        while kept.exists() and time.monotonic() < until:
            await asyncio.sleep(0.02)
        where = await again.arm(at(1.0), "s1")
        assert (where.arm, where.counts) == (PRODUCTION, False)
    finally:
        again.close()
    with open_rollouts(path) as store:
        assert [each.why for each in store.assignments("r1")] == [DEGRADED] * 3


async def test_whom_one_gateway_served_without_the_store_no_other_that_shares_its_file_draws(tmp_path: Path) -> None:
    path, kept = tmp_path / "journeyman.db", tmp_path / "journeyman.db-degraded"
    with assigner(partial(open_rollouts, path), kept) as one, assigner(_away, kept) as other:
        drawn_here = await one.arm(at(1.0), "known here")
        assert [(await other.arm(at(1.0), session)).arm for session in ("new", "known here")] == [PRODUCTION] * 2
        assert drawn_here.arm == "canary"
        # Neither waits for what is told the store, nor for a look into it.
        for session in ("new", "known here"):
            where = await one.arm(at(1.0), session)
            assert (where.arm, where.counts) == (PRODUCTION, False)


async def test_who_is_served_production_while_another_gateway_draws_them_gets_it_from_both(tmp_path: Path) -> None:
    path, kept = tmp_path / "journeyman.db", tmp_path / "journeyman.db-degraded"
    open_rollouts(path).close()
    with assigner(partial(open_rollouts, path), kept) as one, assigner(_away, kept) as other:
        locks = sqlite3.connect(path, isolation_level=None)
        locks.execute("begin immediate")
        drawing = asyncio.ensure_future(one.arm(at(1.0), "s"))
        await asyncio.sleep(0.05)
        there = await other.arm(at(1.0), "s")
        locks.execute("rollback")
        locks.close()
        here = await drawing
        assert {(each.arm, each.counts) for each in (there, here)} == {(PRODUCTION, False)}


async def test_whom_a_killed_gateway_served_without_the_store_another_that_runs_tells_it(tmp_path: Path) -> None:
    path, kept = tmp_path / "journeyman.db", tmp_path / "journeyman.db-degraded"
    with assigner(_away, kept) as killed:
        for number in range(3):
            await killed.arm(at(1.0), f"s{number}")
    with kept.open("a") as file:
        file.write('["r1", "half a li')
    with assigner(_away, kept) as after_it:
        await after_it.arm(at(1.0), "s3")
    with assigner(partial(open_rollouts, path), kept) as running:
        await running.arm(at(1.0), "another")
        until = time.monotonic() + 30
        while kept.exists() and time.monotonic() < until:
            await asyncio.sleep(0.02)
        with open_rollouts(path) as store:
            assert sorted(each.why for each in store.assignments("r1")) == [DEGRADED] * 4 + [DRAWN]


async def test_a_file_that_two_write_and_two_empty_loses_no_line(tmp_path: Path) -> None:
    kept, over = tmp_path / "degraded", threading.Event()
    wanted = {f"{writer}-{number}" for writer in range(2) for number in range(300)}
    told = [set[tuple[str, str]](), set[tuple[str, str]]()]

    def write(writer: int) -> None:
        for number in range(300):
            DegradedSessions(kept).add(Assignment("r1", f"{writer}-{number}", PRODUCTION, 2, DEGRADED, NOON))

    def tell(found: set[tuple[str, str]]) -> None:
        mine = DegradedSessions(kept)
        while not over.is_set() or kept.exists():
            found.update((each.rollout_id, each.unit) for each in mine.left(found))

    writers = [threading.Thread(target=write, args=(writer,)) for writer in range(2)]
    tellers = [threading.Thread(target=tell, args=(found,)) for found in told]
    for each in (*writers, *tellers):
        each.start()
    for each in writers:
        each.join()
    over.set()
    for each in tellers:
        each.join()
    assert {unit for _, unit in told[0] | told[1]} == wanted
    assert not kept.exists()


def _away() -> RolloutStore:
    raise StoreError("it is away")


def _serves_without_a_store(kept: Path) -> None:
    async def serve() -> None:
        gateway = Assigner(_away, kept=kept)
        for number in range(3):
            await gateway.arm(at(1.0), f"s{number}")
        await asyncio.sleep(600)

    asyncio.run(serve())


async def test_a_session_of_another_gateway_is_known_while_the_store_is_away(tmp_path: Path) -> None:
    def away() -> RolloutStore:
        raise StoreError("it is away")

    with assigner(partial(open_rollouts, tmp_path / "journeyman.db")) as one, assigner(away) as other:
        there = await one.arm(at(1.0), "s")
        with open_rollouts(tmp_path / "journeyman.db") as store:
            other.follow(store.assignments("r1"))
        assert await other.arm(at(1.0), "s") == there
        assert there.arm == "canary"


@contextmanager
def server() -> Iterator[tuple[postgres.Cluster, str]]:
    """One of one's own, and the URL of a database there."""
    with ExitStack() as held:
        # Where the server's own user gets to.
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(dir="/tmp")))
        folder.chmod(0o755)
        try:
            made = held.enter_context(postgres.cluster(folder / "postgres"))
        except LookupError as why:
            pytest.skip(str(why))
        yield made, held.enter_context(made.database())


@contextmanager
def named(url: str, name: str, opens: threading.Event | None = None) -> Iterator[tuple[Assigner, Callable[[], None]]]:
    """A gateway on a machine of its own, and how it promises.

    Args:
        opens: While it is not set, this gateway is cut off.
    """

    def opened() -> RolloutStore:
        found = open_rollouts(url, patience=PATIENCE)
        if opens is not None:
            keep = found.assign

            def assign(*given: Any, **more: Any) -> Any:
                if not opens.is_set():
                    raise StoreError("it cannot be reached from here")
                return keep(*given, **more)

            found.assign = assign  # type: ignore[method-assign]
        return found

    gateway = Assigner(opened, name=name)
    gateway.warm()
    with open_rollouts(url) as store:

        def promise() -> None:
            if opens is None or opens.is_set():
                now, read_at = store.clock(), time.monotonic()
                gateway.follow(store.assignments("r1"))
                gateway.promise(store, now, read_at)

        promise()
        try:
            yield gateway, promise
        finally:
            gateway.close()


@pytest.mark.service
@pytest.mark.postgres
async def test_what_was_answered_outlives_a_crash_of_the_server_and_the_gateway() -> None:
    with server() as (made, url):
        with assigner(partial(open_rollouts, url)) as gateway:
            before = await asyncio.gather(*(gateway.arm(at(1.0), f"s{number}") for number in range(50)))
            made.stop()
        # Nobody is there who would tell it again.
        made.start()
        with open_rollouts(url) as store:
            assert {(each.unit, each.arm) for each in store.assignments("r1")} == {(each.unit, "canary") for each in before}


@pytest.mark.service
@pytest.mark.postgres
async def test_a_gateway_that_is_cut_off_serves_nobody_before_the_others_have_stopped_to_draw() -> None:
    opens = threading.Event()
    opens.set()
    with postgres.database() as url, named(url, "here") as (here, _), named(url, "there", opens) as (there, promise):
        known = await here.arm(at(1.0), "before")
        promise()
        assert (known.arm, await there.arm(at(1.0), "before")) == ("canary", known)
        opens.clear()
        began = time.monotonic()
        asked = asyncio.ensure_future(there.arm(at(1.0), "s"))
        meanwhile: list[SessionArm] = []
        while not asked.done():
            meanwhile.append(await here.arm(at(1.0), f"meanwhile {len(meanwhile)}"))
            await asyncio.sleep(0.05)
        served = await asked
        assert time.monotonic() - began > 1
        assert (served.arm, served.counts) == (PRODUCTION, False)
        # Drawn until then, and nobody any more when the other may have served them.
        assert (meanwhile[0].arm, meanwhile[0].counts) == ("canary", True)
        for session in ("s", "new"):
            where = await here.arm(at(1.0), session)
            assert (where.arm, where.counts) == (PRODUCTION, False)
        # What both know stays where it is.
        assert await there.arm(at(1.0), "before") == await here.arm(at(1.0), "before") == known
        opens.set()
        while there.is_away:
            await asyncio.sleep(0.02)
        promise()
        assert (await here.arm(at(1.0), "afterwards")).arm == "canary"


@pytest.mark.service
@pytest.mark.postgres
async def test_a_session_drawn_in_the_moment_before_another_gateway_is_cut_off_comes_to_production_once() -> None:
    opens = threading.Event()
    opens.set()
    with postgres.database() as url, named(url, "here") as (here, hears), named(url, "there", opens) as (there, promise):
        promise()
        drawn = await here.arm(at(1.0), "s")
        # What stands in the database has not been read there, and cannot be any more.
        opens.clear()
        began = time.monotonic()
        served = await there.arm(at(1.0), "s")
        assert time.monotonic() - began > 1
        assert (drawn.arm, served.arm, served.counts) == ("canary", PRODUCTION, False)
        # Nobody who begins now is in that place.
        new = await here.arm(at(1.0), "new")
        assert (new.arm, new.counts) == (PRODUCTION, False)
        opens.set()
        while there.is_away:
            await asyncio.sleep(0.02)
        hears()
        for gateway in (here, there, here):
            where = await gateway.arm(at(1.0), "s")
            assert (where.arm, where.counts) == (PRODUCTION, False)
        with open_rollouts(url) as store:
            (row,) = (each for each in store.assignments("r1") if each.unit == drawn.unit)
        assert (row.arm, row.why) == (PRODUCTION, DEGRADED)


@pytest.mark.service
@pytest.mark.postgres
async def test_a_gateway_that_was_killed_with_something_to_tell_holds_up_whoever_draws_until_it_has_told(
    tmp_path: Path,
) -> None:
    kept = tmp_path / "degraded"
    with postgres.database() as url, named(url, "here") as (here, _), open_rollouts(url) as store:
        store.promise("there", store.clock())
        DegradedSessions(kept).add(Assignment("r1", unit_of(at(1.0).salt, "s").id, PRODUCTION, 2, DEGRADED, NOON))
        assert (await here.arm(at(1.0), "while it is gone")).arm == PRODUCTION
        locked = sa.create_engine(sa.make_url(url).set(drivername="postgresql+psycopg"))
        with locked.begin() as connection:
            connection.exec_driver_sql("lock table assignments in exclusive mode")
            again = Assigner(partial(open_rollouts, url, patience=PATIENCE), kept=kept, name="there")
            again.warm()
            again.promise(store, store.clock(), time.monotonic())
        locked.dispose()
        assert (await here.arm(at(1.0), "before it told")).arm == PRODUCTION
        until = time.monotonic() + 20
        while kept.exists() and time.monotonic() < until:
            await asyncio.sleep(0.02)
        again.promise(store, store.clock(), time.monotonic())
        assert (await here.arm(at(1.0), "after it told")).arm == "canary"
        assert (await here.arm(at(1.0), "s")).arm == PRODUCTION
        again.close()


@pytest.mark.service
@pytest.mark.postgres
async def test_two_that_meet_the_same_sessions_while_a_third_says_nothing_serve_all_of_them_the_same() -> None:
    with postgres.database() as url, named(url, "one") as (one, promise), named(url, "other") as (other, promised):
        with open_rollouts(url) as store:
            store.promise("third", store.clock())
        for number in range(60):
            promise()
            promised()
            both = await asyncio.gather(*(each.arm(at(1.0), f"s{number}") for each in (one, other)))
            assert [(each.arm, each.counts) for each in both] == [(PRODUCTION, False)] * 2


def test_a_gateway_has_the_name_of_the_one_before_it_and_not_of_one_that_runs(tmp_path: Path) -> None:
    one, other = GatewayName(tmp_path / "gateway"), GatewayName(tmp_path / "gateway")
    assert one.name != other.name
    one.close()
    again = GatewayName(tmp_path / "gateway")
    assert again.name == one.name
    nowhere = GatewayName(tmp_path / "none" / "gateway")
    assert nowhere.name not in ("", one.name, other.name)
    for each in (again, other, nowhere):
        each.close()


async def test_requests_of_one_session_that_come_at_once_are_told_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journeyman.db"
    open_rollouts(path).close()
    with assigner(partial(open_rollouts, path, patience=0.05)) as gateway:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        first = asyncio.ensure_future(gateway.arm(at(1.0), "s"))
        await asyncio.sleep(0.02)
        others = [asyncio.ensure_future(gateway.arm(at(1.0), "s")) for _ in range(20)]
        await asyncio.sleep(0)
        # Whoever waits for nothing any more takes nobody's answer away.
        first.cancel()
        other.execute("rollback")
        other.close()
        assert len({(each.arm, each.counts) for each in await asyncio.gather(*others)}) == 1


async def test_a_store_that_is_away_is_not_asked_for_each_session() -> None:
    asked = 0

    def away() -> RolloutStore:
        nonlocal asked
        asked += 1
        raise StoreError("it is away")

    with assigner(away) as gateway:
        await gateway.arm(at(1.0), "first")
        before = asked
        for number in range(99):
            assert (await gateway.arm(at(1.0), str(number))).arm == PRODUCTION
        assert asked - before < 50
    assert gateway.degraded == 100


def _gateway(url: str, seed: int, said: str) -> None:
    """A gateway that forgets all now and then, whose shares go up and down, until it is killed."""
    chance = random.Random(seed)

    async def serve() -> None:
        with Path(said).open("a", buffering=1) as log:
            while True:
                gateway = Assigner(partial(open_rollouts, url), timeout_seconds=5.0)
                rollout = at(chance.choice((0.01, 0.05, 0.5)))
                for _ in range(60):
                    session = str(chance.randrange(400))
                    log.write(f"{session} {(await gateway.arm(rollout, session)).arm}\n")
                gateway.close()

    asyncio.run(serve())


@pytest.mark.service
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_two_gateways_that_are_killed_in_the_middle_agree_on_every_session(tmp_path: Path, kind: str) -> None:
    if kind == "sqlite":
        _agree(tmp_path, f"sqlite:///{tmp_path / 'journeyman.db'}")
    else:
        with postgres.database() as url:
            _agree(tmp_path, url)


def _agree(tmp_path: Path, url: str) -> None:
    open_rollouts(url).close()
    context = multiprocessing.get_context("spawn")
    logs = []
    for turn in range(3):
        logs += [tmp_path / f"log-{turn}-{number}" for number in range(2)]
        pair = [context.Process(target=_gateway, args=(url, turn * 2 + at, str(path))) for at, path in enumerate(logs[-2:])]
        for each in pair:
            each.start()
        until = time.monotonic() + 20
        while time.monotonic() < until and not all(path.exists() and path.stat().st_size > 2000 for path in logs[-2:]):
            time.sleep(0.02)
        for each in pair:
            assert each.pid is not None
            os.kill(each.pid, signal.SIGKILL)
            each.join()
    seen: dict[str, set[str]] = {}
    for path in logs:
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                session, arm = line.split()
                seen.setdefault(session, set()).add(arm)
    assert len(seen) > 100
    assert [session for session, arms in seen.items() if len(arms) > 1] == []
    with open_rollouts(url) as store:
        kept = {each.unit: each.arm for each in store.assignments("r1")}
    assert {session: kept[unit_of("s" * 32, session).id] for session in seen} == {
        session: min(arms) for session, arms in seen.items()
    }


def test_a_rollout_that_was_rolled_back_draws_nobody() -> None:
    over = at(0.5).then(EventKind.ROLLBACK, Cause(reason="it harms", actor="monitor", at=NOON))
    assert not over.is_drawing
    assert over.shares == {}
