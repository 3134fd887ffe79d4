"""What the store says is served, in a gateway: while the store is there, while it is not, and when an arm only fails."""

import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from journeyman import Playbook
from journeyman.agents.splice import RequestBody
from journeyman.core.candidate import Candidate
from journeyman.core.playbook import Bullet
from journeyman.core.rollout import Arm, EventKind, Rollout, RolloutState, Slot, SlotKind
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.experiments.agents import candidate_of
from journeyman.experiments.settings import Project
from journeyman.serving.releases.artifacts import CandidateLoader
from journeyman.serving.releases.context import SessionArm
from journeyman.serving.releases.live import LiveContext
from journeyman.stores import open_store
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from journeyman.tracing.wire.dialects import Dialect, Exchange
from tests.contracts.test_rollout_stores import NOON, begun, why
from tests.serving.gateway.test_passing import ask
from tests.serving.releases.test_assignment import server
from tests.support.gateways import Running, gateway
from tests.support.upstream import Asked, Reply, Upstream, failed, ok, upstream

pytestmark = pytest.mark.service
TEXT = "Write amounts in cents."
PLAYBOOK = Playbook(bullets=(Bullet(id="b-1", content=TEXT, domain="general"),))
SLOT = Slot(SlotKind.CONTEXT)
BODY = json.dumps({"model": "m", "messages": [{"role": "user", "content": "How much?"}]}).encode()


OTHER = Playbook(bullets=(Bullet(id="b-2", content="Write amounts in kroner.", domain="general"),))


def known(path: Path | str, playbook: Playbook = PLAYBOOK) -> Candidate:
    candidate = candidate_of(playbook)
    assert candidate is not None
    with open_store(path) as store:
        store.add_candidate(candidate)
    return candidate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journeyman.db"


@pytest.fixture
def up() -> Iterator[Upstream]:
    with upstream() as made:
        yield made


@contextmanager
def live(path: Path, up: Upstream, **config: Any) -> Iterator[tuple[Running, LiveContext]]:
    """A gateway that serves what is released in a store."""
    loader = CandidateLoader(Project(root=path.parent))
    releases = LiveContext(str(path), path.parent / "releases", loader.load, poll_seconds=0.1)
    try:
        with gateway(up.url, releases=releases, **config) as running:
            yield running, releases
    finally:
        releases.close()


