"""Learning that nobody asks for, from a shop's first refusals to orders that are taken, and back: `up` and customers."""

import json
import os
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from journeyman.tasks.desk import customers
from tests.serving.gateway.test_process import served, stopped, until
from tests.support import warm
from tests.support.clerk import clerk
from tests.support.shops import AGENT, PLAN, SETTINGS, SHOP, STEADY, TOKEN, Orders

pytestmark = [pytest.mark.service, pytest.mark.training]

TELLS = {TOKEN: "secret-of-the-shop", "JOURNEYMAN_SERVE__FEEDBACK_TOKEN_ENV": TOKEN, "JOURNEYMAN_USER": "ada"}


def run(folder: Path, *arguments: str, code: int = 0) -> dict[str, Any]:
    done = warm.run("-m", "journeyman", *arguments, "--json", cwd=folder, timeout=120, env={**os.environ, **TELLS})
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_what_a_shop_refuses_is_learned_and_served_without_a_person_and_can_be_undone(tmp_path: Path) -> None:
    (tmp_path / "journeyman.toml").write_text(SETTINGS.replace("learn = true\n", ""))
    (tmp_path / "plan.json").write_text(json.dumps(PLAN.as_json()))
    tasks = customers.orders("oslo", 2400)
    with clerk() as up, served(tmp_path, "--upstream", f"clerk={up}/v1", command="up", **TELLS) as (url, process):
        traffic = Orders(url, TELLS[TOKEN], customers.orders(STEADY, 400), 15.0)
        taken = traffic.taken[SHOP]

        def more(count: int) -> None:
            traffic.come(tasks[len(taken) :][:count])

        assert "brings what passes to live traffic" in (tmp_path / "stderr").read_text()
        more(128)
        assert sum(taken[:100]) < 30

        # Nobody does anything but order.
        def promoted() -> bool:
            more(40)
            slots = run(tmp_path, "releases", "slots")["slots"]
            return any(each["slot"] == f"context:{AGENT}/{SHOP}" and each["production"] != "base" for each in slots)

        assert until(promoted, 420), run(tmp_path, "learn", "history")
        more(50)
        assert sum(taken[-30:]) >= 27

        turns = run(tmp_path, "learn", "history")["turns"]
        turn = next(each for each in turns if each["state"] == "learned" and each["domain"] == SHOP)
        assert turn["spent"]["looks"] >= 1
        assert turn["id"] in urlopen(f"{url}/learn", timeout=30).read().decode()
        (whole,) = run(tmp_path, "learn", "history", turn["id"])["turns"]
        assert whole["before"]["command"][:5] == ["train", "playbook", "--from", "traces", "--agent"]

        # A second one has nothing to do, and says why.
        run(tmp_path, "learn", "pause", "--reason", "a look")
        other = run(tmp_path, "learn", "start", "--once", "--foreground", code=1)
        assert other["elsewhere"] == run(tmp_path, "learn", "status")["holder"]

        before = {name: digest for name, digest in whole["before"]["files"].items()}
        assert until(lambda: not run(tmp_path, "learn", "status")["running"], 60)
        undone = run(tmp_path, "learn", "undo", turn["id"], "--reason", "the walk is over")
        assert undone["served"].endswith("serves what it did before: base")
        assert {name: (tmp_path / name).exists() for name in before} == dict.fromkeys(before, False)
        assert run(tmp_path, "learn", "history", turn["id"])["turns"][0]["state"] == "undone"
        assert stopped(process) == 0
    assert run(tmp_path, "learn", "status", code=1)["daemon"]["state"] == "stopped"
