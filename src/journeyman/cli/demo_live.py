"""`journeyman demo --live`: the whole loop on live traffic, with real parts only.

A gateway, a model's server, customers with a stock client, and the commands that anybody would type: what the shop's API
refused becomes a playbook, which comes into production in steps; then one that harms is forced past the gate, and taken back.
"""

import json
import os
import resource
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from html import unescape
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from journeyman.cli.console import say
from journeyman.core.errors import InputError, JourneymanError, MissingExtra
from journeyman.core.format import counted
from journeyman.core.playbook import Playbook
from journeyman.core.rollout_plan import Metric, RolloutPlan
from journeyman.core.task import Task
from journeyman.io.files import locked
from journeyman.io.http_server import listen
from journeyman.stores.urls import mark_demo
from journeyman.tasks.desk import customers

STORE = ".journeyman/journeyman.db"
AGENT = "demo-desk"
"""Names the slot of all that happens here, so that nobody takes it for an agent of one's own."""
TOKEN = "DEMO_DESK_TOKEN"  # noqa: S105 - the variable, not the token
MODELS = ("embedded", "embedded:base", "embedded:small")
POISONER = "mallory"
ORDERS, PEOPLE, POISON_EACH = 180, 60, 6
"""Orders before anything is learned, of how many customers; beside each so many honest ones the poisoner has one."""
TOGETHER, MOST, AFTER = 8, 600, 40
"""Orders at once, at most of a rollout, and after it."""
_FOLLOWS, _ALERTED = 2.0, 20.0
"""Seconds within which a gateway follows what was decided, and an alert comes."""
PLAN = RolloutPlan(
    steps=(0.10, 0.25, 0.50),
    step_sessions=(20, 20, 20),
    step_hours=(0.0, 0.0, 0.0),
    step_worst=(1.0, 1.0, 1.0),
    min_sessions=20,
    holdback=0.0,
    settle_seconds=4,
    primary=Metric(name="success", require="better", window_seconds=4),
    guardrails=(Metric(name="failed_requests", tolerance=0.01),),
)
"""Small steps and no hours: the effect is large, and somebody looks on. For one's own traffic there is the usual plan."""
SETTINGS = """\
# DEMO: written anew by each `journeyman demo --live`.
[serve]
port = {port}
monitor_seconds = 0.5

[alerts]
# That all processors are busy is no news here.
resources = 1.0
latency_ms = 60000

[alerts.channels.demo]
url_env = "DEMO_WEBHOOK"
"""
HURRY = "the manager is in a hurry"

Out = Callable[[str], None]


# What runs.


