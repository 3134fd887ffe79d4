"""What a user does with feedback, from the first thumb to what turned out weeks later. All of it with real processes."""

import json
import os
import random
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.feedback import TargetKind
from journeyman.stores.rollouts import open_rollouts
from tests.serving.gateway.test_passing import ask
from tests.serving.gateway.test_process import COMPLETION, served, stopped, until
from tests.support import warm
from tests.support.upstream import ok, upstream

pytestmark = pytest.mark.service
CLIENT = """
import sys
from openai import OpenAI
raw = OpenAI().chat.completions.with_raw_response
said = [{"role": "user", "content": "Where is order 7?"}]
first = raw.create(model="m", messages=said, extra_headers={"X-Journeyman-Session": "visit-7"})
said += [{"role": "assistant", "content": first.parse().choices[0].message.content}, {"role": "user", "content": "Sure?"}]
second = raw.create(model="m", messages=said, extra_headers={"X-Journeyman-Session": "visit-7"})
print(second.headers["x-journeyman-request-id"], second.headers["x-journeyman-session"])
"""


def journeyman(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return warm.run("-m", "journeyman", *arguments, cwd=folder, timeout=120)


def listed(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(journeyman(folder, "traces", "list", "--json").stdout)["traces"]
    return found


def test_a_thumb_on_an_answer_is_seen_on_its_trace_and_corrected_weeks_later(tmp_path: Path) -> None:
    with upstream() as up, served(tmp_path, "--upstream", up.url, "--no-pages") as (url, process):
        up.answer = lambda asked: ok(COMPLETION)
        env = {**os.environ, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "k" * 20}
        client = subprocess.run([sys.executable, "-c", CLIENT], env=env, capture_output=True, text=True, timeout=60, check=True)
        request, session = client.stdout.split()
        assert session == "visit-7"
        thumb = {"request": request, "metric": "success", "value": True, "rater": "u7", "text": "thanks"}
        status, _, answer = ask(url, "/feedback", json.dumps(thumb).encode())
        assert (status, len(json.loads(answer)["ids"])) == (200, 1)
        assert until(lambda: [line["model_calls"] for line in listed(tmp_path)] == [2])
        assert stopped(process) == 0
    (line,) = listed(tmp_path)
    # The second request of a conversation: it is in the trace of the first.
    assert (line["id"] != request, line["label"], line["labelled_by"]) == (True, True, "end-user")
    shown = journeyman(tmp_path, "traces", "show", line["id"]).stdout
    assert "good (end-user" in shown
    assert "thanks" in shown
    (tmp_path / "truth.csv").write_text(f"request,value,text\n{request},false,it was in Bergen\n")
    assert journeyman(tmp_path, "feedback", "--file", "truth.csv", "--source", "ground truth").returncode == 0
    shown = journeyman(tmp_path, "traces", "show", line["id"]).stdout
    assert "bad: the ground truth says bad" in shown
    assert "it was in Bergen" in shown
    assert (listed(tmp_path)[0]["label"], listed(tmp_path)[0]["labelled_by"]) == (False, "ground-truth")


TOKEN = "0123456789abcdef"


@dataclass(slots=True)
class Speakers:
    """Who goes on saying things, each of them twice now and then, until nobody answers."""

    acknowledged: set[str] = field(default_factory=set)
    refused: list[int] = field(default_factory=list)

    def speak(self, url: str, first: str) -> None:
        for number in range(100_000):
            id = f"{first}-{number}"
            word = {"id": id, "session": f"s-{id}", "value": 1, "source": "ground truth"}
            for _ in range(1 + number % 3 // 2):
                try:
                    status, _, _ = ask(
                        url, "/feedback", json.dumps(word).encode(), headers={"x-journeyman-feedback-token": TOKEN}
                    )
                except (OSError, HTTPException):
                    return
                if status == 200:
                    self.acknowledged.add(id)
                else:
                    self.refused.append(status)

    def more(self, count: int) -> bool:
        """Wait until so many more were acknowledged."""
        before = len(self.acknowledged)
        return until(lambda: len(self.acknowledged) >= before + count)


@contextmanager
def locked(store: Path) -> Iterator[None]:
    with closing(sqlite3.connect(store, isolation_level=None, timeout=20)) as other:
        other.execute("begin immediate")
        yield
        other.execute("rollback")


def ids(store: Path) -> list[str]:
    with closing(sqlite3.connect(store)) as connection:
        return [id for (id,) in connection.execute("select id from feedback")]


def test_every_word_that_was_acknowledged_is_in_the_store_once_after_kill_9(tmp_path: Path) -> None:
    chance, speakers = random.Random(7), Speakers()
    store = tmp_path / ".journeyman" / "journeyman.db"
    (tmp_path / "journeyman.toml").write_text('[serve]\nfeedback_token_env = "FEEDBACK_TOKEN"\n')
    with upstream() as up:
        arguments = ("--upstream", up.url, "--no-pages")
        for turn in range(4):
            with served(tmp_path, *arguments, FEEDBACK_TOKEN=TOKEN) as (url, process):
                threads = [threading.Thread(target=speakers.speak, args=(url, f"{turn}-{part}")) for part in range(4)]
                for thread in threads:
                    thread.start()
                assert speakers.more(5)
                # Every other time the store is away, and what is said waits on the disk.
                with locked(store) if turn % 2 else nullcontext():
                    assert speakers.more(chance.randrange(5, 40))
                    process.kill()
                    for thread in threads:
                        thread.join(30)
        with served(tmp_path, *arguments, FEEDBACK_TOKEN=TOKEN) as (_, process):
            assert until(lambda: speakers.acknowledged <= set(ids(store)), 30)
            assert stopped(process) == 0
    kept = ids(store)
    assert (len(speakers.acknowledged) > 40, speakers.refused, len(kept)) == (True, [], len(set(kept)))
    with open_rollouts(store) as opened:
        words = opened.feedback_of((TargetKind.SESSION, f"s-{id}") for id in speakers.acknowledged)
    assert len(words) == len(speakers.acknowledged)


def test_told_to_stop_while_the_store_is_away_it_ends_soon_and_what_was_said_is_stored_at_the_next_start(
    tmp_path: Path,
) -> None:
    store = tmp_path / ".journeyman" / "journeyman.db"
    with upstream() as up:
        with served(tmp_path, "--upstream", up.url, "--no-pages") as (url, process):
            assert ask(url, "/feedback", b'{"id": "a", "session": "s1", "value": 1}')[0] == 200
            with locked(store):
                assert ask(url, "/feedback", b'{"id": "b", "session": "s1", "value": 0}')[0] == 200
                began = time.monotonic()
                assert stopped(process) == 0
                # The monitor beside it waits for the store, and is given fifteen seconds.
                assert time.monotonic() - began < 25
        with served(tmp_path, "--upstream", up.url, "--no-pages") as (_, process):
            assert until(lambda: sorted(ids(store)) == ["a", "b"])
            assert stopped(process) == 0
