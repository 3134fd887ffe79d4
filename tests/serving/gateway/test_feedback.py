"""What is said of an answer is acknowledged when it is on disk, and counts once."""

import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from journeyman.core.feedback import Feedback, TargetKind
from journeyman.core.reward import Source
from journeyman.serving.gateway.feedback import FeedbackConfig, _Rates
from journeyman.stores.rollouts import open_rollouts
from tests.serving.gateway.test_passing import ask
from tests.support.gateways import Running, gateway
from tests.support.upstream import Upstream

pytestmark = pytest.mark.service
TOKEN = "0123456789abcdef0123456789abcdef"
TRUSTED = {"x-journeyman-feedback-token": TOKEN}
JSON = {"content-type": "application/json"}


@contextmanager
def desk(up: Upstream, folder: Path, *, tokens: tuple[str, ...] = (), **config: Any) -> Iterator[Running]:
    usual: dict[str, Any] = {
        "store_url": f"sqlite:///{folder / 'journeyman.db'}",
        "spill": folder / "spill",
        "tokens": (TOKEN,),
    }
    with gateway(up.url, tokens=tokens, feedback=FeedbackConfig(**{**usual, **config})) as running:
        yield running


def say(running: Running, word: object, *, path: str = "/feedback", **headers: str) -> tuple[int, dict[str, str], Any]:
    body = word if isinstance(word, bytes) else json.dumps(word).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    status, said, answer = ask(running.url, path, body, headers={**JSON, **named})
    return status, {name.lower(): value for name, value in dict(said).items()}, json.loads(answer)


def kept(folder: Path, *targets: str, kind: TargetKind = TargetKind.SESSION) -> list[Feedback]:
    with open_rollouts(folder / "journeyman.db") as store:
        return list(store.feedback_of((kind, target) for target in targets))


def rows(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "journeyman.db")) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'feedback'").fetchone():
            return 0
        return int(connection.execute("select count(*) from feedback").fetchone()[0])


def until(true: Any, seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if true():
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def running(up: Upstream, tmp_path: Path) -> Iterator[Running]:
    with desk(up, tmp_path) as served:
        yield served


def test_a_word_is_in_the_store_when_it_is_acknowledged(running: Running, tmp_path: Path) -> None:
    status, _, answer = say(running, {"session": "s1", "metric": "success", "value": True, "rater": "u7"})
    (word,) = kept(tmp_path, "s1")
    assert (status, answer) == (200, {"ids": [word.id], "known": [False]})
    assert (word.value, word.source, word.rater) == (1.0, Source.USER, "u7")
    two = [{"id": "a", "session": "s2", "value": 0}, {"session": "s2", "metric": "comment", "value": "no"}]
    status, _, answer = say(running, two, path="/journeyman/feedback")
    assert (status, answer["ids"][0], len(kept(tmp_path, "s2"))) == (200, "a", 2)
    assert 'journeyman_feedback_total{source="end user"} 3' in running.gateway.metrics.text()


def test_the_same_feedback_a_thousand_times_eight_at_a_time_is_one_row(up: Upstream, tmp_path: Path) -> None:
    word = {"id": "f1", "session": "s1", "value": 1}
    with desk(up, tmp_path) as running:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: say(running, word, **TRUSTED)[0], range(1000)))
        assert answers == [200] * 1000
        assert say(running, {**word, "value": 0}, **TRUSTED)[0] == 409
    assert [each.value for each in kept(tmp_path, "s1")] == [1.0]
    assert rows(tmp_path) == 1


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "no JSON"),
        (b"[" * 100_000, 400, "no JSON"),
        (b'{"session": "s", "value": NaN}', 400, "NaN is no number"),
        (b'{"session": "s", "value": 1e308}', 400, "value is a number"),
        (b'{"session": "s", "value": 1e999}', 400, "value is a number"),
        (b'{"session": "s", "value": 1' + b"0" * 5000 + b"}", 400, "no JSON"),
        (b'{"session": "s", "value": 1, "at": 7}', 400, "at is a time"),
        (b"[]", 400, "a list has 1 to 1,000 words, not 0"),
        (json.dumps([{"session": "s", "value": 1}] * 1001).encode(), 400, "not 1,001"),
        (json.dumps([{"session": "s", "value": 1}, {"session": "s"}]).encode(), 400, r"feedback[1]: value is missing"),
        (b'{"session": "s", "value": 1, "text": "' + b"x" * 10_000_000 + b'"}', 413, "larger than 1 MB"),
        (b'{"session": "s", "value": 1, "source": "ground truth"}', 403, "serve.feedback_token_env"),
        (b'{"session": "s", "value": 1, "source": "person", "rater": "ada"}', 403, "source person"),
    ],
)
def test_what_cannot_be_taken_is_refused_in_a_sentence_and_nothing_is_stored(
    running: Running, tmp_path: Path, body: bytes, status: int, said: str
) -> None:
    try:
        found, _, answer = say(running, body)
    except (BrokenPipeError, ConnectionResetError):
        # It may hang up on what it does not read.
        assert status == 413
    else:
        assert (found, said in answer["error"]["message"]) == (status, True)
    assert say(running, {"session": "other", "value": 1})[0] == 200
    assert rows(tmp_path) == 1


