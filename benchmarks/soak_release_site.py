"""What the campaign against live releases runs: gateways that are killed, an upstream that remembers what it saw, clients."""

import asyncio
import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_gateway import Answers, free_port
from journeyman.core.playbook import Bullet, Playbook
from journeyman.core.rollout import Arm, Cause, EventKind, Rollout, RolloutEvent, Slot, SlotKind, nothing, unit_of
from journeyman.core.rollout_plan import RolloutPlan
from journeyman.experiments.agents import candidate_of
from journeyman.serving.releases.assignment import session_key
from journeyman.stores import open_store
from journeyman.stores.base import Assignment
from journeyman.stores.rollouts import RolloutStore, open_rollouts
from tests.support.postgres import Cluster
from tests.support.processes import below

TEXT = "write every amount in cents"
ID, SALT, TOKEN = "campaign", "c0ffee" * 6, "0123456789abcdef-campaign"
SLOT = Slot(SlotKind.CONTEXT)
CONNECTIONS = 64
LONGEST = 60.0
_ROOT = Path(__file__).parents[1]
_PATHS = {"PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"}
_SETTINGS = '[serve]\nmonitor = false\nfeedback_token_env = "CAMPAIGN_TOKEN"\nfeedback_per_minute = 0\n'


def question(session: str, turn: int, gateway: int) -> bytes:
    messages = [{"role": "user", "content": f"{session} {turn} {gateway}"}]
    return json.dumps({"model": "m", "messages": messages}).encode()


# The upstream: what it saw is what counts.


class Seen(NamedTuple):
    """One request as it came to the upstream."""

    at: float
    session: str
    turn: int
    gateway: int
    arm: str
    same: bool
    """Whether its bytes are the client's."""