def until(true: Callable[[], object], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not true() and time.monotonic() < deadline:
        time.sleep(0.02)
    return bool(true())


def drawing(releases: LiveContext) -> bool:
    """Whether sessions are on different arms somewhere."""
    return any(slot["rollout"] for slot in releases.state()["slots"].values())


def chat(running: Running, session: str) -> tuple[int, Mapping[str, str]]:
    status, headers, _ = ask(running.url, body=BODY, headers={"X-Journeyman-Session": session})
    return status, headers


def arm_of(exchange: Exchange) -> str:
    (where,) = exchange.served["release"]
    return str(where["arm"])


def started(store: RolloutStore, candidate: Candidate, share: float, **plan: Any) -> Rollout:
    rollout = replace(begun(candidate=candidate, slot=SLOT, plan=RolloutPlan.read(plan)), created_at=NOON)
    rollout = replace(rollout, arms=(Arm(name="canary", candidate_id=candidate.id),))
    store.start(rollout)
    rollout = rollout.then(EventKind.RAMP, why(), rollout.next_shares(share))
    store.advance(rollout)
    return rollout


def test_a_session_gets_what_its_arm_is_served_and_its_record_says_which(path: Path, up: Upstream) -> None:
    candidate = known(path)
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        chat(running, "before")
        rollout = started(store, candidate, 0.5)
        assert until(lambda: drawing(releases))
        for number in (*range(20), *range(20)):
            chat(running, f"s{number}")
        arms = {each.unit: each.arm for each in store.assignments("r1")}
        assert set(arms.values()) == {"canary", "production"}
        assert len(arms) == 20
        first, *rest = running.memory.exchanges
        assert not first.served
        assert up.asked[0].body == BODY
        for exchange, asked in zip(rest, up.asked[1:], strict=True):
            (where,) = exchange.served["release"]
            assert where["arm"] == arms[where["unit"]]
            assert (TEXT.encode() in asked.body, exchange.request) == (where["arm"] == "canary", asked.body)
            assert (exchange.labels.get("candidate") == candidate.id) == (where["arm"] == "canary")
        # Rolled back, every session gets the bytes of before.
        store.advance(rollout.then(EventKind.ROLLBACK, why("it harms")))
        assert until(lambda: not drawing(releases))
        for number in range(20):
            chat(running, f"s{number}")
            assert up.asked[-1].body == BODY
            assert not running.memory.exchanges[-1].served


def test_what_was_read_last_is_served_while_the_store_cannot_be_read_also_after_a_start(path: Path, up: Upstream) -> None:
    candidate = known(path)
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        rollout = started(store, candidate, 1.0)
        assert until(lambda: drawing(releases))
        rollout = rollout.then(EventKind.PROMOTE, why(), {"canary": 1.0}).then(EventKind.CONCLUDE, why())
        store.advance(rollout)
        assert until(lambda: not drawing(releases))
        chat(running, "a")
        assert TEXT.encode() in up.asked[-1].body
    # Nobody can read it any more.
    path.write_bytes(b"no database at all" * 100)
    for beside in path.parent.glob("journeyman.db-*"):
        beside.unlink()
    with live(path, up) as (running, releases):
        chat(running, "b")
        assert TEXT.encode() in up.asked[-1].body
        assert releases.state()["fault"]
        assert releases.state()["slots"]["context:*/*"]["production"] == candidate.id


def test_a_candidate_that_is_not_what_was_examined_is_not_served(path: Path, up: Upstream) -> None:
    candidate = known(path)
    with open_rollouts(path) as store:
        started(store, candidate, 1.0)
    with closing(sqlite3.connect(path)) as database:
        database.execute("update candidates set body = replace(body, 'cents', 'dollars')")
        database.commit()
    with live(path, up) as (running, releases):
        status, headers = chat(running, "a")
        assert (status, up.asked[-1].body) == (200, BODY)
        assert "x-journeyman-release" not in headers
        assert list(releases.state()["unservable"]) == [candidate.id]
        # It is on its arm all the same: what cannot be served is the candidate's own failure.
        assert arm_of(running.memory.exchanges[-1]) == "canary"


def _failing(asked: Asked) -> Reply:
    return failed(500) if TEXT.encode() in asked.body else ok({})


def test_an_arm_that_only_fails_is_stopped_by_the_gateway_itself_also_while_nothing_can_be_written(
    path: Path, up: Upstream
) -> None:
    candidate = known(path)
    up.answer = lambda asked: ok({})
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        started(store, candidate, 0.5)
        assert until(lambda: drawing(releases))
        for number in range(40):
            chat(running, f"s{number}")
        canary = [number for number in range(40) if arm_of(running.memory.exchanges[number]) == "canary"]
        assert len(canary) > 10
        up.answer = _failing
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            statuses = [chat(running, f"s{number}")[0] for number in canary]
            # The ones that were well before count as well.
            assert 500 in statuses
            assert statuses[-1] == 200
            assert list(releases.state()["brakes"]) == ["r1/canary"]
            kept = store.rollout("r1")
            assert kept is not None
            assert kept.state is RolloutState.CANARY
            other.execute("rollback")
        assert until(lambda: (now := store.rollout("r1")) is not None and now.state is RolloutState.ROLLED_BACK)
        last = store.rollout("r1")
        assert last is not None
        assert last.events[-1].cause.actor == "brake"
        assert until(lambda: releases.state()["brakes"] == {})


def test_of_new_sessions_five_failures_stop_an_arm(path: Path, up: Upstream) -> None:
    candidate = known(path)
    up.answer = _failing
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        started(store, candidate, 0.1)
        assert until(lambda: drawing(releases))
        statuses: list[int] = []
        while not releases.state()["brakes"] and drawing(releases):
            statuses.append(chat(running, f"s{len(statuses)}")[0])
            assert len(statuses) < 500
        assert statuses.count(500) == 5


def test_an_upstream_that_fails_for_everybody_is_not_the_canarys_fault(path: Path, up: Upstream) -> None:
    candidate = known(path)
    up.answer = lambda asked: failed(500)
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        started(store, candidate, 0.1)
        assert until(lambda: drawing(releases))
        for number in range(150):
            chat(running, f"s{number}")
        assert releases.state()["brakes"] == {}
        kept = store.rollout("r1")
        assert kept is not None
        assert kept.state is RolloutState.CANARY


def test_sessions_of_a_candidate_that_was_taken_out_get_production_and_the_others_stay(path: Path, up: Upstream) -> None:
    candidates = [known(path), known(path, OTHER)]
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        rollout = replace(begun(slot=SLOT), created_at=NOON)
        arms = tuple(Arm(name=f"canary-{number}", candidate_id=each.id) for number, each in enumerate(candidates, start=1))
        rollout = replace(rollout, arms=arms)
        store.start(rollout)
        rollout = rollout.then(EventKind.RAMP, why(), rollout.next_shares(0.5))
        store.advance(rollout)
        assert until(lambda: drawing(releases))

        def served() -> dict[str, tuple[str | None, bool, bool]]:
            """Of each session its arm, and which of both texts came to the model."""
            found = {}
            for number in range(24):
                _, headers = chat(running, f"s{number}")
                body = up.asked[-1].body
                found[f"s{number}"] = (headers.get("x-journeyman-arm"), TEXT.encode() in body, b"kroner" in body)
            return found

        before = served()
        assert {arm: (first, second) for arm, first, second in before.values()} == {
            "production": (False, False), "canary-1": (True, False), "canary-2": (False, True),
        }  # fmt: skip
        rollout = rollout.without("canary-2", why("it harms"))
        assert rollout.shares == {"canary-1": 0.5}
        store.advance(rollout)
        version = store.version()
        assert until(lambda: releases._snapshot.version[:2] == version[:2])
        after = served()
        for session, (arm, first, _) in before.items():
            assert after[session] == (arm, first, False)
        with open_store(path) as learned:
            moved = [learned.release(each.id) for each in candidates]
        assert [each.stage.value for each in moved if each is not None] == ["canary", "rolled_back"]
        # With the last one out it is over.
        store.advance(rollout.without("canary-1", why("this, too")))
        assert until(lambda: not drawing(releases))
        assert {texts for _, *texts in map(list, served().values()) if any(texts)} == set()


def test_the_brake_of_one_candidate_takes_that_one_out(path: Path, up: Upstream) -> None:
    candidates = [known(path), known(path, OTHER)]
    with open_rollouts(path) as store, live(path, up) as (running, releases):
        rollout = replace(begun(slot=SLOT), created_at=NOON)
        arms = tuple(Arm(name=f"canary-{number}", candidate_id=each.id) for number, each in enumerate(candidates, start=1))
        rollout = replace(rollout, arms=arms)
        store.start(rollout)
        store.advance(rollout.then(EventKind.RAMP, why(), rollout.next_shares(0.5)))
        assert until(lambda: drawing(releases))
        up.answer = lambda asked: failed(500) if b"kroner" in asked.body else ok({})
        for number in range(200):
            chat(running, f"s{number}")
            kept = store.rollout("r1")
            if kept is not None and kept.events[-1].kind is EventKind.DROP:
                break
        assert kept is not None
        assert (kept.state, kept.going, kept.events[-1].cause.actor) == (RolloutState.CANARY, ("canary-1",), "brake")
        assert until(lambda: releases.state()["brakes"] == {})


def test_sessions_that_end_while_a_reading_goes_on_do_not_break_it(path: Path) -> None:
    candidate = known(path)
    loader = CandidateLoader(Project(root=path.parent))
    with open_rollouts(path) as store:
        rollout = started(store, candidate, 0.01)
        releases = LiveContext(str(path), path.parent / "releases", loader.load, poll_seconds=3600)
        over = threading.Event()

        def end(numbers: Iterable[int]) -> None:
            for number in numbers:
                releases.ended(SessionArm("r1", str(number), "production", 2, counts=True), failed=False)
                if over.is_set():
                    break

        end(range(20_000))
        others = threading.Thread(target=end, args=(count(20_000),))
        others.start()
        try:
            for share in (0.05, 0.1, 0.2):
                rollout = rollout.then(EventKind.RAMP, why(), rollout.next_shares(share))
                store.advance(rollout)
                releases.refresh()
                assert releases.state()["fault"] == ""
        finally:
            over.set()
            others.join()
            releases.close()


def test_a_gateway_whose_postgresql_takes_connections_and_says_nothing_starts_all_the_same(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/journeyman"
        releases = LiveContext(url, tmp_path / "releases", CandidateLoader(Project(root=tmp_path)).load)
    try:
        assert releases.state()["seconds_since_read"] is None
        assert not drawing(releases)
    finally:
        releases.close()


def test_threads_that_want_it_at_once_share_one_assigner_and_one_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://someone@127.0.0.1:{silent.getsockname()[1]}/journeyman"
        releases = LiveContext(url, tmp_path, CandidateLoader(Project(root=tmp_path)).load)
        try:
            together = threading.Barrier(8)
            with ThreadPoolExecutor(8) as pool:
                made = list(pool.map(lambda _: together.wait() >= 0 and releases._assigned(), range(8)))
            assert len(set(map(id, made))) == 1
            assert len(list(tmp_path.glob("*.gateway-*"))) == 1
        finally:
            silent.close()
            releases.close()


@pytest.mark.postgres
async def test_whom_one_gateway_puts_on_an_arm_another_machines_knows_at_once_and_serves_so_when_the_server_is_gone(
    tmp_path: Path,
) -> None:
    loader, labels = CandidateLoader(Project(root=tmp_path)), {"session": "s"}
    with server() as (made, url), ExitStack() as held:
        store = held.enter_context(open_rollouts(url))
        started(store, known(url), 1.0)
        gateways = [LiveContext(url, tmp_path / name, loader.load, poll_seconds=30) for name in ("here", "there")]
        for each in gateways:
            held.callback(each.close)
        served, where = await gateways[0].serves(SlotKind.CONTEXT, labels, RequestBody(BODY, Dialect.CHAT))
        assert served is not None
        assert where is not None
        assert where.counts
        time.sleep(0.3)
        # It is told by a call: the next reading would be in half a minute.
        made.stop()
        try:
            there = await gateways[1].serves(SlotKind.CONTEXT, labels, RequestBody(BODY, Dialect.CHAT))
            assert there[0] is not None
            assert there[1] == where
            # Nobody else is served before what it promised is over.
            began = time.monotonic()
            other = await gateways[1].serves(SlotKind.CONTEXT, {"session": "new"}, RequestBody(BODY, Dialect.CHAT))
            assert other[0] is None
            assert other[1] is not None
            assert not other[1].counts
            assert 0.2 < time.monotonic() - began < 5
            # Nor is anything forgotten by one that is started again meanwhile.
            gateways[1].close()
            gateways.append(LiveContext(url, tmp_path / "there", loader.load, poll_seconds=0.1))
            held.callback(gateways[2].close)
            again = await gateways[2].serves(SlotKind.CONTEXT, labels, RequestBody(BODY, Dialect.CHAT))
            assert again[0] is not None
            assert again[1] == where
        finally:
            made.start()
        assert until(lambda: len(store.assignments("r1")) == 2)