def test_ground_truth_is_taken_from_who_has_the_token_and_is_not_counted(running: Running, tmp_path: Path) -> None:
    word = {"session": "s1", "value": 0, "source": "ground_truth"}
    assert say(running, word, x_journeyman_feedback_token="x" * 32)[0] == 403
    assert say(running, word, **TRUSTED)[0] == 200
    assert say(running, [word] * 500, authorization=f"Bearer {TOKEN}")[0] == 200
    assert {each.source for each in kept(tmp_path, "s1")} == {Source.TRUTH}


def test_where_the_gateway_has_a_token_feedback_needs_one_too(up: Upstream, tmp_path: Path) -> None:
    with desk(up, tmp_path, tokens=("g" * 32,)) as running:
        word = {"session": "s1", "value": 0}
        assert say(running, word)[0] == 401
        assert say(running, word, x_journeyman_token="g" * 32)[0] == 200
        assert say(running, word, **TRUSTED)[0] == 200
        assert say(running, {**word, "source": "person"}, x_journeyman_token="g" * 32)[0] == 403


def test_nobody_may_tell_ground_truth_where_no_token_is_set(up: Upstream, tmp_path: Path) -> None:
    with desk(
        up,
        tmp_path,
        tokens=(),
    ) as running:
        assert say(running, {"session": "s1", "value": 1})[0] == 200
    with gateway(up.url, feedback=FeedbackConfig(store_url=f"sqlite:///{tmp_path / 'b.db'}", spill=tmp_path / "b")) as running:
        word = {"session": "s1", "value": 0, "source": "ground truth"}
        assert say(running, word, x_journeyman_feedback_token="")[0] == 403
    with gateway(up.url) as running:
        assert say(running, word)[0] == 404


def test_one_rater_may_say_so_much_in_a_minute_and_is_told_when_to_come_back(running: Running, tmp_path: Path) -> None:
    word = {"session": "s1", "value": 1, "rater": "u7"}
    assert [say(running, word)[0] for _ in range(20)] == [200] * 20
    status, headers, answer = say(running, word)
    assert (status, 1 <= int(headers["retry-after"]) <= 60) == (429, True)
    assert "rater u7: more than 20 words" in answer["error"]["message"]
    assert say(running, {**word, "rater": "u8"})[0] == 200
    assert say(running, [{"session": "s", "value": 1}] * 21)[0] == 429
    assert rows(tmp_path) == 21


