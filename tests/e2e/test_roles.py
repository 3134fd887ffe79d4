"""Workers of an orchestrator learn from the same episodes, each from its own steps, and each is served what is its own."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from journeyman.core.task import Task
from journeyman.core.trace import AgentCall
from journeyman.tasks.desk import customers
from tests.e2e.test_from_traces import gathered, run
from tests.serving.gateway.test_process import served, stopped, until
from tests.support.clerk import clerk

pytestmark = [pytest.mark.service, pytest.mark.training]

ROLES = ("oslo", "lima")
"""Two clerks, of houses with other ways, to whom the head clerk hands the same customer's orders."""


def hand_over(url: str, number: int, orders: dict[str, Task]) -> dict[str, bool]:
    """One episode: what the head asks, and below that the work of each clerk; whether each order was taken."""
    about = {"X-Journeyman-Session": f"visit-{number}", "X-Journeyman-Domain": "shops"}
    taken = {}
    with openai.OpenAI(base_url=f"{url}/v1", api_key="key", max_retries=0) as client:
        asked: Any = [{"role": "user", "content": orders["oslo"].question}]
        head = client.chat.completions.with_raw_response.create(
            model="clerk", messages=asked, user=f"customer-{number}", extra_headers={**about, "X-Journeyman-Agent": "head"}
        )
        for role in ROLES:
            labels = {**about, "X-Journeyman-Agent": f"{role}-clerk"}
            labels["X-Journeyman-Parent"] = head.headers["x-journeyman-request-id"]
            visit = customers.Visit(task=orders[role], customer=f"customer-{number}", labels=labels)
            taken[role] = customers.chat(client, visit)
    return taken


def episodes(url: str, first: int, last: int) -> list[dict[str, bool]]:
    of = {role: customers.orders(role, 200) for role in ROLES}
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(lambda at: hand_over(url, at, {role: of[role][at] for role in ROLES}), range(first, last)))


def share(found: list[dict[str, bool]], role: str) -> float:
    return sum(each[role] for each in found) / len(found)


def test_each_role_learns_from_its_own_steps_of_the_same_episodes_and_no_other_is_served_it(tmp_path: Path) -> None:
    with clerk() as up, served(tmp_path, "--upstream", f"{up}/v1", "--no-pages") as (url, process):
        before = episodes(url, 0, 110)
        assert max(share(before, role) for role in ROLES) < 0.2
        assert until(lambda: sum(len(trace.calls) == 5 for trace in gathered(tmp_path)) == 110)
        workers = {step.agent for trace in gathered(tmp_path) for step in trace.steps if isinstance(step, AgentCall)}
        assert workers == {"oslo-clerk", "lima-clerk"}

        more = ("--reflector-model", "embedded", "--no-leave-one-out")
        learned = run(tmp_path, "train", "playbook", "--from", "traces", "--by-role", *more)
        slots = {slot["agent"]: slot for slot in learned["slots"]}
        assert {slots[f"{role}-clerk"]["verdict"] for role in ROLES} == {"checked"}, learned
        assert slots["head"]["candidate"] is None, slots["head"]

        # What is forgotten of an episode is forgotten by every role.
        files = [tmp_path / slots[f"{role}-clerk"]["playbook_path"] for role in ROLES]
        behind = [set(bullet["provenance"]["traces"]) for file in files for bullet in json.loads(file.read_text())["bullets"]]
        both = next(one & other for one in behind[:1] for other in behind[-1:])
        lowered = run(tmp_path, "traces", "forget", "--trace", min(both), "--dry-run")["playbooks"]
        assert {Path(each["file"]).name for each in lowered} == {file.name for file in files}

        about = ("--agent", "lima-clerk", "--domain", "shops", "--share", "1", "--reason", "its own refusals taught it")
        run(tmp_path, "releases", "start", slots["lima-clerk"]["candidate"], *about)
        assert until(lambda: share(episodes(url, 110, 112), "lima") == 1.0)
        after = episodes(url, 112, 142)
        assert share(after, "lima") >= 0.9
        assert share(after, "oslo") < 0.2
        assert stopped(process) == 0