class Upstream(Answers):
    """Writes down what each request was."""

    log: Any = None

    def on_message_complete(self) -> None:
        body, self._body = self._body, b""
        session, turn, gateway = json.loads(body)["messages"][-1]["content"].split()
        arm = "canary" if TEXT.encode() in body else "production"
        same = body == question(session, int(turn), int(gateway))
        self.log.write(f"{time.time():.4f} {session} {turn} {gateway} {arm} {int(same)}\n")
        told = json.dumps(
            {
                "id": f"{session}-{turn}-{time.time_ns()}", "object": "chat.completion", "created": 1, "model": "m",
                "choices": [{"index": 0, "message": {"role": "assistant", "content": arm}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
            }
        ).encode()  # fmt: skip
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(told)
        self._transport.write(head + told)


def answering(port: int, log: Path) -> None:
    async def serve() -> None:
        with log.open("a", buffering=1) as Upstream.log:
            server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port)
            await server.serve_forever()

    asyncio.run(serve())


# Those who are killed.


class Process:
    """A process of the product, which may be killed and started again."""

    def __init__(self, folder: Path, *command: str, environment: Mapping[str, str], url: str = "") -> None:
        folder.mkdir()
        (folder / "journeyman.toml").write_text(_SETTINGS)
        self._folder, self._command, self._url = folder, (sys.executable, "-m", "journeyman", *command), url
        self._environment = {**os.environ, **_PATHS, **environment}
        self._turn = threading.Lock()
        self._log = (folder / "log").open("a")
        self._begin()

    def _begin(self) -> None:
        self.process = subprocess.Popen(
            self._command, cwd=self._folder, stdout=self._log, stderr=self._log, env=self._environment, start_new_session=True
        )

    def wait(self, seconds: float = LONGEST) -> float:
        """Seconds until it answers."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            with suppress(OSError), contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)) as asked:
                asked.request("GET", "/health")
                if asked.getresponse().status == 200:
                    return time.monotonic() - began
            time.sleep(0.05)
        raise SystemExit(f"it did not answer within {seconds:g} s: {(self._folder / 'log').read_text()[-2000:]}")

    @property
    def port(self) -> int:
        return int(self._url.rpartition(":")[2])

    def kill(self) -> None:
        """With -9, and start it again at once."""
        with self._turn:
            self.process.kill()
            self.process.wait()
            self._begin()

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._log.close()

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in (self._folder / "log").read_text()


def server_processes(server: Cluster) -> list[int]:
    return [server.pid, *below(server.pid)]


def kill_server(server: Cluster) -> None:
    pids = server_processes(server)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.01)
    for _ in range(20):
        try:
            return server.start()
        except subprocess.CalledProcessError:
            time.sleep(0.2)
    raise SystemExit("PostgreSQL did not start again")


@dataclass(slots=True, kw_only=True)
class Site:
    """All that runs for one piece."""

    folder: Path
    store: str
    server: Cluster | None
    gateways: list[Process]
    monitor: Process | None = None
    log: Path

    def seen(self) -> list[Seen]:
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [Seen(float(at), name, int(turn), int(gate), arm, same == "1") for at, name, turn, gate, arm, same in rows]

    def started(self, share: float, plan: Mapping[str, Any]) -> None:
        candidate = candidate_of(Playbook(bullets=(Bullet(id="b-1", content=TEXT, domain="general"),)))
        assert candidate is not None
        with open_store(self.store) as kept:
            kept.add_candidate(candidate)
        cause = Cause(reason="the campaign", actor="person:campaign", at=datetime.now(UTC))
        arm = Arm(name="canary", candidate_id=candidate.id, digest=candidate.digest)
        begun = Rollout(
            id=ID, slot=SLOT, arms=(arm,), baseline=nothing(), salt=SALT, plan=RolloutPlan.read(plan), verdict="passed",
            created_at=cause.at, events=(RolloutEvent(number=1, kind=EventKind.START, shares={}, cause=cause),),
        )  # fmt: skip
        with open_rollouts(self.store) as releases:
            releases.start(begun)
            releases.advance(begun.then(EventKind.RAMP, cause, begun.next_shares(share)))
        self.until(lambda: all(self._has_rollout(each) for each in self.gateways), "the gateways know the rollout")

    def _has_rollout(self, gateway: Process) -> bool:
        asked = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
        asked.request("GET", "/health")
        return ID in asked.getresponse().read().decode()

    def says(self, *command: str) -> None:
        """A command of a person."""
        environment = {**os.environ, "JOURNEYMAN_STORE": self.store}
        done = subprocess.run(
            [sys.executable, "-m", "journeyman", "releases", *command, ID, "--reason", "the campaign"],
            env=environment | _PATHS, capture_output=True, text=True, timeout=60, cwd=self.folder,
        )  # fmt: skip
        if done.returncode:
            raise SystemExit(f"journeyman releases {' '.join(command)}: {done.stdout}{done.stderr}")

    def until(self, true: Callable[[], object], what: str, seconds: float = LONGEST) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            if time.monotonic() > deadline:
                raise SystemExit(f"not within {seconds:g} s: {what}")
            time.sleep(0.1)

    def assignments(self) -> dict[str, Assignment]:
        """By unit."""
        with open_rollouts(self.store) as store:
            return {each.unit: each for each in all_of(store)}


def all_of(store: RolloutStore) -> list[Assignment]:
    found: list[Assignment] = []
    while more := store.assignments(ID, after=found[-1].seq if found else 0):
        found += more
    return found


def unit(session: str) -> str:
    return unit_of(SALT, session_key(session)).id


@contextmanager
def site(folder: Path, server: Cluster | None, *, monitored: bool = False) -> Iterator[Site]:
    with ExitStack() as held:
        folder.mkdir()
        store = held.enter_context(server.database()) if server else f"sqlite:///{folder / 'journeyman.db'}"
        open_store(store).close()
        upstream, log = free_port(), folder / "seen"
        log.touch()
        command = [sys.executable, "-m", "benchmarks.soak_release_site", str(upstream), str(log)]
        answers = subprocess.Popen(command)
        held.callback(answers.wait)
        held.callback(answers.kill)
        made = Site(folder=folder, store=store, server=server, gateways=[], log=log)
        environment = {"JOURNEYMAN_STORE": store, "CAMPAIGN_TOKEN": TOKEN}
        for number in range(2):
            port = free_port()
            address = f"up=http://127.0.0.1:{upstream}/v1"
            command = ["serve", "--port", str(port), "--upstream", address]
            place = folder / f"gateway-{number}"
            made.gateways.append(Process(place, *command, environment=environment, url=f":{port}"))
            held.callback(made.gateways[-1].stop)
        for each in made.gateways:
            each.wait()
        if monitored:
            made.monitor = Process(folder / "monitor", "monitor", "--every", "1", environment=environment)
            held.callback(made.monitor.stop)
        yield made


# The clients.


class Job(NamedTuple):
    at: float
    """From 0 to 1, of the run."""
    session: str
    turn: int
    """Below 0: what is said of the session."""
    gateway: int


def jobs(chance: random.Random, sessions: int, turns: int, *, spread: float, words: bool) -> list[Job]:
    """Half of the sessions begin by both gateways at once; the other requests come whenever, by either."""
    found = []
    for number in range(sessions):
        session, first = f"s{number:05}", chance.uniform(0, 1 - spread)
        gateway = chance.randrange(2)
        found.append(Job(first, session, 0, gateway))
        at_once = chance.random() < 0.5
        later = [first if at_once and turn == 1 else first + chance.uniform(0, spread) for turn in range(1, turns)]
        found += [
            Job(at, session, turn, 1 - gateway if turn == 1 else chance.randrange(2)) for turn, at in enumerate(later, start=1)
        ]
        if words:
            found.append(Job(max([first, *later]), session, -1, chance.randrange(2)))
    return sorted(found)


@dataclass(slots=True)
class Traffic:
    """What the clients saw."""

    answered: list[tuple[float, float, str]] = field(default_factory=list)
    """When each request began and ended, and its session."""
    failed: list[tuple[float, str]] = field(default_factory=list)
    """When a chat was not answered, and why; it is sent again."""
    words: dict[str, float] = field(default_factory=dict)
    """When what is said of a session was acknowledged, by its id."""
    done: int = 0
    given_up: int = 0


def outcome(session: str, seed: int) -> float:
    """What a session comes to is of it and its arm alone."""
    worth = random.Random(f"{seed} {session}").random()
    on_canary = unit_of(SALT, session_key(session)).bucket < 0.5
    return float(worth < (0.35 if on_canary else 0.75))


class Clients:
    """Connections that take jobs in turn, each again until it is answered."""

    def __init__(self, gateways: Sequence[Process], todo: Iterable[Job], *, seconds: float = 0.0, seed: int = 0) -> None:
        """
        Args:
            todo: Taken as they are done, 64 ahead at most.
            seconds: Over which the jobs are spread; 0 is as fast as they are answered.
        """
        self.traffic = Traffic()
        self._gateways, self._todo, self._seconds, self._seed = gateways, iter(todo), seconds, seed
        self._turn = threading.Lock()
        self.began = time.time()
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(CONNECTIONS)]
        for each in self._threads:
            each.start()

    def join(self) -> Traffic:
        for each in self._threads:
            each.join()
        return self.traffic

    def _work(self) -> None:
        connections: dict[int, http.client.HTTPConnection] = {}
        while True:
            with self._turn:
                job = next(self._todo, None)
            if job is None:
                break
            time.sleep(max(0.0, self.began + job.at * self._seconds - time.time()) if self._seconds else 0.0)
            self._until_done(connections, job)
            self.traffic.done += 1
        for each in connections.values():
            each.close()

    def _until_done(self, connections: dict[int, http.client.HTTPConnection], job: Job) -> None:
        deadline, gateway = time.time() + LONGEST, job.gateway
        while time.time() < deadline:
            began = time.time()
            why = self._asked(connections, job, gateway)
            if not why:
                if job.turn < 0:
                    self.traffic.words[f"word-{job.session}"] = time.time()
                else:
                    self.traffic.answered.append((began, time.time(), job.session))
                return
            if job.turn >= 0:
                self.traffic.failed.append((time.time(), why))
            gateway = 1 - gateway
            time.sleep(0.1)
        self.traffic.given_up += 1

    def _asked(self, connections: dict[int, http.client.HTTPConnection], job: Job, gateway: int) -> str:
        """Nothing where it was answered, else why not."""
        if gateway not in connections:
            connections[gateway] = http.client.HTTPConnection("127.0.0.1", self._gateways[gateway].port, timeout=30)
        asked = connections[gateway]
        headers = {"content-type": "application/json"}
        if job.turn < 0:
            path, headers["x-journeyman-feedback-token"] = "/feedback", TOKEN
            word = {"id": f"word-{job.session}", "session": job.session, "metric": "success", "source": "ground truth"}
            body = json.dumps({**word, "value": outcome(job.session, self._seed)}).encode()
        else:
            path, body = "/v1/chat/completions", question(job.session, job.turn, gateway)
            headers |= {"x-journeyman-session": job.session, "authorization": "Bearer none"}
        try:
            asked.request("POST", path, body=body, headers=headers)
            answer = asked.getresponse()
            told = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connections.pop(gateway).close()
            return f"{type(error).__name__}: {error}"
        if 400 <= answer.status < 500:
            print(f"a fault of the campaign: {answer.status} {told[:300]!r}", file=sys.stderr)
            os._exit(2)
        return "" if answer.status == 200 else f"{answer.status}: {told[:200].decode(errors='replace')}"


if __name__ == "__main__":
    answering(int(sys.argv[1]), Path(sys.argv[2]))