def test_rates_are_even_and_so_many_raters_are_remembered() -> None:
    now = 0.0
    rates = _Rates(6, lambda: now)
    assert [rates.wait("a", 3) for _ in range(3)] == [0, 0, 30]
    now = 30.0
    assert rates.wait("a", 3) == 0
    assert rates.wait("a", 1) == 10
    for number in range(20_000):
        rates.wait(str(number), 1)
    assert len(rates._left) == 10_000
    assert _Rates(0, lambda: now).wait("a", 9999) == 0


def test_while_the_store_is_away_words_wait_on_the_disk_and_are_stored_after_once(up: Upstream, tmp_path: Path) -> None:
    with desk(up, tmp_path, per_minute=0) as running:
        assert say(running, {"session": "s", "value": 1})[0] == 200
        with closing(sqlite3.connect(tmp_path / "journeyman.db", isolation_level=None)) as other:
            other.execute("begin immediate")
            said = [{"id": f"f{number}", "session": f"s{number}", "value": 1} for number in range(30)]
            answers = [say(running, word) for word in (*said, *said)]
            assert [(status, answer["known"]) for status, _, answer in answers] == [(200, [None])] * 60
            # Other answers do not wait meanwhile.
            began = time.monotonic()
            assert ask(running.url, "/health", None, "GET")[0] == 200
            assert time.monotonic() - began < 1
            other.execute("rollback")
        assert until(lambda: rows(tmp_path) == 31)
        assert until(lambda: "journeyman_feedback_spilled 0" in running.gateway.metrics.text())
    assert rows(tmp_path) == 31
    assert not list((tmp_path / "spill").iterdir())


def test_where_neither_the_store_nor_the_disk_takes_a_word_it_is_told_to_come_back(up: Upstream, tmp_path: Path) -> None:
    (tmp_path / "no-folder").write_text("")
    url = f"sqlite:///{tmp_path / 'no-folder' / 'journeyman.db'}"
    with desk(up, tmp_path, store_url=url, spill_bytes=600, per_minute=0) as running:
        large = [{"session": os.urandom(99).hex(), "value": 1} for _ in range(15)]
        assert say(running, large)[0] == 503
        answers = [say(running, {"session": f"s{number}", "value": 1}) for number in range(8)]
        assert answers[0][0] == 200
        assert answers[-1][0] == 503
        assert int(answers[-1][1]["retry-after"]) > 0
    with desk(up, tmp_path):
        taken = sum(status == 200 for status, _, _ in answers)
        assert until(lambda: rows(tmp_path) == taken)


def test_secrets_in_what_is_said_are_not_kept(up: Upstream, tmp_path: Path) -> None:
    with desk(up, tmp_path, clean=lambda text: text.replace("sk-1", "[redacted]")) as running:
        assert say(running, {"session": "s1", "metric": "comment", "value": "my key is sk-1"})[0] == 200
    assert kept(tmp_path, "s1")[0].text == "my key is [redacted]"


def test_answers_flow_while_much_is_said(up: Upstream, tmp_path: Path) -> None:
    many = [{"session": f"s{number}", "value": 1} for number in range(1000)]
    with desk(up, tmp_path) as running:
        sender = threading.Thread(target=lambda: [say(running, many, **TRUSTED) for _ in range(5)])
        sender.start()
        longest = 0.0
        while sender.is_alive():
            began = time.monotonic()
            assert ask(running.url, "/health", None, "GET")[0] == 200
            longest = max(longest, time.monotonic() - began)
        sender.join()
    assert rows(tmp_path) == 5000
    assert longest < 1


def test_an_answer_tells_what_a_word_on_it_may_be_about(running: Running, up: Upstream) -> None:
    labels = {"x-journeyman-session": "visit-7", "x-journeyman-trace": "t-1", "x-journeyman-task": "order 7"}
    _, headers, _ = ask(running.url, headers=labels)
    told = {name.lower(): value for name, value in dict(headers).items()}
    assert {name: told[name] for name in labels} == labels
    assert len(told["x-journeyman-request-id"]) == 32
    assert not any(name.startswith(b"x-journeyman") for name, _ in up.asked[0].headers)