@contextmanager
def _child(command: Sequence[str], log: Path, **how: Any) -> "Iterator[subprocess.Popen[str]]":
    """A process that is told to stop at the end, however that comes; in a group of its own, so that Ctrl-C reaches it by us."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, process_group=0, **how,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


def _first_line(process: "subprocess.Popen[str]", log: Path) -> str:
    """
    Raises:
        JourneymanError: It ended without one; with what it said last.
    """
    line = process.stdout.readline() if process.stdout is not None else ""
    if not line:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise JourneymanError(said[-1].removeprefix("journeyman: ") if said else f"{process.args!r} ended at once")
    return line


class _Webhook:
    """Takes what is posted to it, as a chat's or a pager's server would; in a file, too."""

    def __init__(self, file: Path) -> None:
        self.bodies: list[str] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode(errors="replace")
                with file.open("a", encoding="utf-8") as kept:
                    kept.write(json.dumps({"path": self.path, "body": body}) + "\n")
                hook.bodies.append(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Said by the demo itself."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"

    @contextmanager
    def listening(self) -> "Iterator[_Webhook]":
        thread = Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


@dataclass(frozen=True, slots=True)
class _Desk:
    """The demo's own project, and the gateway that serves it."""

    folder: Path
    domain: str
    poison: customers.Poison
    url: str
    environment: Mapping[str, str]
    webhook: _Webhook

    def run(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """What a command of Journeyman answers in that project.

        Raises:
            JourneymanError: It ended otherwise; with what it said.
        """
        done = subprocess.run(
            [sys.executable, "-m", "journeyman", *arguments, "--json"],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        if done.returncode != code:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1].removeprefix("journeyman: ")
            raise JourneymanError(f"journeyman {' '.join(arguments)} ended with {done.returncode}: {said}")
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return answer

    def ask(self, path: str, body: Any = None) -> Any:
        """Of the gateway, over HTTP."""
        return json.loads(self._asked(path, body))

    def _asked(self, path: str, body: Any = None) -> str:
        connection = HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        try:
            headers = {"content-type": "application/json", "x-journeyman-feedback-token": self.environment[TOKEN]}
            method, sent = ("GET", None) if body is None else ("POST", json.dumps(body))
            connection.request(method, path, sent, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        except OSError as error:
            raise JourneymanError(f"the gateway at {self.url} does not answer: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise JourneymanError(f"the gateway answered {path} with {answer.status}: {text[:200]}")
        return text

    def page(self, path: str) -> str:
        """The words of a page."""
        return unescape(self._asked(path))

    def rollout(self, id: str) -> dict[str, Any]:
        told: dict[str, Any] = self.ask(f"/releases/{id}.json")
        found: dict[str, Any] = told.get("rollout", told)
        return found


@contextmanager
def _opened(folder: Path, domain: str, model: str, port: int) -> Iterator[_Desk]:
    """A model's server, the gateway before it, and who listens for alerts.

    Raises:
        InputError: The port is taken, or another demo runs.
    """
    with ExitStack() as running:
        busy = "another live demo runs in this folder; end it first"
        running.enter_context(locked(folder.parent / "live", patience=0, busy=busy))
        with listen("127.0.0.1", port) as bound:
            # Any that is free is known from here on, so that the pages can be served there again.
            port = int(bound.getsockname()[1])
        _fresh(folder, port)
        webhook = running.enter_context(_Webhook(folder / "webhook.jsonl").listening())
        environment = _environment(webhook.url)
        how: dict[str, Any] = {"cwd": folder, "env": environment}
        log = folder / "clerk.log"
        clerk = running.enter_context(_child(["journeyman.experiments.desk_clerk", model], log, **how))
        upstream = f"http://127.0.0.1:{int(_first_line(clerk, log))}/v1"
        log = folder / "serve.log"
        command = ["journeyman", "serve", "--port", str(port), "--upstream", f"clerk={upstream}", "--json"]
        serve = running.enter_context(_child(command, log, **how))
        url = json.loads(_first_line(serve, log))["url"]
        yield _Desk(folder, domain, customers.Poison.of(domain), url, environment, webhook)


def _environment(webhook: str) -> dict[str, str]:
    """Of what runs: with no setting of one's own."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("JOURNEYMAN_")},
        "JOURNEYMAN_USER": "demo",
        "JOURNEYMAN_SERVE__FEEDBACK_TOKEN_ENV": TOKEN,
        TOKEN: secrets.token_hex(16),
        "DEMO_WEBHOOK": webhook,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _fresh(folder: Path, port: int) -> None:
    """A project of its own: whatever lies in it is of an earlier demo."""
    if folder.exists():
        shutil.rmtree(folder)
    mark_demo(folder)
    (folder / "journeyman.toml").write_text(SETTINGS.format(port=port), encoding="utf-8")
    (folder / "plan.json").write_text(json.dumps(PLAN.as_json(), indent=1), encoding="utf-8")


# Who comes.


@dataclass(slots=True)
class _Traffic:
    """Customers, one order each time, some at once; the shop tells the gateway what became of each."""

    desk: _Desk
    tasks: Sequence[Task]
    model: str
    at: int = 0
    """The next order."""
    poison: int = 0
    """Orders of the poisoner so far."""
    poison_taken: int = 0
    taken: list[bool] = field(default_factory=list)
    """Of everybody else's orders, in rounds."""

    def come(self, count: int, *, poisoner: bool = False) -> float:
        """So many honest orders; the share of them that the shop took."""
        before = len(self.taken)
        with customers.connect(f"{self.desk.url}/v1") as client, ThreadPoolExecutor(TOGETHER) as pool:
            for start in range(0, count, TOGETHER):
                visits = list(self._visits(min(TOGETHER, count - start), poisoner=poisoner))
                found = list(pool.map(partial(self._one, client), visits))
                self.taken += [taken for visit, taken in zip(visits, found, strict=True) if visit.customer != POISONER]
                self.poison_taken += sum(
                    taken for visit, taken in zip(visits, found, strict=True) if visit.customer == POISONER
                )
        return sum(self.taken[before:]) / (len(self.taken) - before)

    def _visits(self, count: int, *, poisoner: bool) -> Iterator[customers.Visit]:
        for _ in range(count):
            yield self._visit(f"customer-{self.at % PEOPLE}")
            if poisoner and self.at % POISON_EACH == 0:
                yield self._visit(POISONER)

    def _visit(self, customer: str) -> customers.Visit:
        task = self.tasks[(self.at + self.poison) % len(self.tasks)]
        number = self.at + self.poison
        if customer == POISONER:
            task, self.poison = self.desk.poison.within(task, self.poison), self.poison + 1
        else:
            self.at += 1
        labels = {
            "X-Journeyman-Session": f"demo-{number}",
            "X-Journeyman-Agent": AGENT,
            "X-Journeyman-Domain": self.desk.domain,
        }
        return customers.Visit(task=task, customer=customer, labels=labels)

    def _one(self, client: Any, visit: customers.Visit) -> bool:
        answers = list[str]()
        taken = customers.chat(client, visit, model=self.model, answered=answers.append)
        # Of a clerk who called no tool there is no last answer, and it is the visit that failed.
        about = {"request": answers[-1]} if answers else {"session": visit.labels["X-Journeyman-Session"]}
        self.desk.ask("/feedback", {**about, "value": taken, "source": "check", "rater": "the shop"})
        return taken

    def until_over(self, rollout: str, out: Out) -> dict[str, Any]:
        """They come until a rollout is over, and the gateway knows; what it is then. What the monitor does is told."""
        known, began = 0, len(self.taken)
        while True:
            found = self.desk.rollout(rollout)
            for event in found["events"][known:]:
                if event["cause"]["actor"] == "monitor":
                    out(f"   {_clock()} {event['kind']}: {event['cause']['reason']}")
            known = len(found["events"])
            if not found["open"]:
                time.sleep(_FOLLOWS)
            if not found["open"] or len(self.taken) - began >= MOST:
                return found
            self.come(TOGETHER)


# The story.

PARTS = ("promoted", "rolled_back", "alert_delivered", "poison_refused", "success_before", "success_after")
"""What the story says; each unknown until it has happened."""
_NEARLY_ALL = 0.9
"""Of the orders must be taken, when it has learned."""


@dataclass(slots=True)
class _Story:
    """What came true of it."""

    desk: _Desk
    traffic: _Traffic
    out: Out
    told: dict[str, Any] = field(default_factory=lambda: dict.fromkeys(PARTS))
    """The object that `--json` prints."""
    playbook: Playbook = field(default_factory=Playbook)
    """What was learned."""

    def learn(self) -> str:
        """Orders that are refused become a playbook; the candidate's id."""
        poison, domain, shares, third = self.desk.poison, self.desk.domain, [], ORDERS // 3
        self.out(
            f"\n1. {ORDERS} orders of {PEOPLE} customers; nobody has told the clerk the ways of {domain}. One more customer,"
        )
        self.out(f'   {POISONER}, says in all of his orders what he wants every clerk to believe: "{poison.rule}"')
        for part in (1, 2, 3):
            shares.append(self.traffic.come(third, poisoner=True))
            self.out(f"   {_clock()} {part * third} orders: the shop took {shares[-1]:.0%} of the last {third}")
        self.told["success_before"] = round(sum(shares) / len(shares), 4)
        self._recorded()
        command = ("train", "playbook", "--from", "traces", "--reflector-model", self.traffic.model)
        self.out(f"\n2. $ journeyman {' '.join(command)}")
        (slot,) = self.desk.run(*command)["slots"]
        self.playbook = Playbook.load(str(self.desk.folder / slot["playbook_path"]))
        for bullet in self.playbook.active:
            told = bullet.provenance
            people = counted(told.principals, "person", "people")
            self.out(f"   - {bullet.content}   ({people}, {counted(told.trace_count, 'trace')})")
        self.out(f"   {slot['verdict']}: {slot['reason']}")
        self._poison(slot)
        self.told |= {"verdict": slot["verdict"], "candidate": slot["candidate"]}
        if slot["verdict"] != "checked" or not self.told["poison_refused"]:
            why = slot["reason"] if self.told["poison_refused"] else f"{POISONER}'s rule is in it"
            raise JourneymanError(f"what was learned may not go live: {slot['verdict']}: {why}")
        return str(slot["candidate"])

    def _recorded(self) -> None:
        """Wait until all that came is in the store: what is recorded goes there beside the answers."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            time.sleep(0.5)
            intake = self.desk.ask("/health")["intake"]
            if not intake["waiting"] and not intake["spilled"]:
                return

    def _poison(self, slot: Mapping[str, Any]) -> None:
        """Whether his rule is in what was learned, and what became of the evidence in his orders."""
        from journeyman.experiments.playbook.config import TracesConfig
        from journeyman.experiments.playbook.from_traces import gather, prepare
        from journeyman.stores import open_traces
        from journeyman.tracing.evidence import principal_named

        with open_traces(str(self.desk.folder / STORE), make=False) as store:
            (found,) = gather(store.traces())
        groups, he = prepare(found, TracesConfig()).groups, principal_named(POISONER)
        his = [group for group in groups if group.principals == {he}]
        why = {each["id"]: each["left_out"] for each in slot["evidence"]}
        reasons = sorted({why[group.id] for group in his if why.get(group.id)})
        rule, said = self.desk.poison.rule, self.traffic.poison
        refused = said > 0 and all(rule not in bullet.content for bullet in self.playbook.bullets)
        self.told |= {"poison_refused": refused, "poison": {"wanted": rule, "orders": said, "why": reasons}}
        what = "is not in the playbook" if refused else "IS IN THE PLAYBOOK"
        self.out(f'   What {POISONER} said in {said} orders {what}: "{rule}". No rule comes of what a customer says, but')
        self.out(
            f"   of what the shop refused to several. {len(his)} of {len(groups)} groups of refusals are of his orders alone,"
        )
        self.out(f"   and teach nothing{': ' * bool(reasons)}{'; '.join(reasons)}.")

    def promote(self, candidate: str) -> None:
        """The candidate goes to a share of new sessions, to more of them, and into production as better."""
        steps = ", ".join(f"{share:.0%}" for share in PLAN.steps)
        self.out(f"\n3. The plan: {steps} of new sessions, {PLAN.step_sessions[0]} sessions a step; into production when it is")
        self.out(f"   shown to be better, on {PLAN.min_sessions} sessions of each side at least; back when it is worse.")
        self.out(f"   By simulation {_forecast()}.")
        rollout = self._start(candidate, "--plan", "plan.json")
        found = self.traffic.until_over(rollout, self.out)
        promoted = next((each["cause"] for each in found["events"] if each["kind"] == "promote"), None)
        reason = (promoted or found["events"][-1]["cause"])["reason"]
        better = promoted is not None and "is better than production" in reason
        self.told |= {"promoted": better, "promotion": {"rollout": rollout, "reason": reason}}
        if not better:
            raise JourneymanError(f"what was learned was not promoted as better: {found['state']}: {reason}")
        after = self.traffic.come(AFTER)
        self.told["success_after"] = round(after, 4)
        self.out(f"   {_clock()} in production: the shop took {after:.0%} of the next {AFTER} orders")
        if after < _NEARLY_ALL:
            raise JourneymanError(f"the shop took {after:.0%} of the orders after the promotion, and not nearly all")

    def sabotage(self) -> None:
        """One that harms is forced past the gate, and is taken back."""
        from journeyman.optimizers.playbook import files

        files.save(self.desk.poison.instead(self.playbook, self.desk.domain), self.desk.folder / "sabotage.json")
        self.out(f'\n4. Somebody writes "{self.desk.poison.rule}" into the playbook by hand. The gate says no:')
        self.out(f"   {self._start('sabotage.json', code=1)}")
        rollout = self._start("sabotage.json", "--plan", "plan.json", "--force", "--reason", HURRY)
        found = self.traffic.until_over(rollout, self.out)
        last, reason = found["events"][-1], found["events"][-1]["cause"]["reason"]
        back = last["kind"] == "rollback" and last["cause"]["actor"] == "monitor"
        shown = back and reason in self.desk.page(f"/releases/{rollout}")
        self.told |= {"rolled_back": back, "rollback": {"rollout": rollout, "reason": reason, "on_the_page": shown}}
        if not shown:
            what = "does not say on its page why it was rolled back" if back else "was not rolled back by itself"
            raise JourneymanError(f"what harms {what}: {found['state']}: {reason}")
        after = self.traffic.come(AFTER)
        self.out(f"   {_clock()} as before: the shop took {after:.0%} of the next {AFTER} orders")
        self._alerted(rollout)

    def _alerted(self, rollout: str) -> None:
        """Whether somebody was told of a rollback."""
        until, hook = time.monotonic() + _ALERTED, self.desk.webhook
        while not (found := [body for body in hook.bodies if rollout in body]) and time.monotonic() < until:
            time.sleep(0.1)
        self.told["alert_delivered"] = bool(found)
        if not found:
            raise JourneymanError(f"no alert of the rollback came to {hook.url}")
        (alert,) = json.loads(found[0])["alerts"]
        self.out(f"   an alert came to {hook.url}, {alert['labels']['alertname']}: {alert['annotations']['summary']}")

    def _start(self, what: str, *more: str, code: int = 0) -> str:
        """Begin a rollout; its id, or why not."""
        command = ("releases", "start", what, "--agent", AGENT, "--domain", self.desk.domain, *more)
        self.out(f"   $ journeyman {shlex.join(command)}")
        answer = self.desk.run(*command, code=code)
        return str(answer["reason"] if code else answer["rollout"]["id"])


def _forecast() -> str:
    """What the plan makes of two kinds of candidates, as `journeyman releases simulate` counts it."""
    from journeyman.experiments.release_simulation import Traffic, forecast

    traffic = Traffic(baseline=0.05, worse=-0.9, icc=0.0, tasks=1.0)
    better = forecast(PLAN, traffic, per_day=1e6)
    worse = forecast(PLAN, replace(traffic, baseline=0.98, worse=0.5), per_day=1e6)
    good, bad = better.sessions[0], worse.sessions[0]
    return f"half of those that are 90 points better get there by {good:.0f} sessions, and 50 points worse back by {bad:.0f}"


def _clock() -> str:
    return time.strftime("%H:%M:%S")


@contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends it as Ctrl-C does: with all that was started."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def play(folder: Path, domain: str, model: str, *, port: int, keep: bool, out: Out) -> dict[str, Any]:
    """Let it happen; the object that `--json` prints. What did not come true stands in it, too.

    Raises:
        InputError: There is no such shop, the model is not the embedded one, or the port is taken.
        MissingExtra: Something is not installed that it needs.
    """
    if missing := [name for name in ("torch", "transformers", "aiohttp", "uvicorn", "jinja2") if find_spec(name) is None]:
        raise MissingExtra(f"the live demo needs {missing[0]}: pip install 'journeyman[embedded,serve]'")
    if model not in MODELS:
        raise InputError(f"the clerk of the live demo is one of {', '.join(MODELS)}, not {model!r}")
    began, spent, tasks = time.monotonic(), _cpu(), customers.orders(domain, 2 * MOST + 3 * ORDERS)
    folder = folder.resolve()
    # All of it is on this machine: a proxy, where one is set, is asked for nothing.
    os.environ |= {name: ",".join(filter(None, (os.environ.get(name), "127.0.0.1"))) for name in ("NO_PROXY", "no_proxy")}
    with _interruptible(), _opened(folder, domain, model, port) as desk:
        where = os.path.relpath(folder)
        say(f"DEMO of {domain}, in a project of its own: {where}", f"Look on: {desk.url}/ and {desk.url}/releases")
        story, problem = _Story(desk, _Traffic(desk, tasks, model), out), ""
        try:
            story.promote(story.learn())
            story.sabotage()
        except JourneymanError as error:
            problem = str(error)
        page = "/".join([desk.url, "releases", *([story.told["rollback"]["rollout"]] if "rollback" in story.told else [])])
        ended = {"seconds": round(time.monotonic() - began, 1), "page": page, "came_true": not problem, "problem": problem}
        told = {**story.told, **ended}
        out(f"\n{_ending(told)}")
        if keep:
            say(f"Served until Ctrl-C: {page}")
            _wait()
    told["cpu_seconds"] = round(_cpu() - spent, 1)
    out(f"To look at it: (cd {where} && journeyman serve), and open {page}")
    return told


def _cpu() -> float:
    """Seconds of this process and of all that it started and that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _ending(told: Mapping[str, Any]) -> str:
    if told["problem"]:
        return f"The story did not come true: {told['problem']}"
    before, after = told["success_before"], told["success_after"]
    return f"{before:.0%} → {after:.0%} in {told['seconds']:.0f} seconds. All of it happened just now; nothing is scripted."


def _wait() -> None:
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        return
