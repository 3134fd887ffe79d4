"""`POST /feedback`: what is said of served work, acknowledged when it is on disk.

It goes into the store; while that cannot take it, into a file that outlives the process and a loss of power, and from there
into the store by its id. It does not travel with what is recorded, of which some may be dropped.
"""

import asyncio
import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING
from uuid import uuid4

from journeyman.core.errors import InputError, JourneymanError, StoreError, Unkeepable
from journeyman.core.feedback import MOST, Feedback, LabelScheme, read_feedback
from journeyman.core.reward import Source
from journeyman.io.http_server import bearer_token, known_token
from journeyman.io.metrics import MetricsRegistry
from journeyman.serving.gateway.request import Header, HTTPRejection, Send, answer_json
from journeyman.serving.ingest.spill import Spill

if TYPE_CHECKING:
    from journeyman.stores.rollouts import RolloutStore

log = logging.getLogger(__name__)

PATHS = frozenset({"/feedback", "/journeyman/feedback"})
TOKEN = b"x-journeyman-feedback-token"
LARGEST = 1 << 20
"""Bytes of a request."""
_AT_ONCE = 64
"""Requests under way; one more is told to come back."""
_RATERS = 10_000
"""Raters whose rate is remembered."""
_PATIENCE = 2.0
"""Seconds for the store; what it has not taken then is spilled."""
_REST = 1.0
"""Seconds for which a store that failed is not asked."""
_WRITERS = 2
_REPLAYED = 20
"""Requests whose words go from the spill file into the store together."""
_SPILL_MB = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedbackConfig:
    """Where feedback goes, and from whom it is taken."""

    store_url: str
    spill: Path
    """The folder of what waits while the store is away."""
    tokens: tuple[str, ...] = field(default=(), repr=False)
    """Of those who may speak for others than end users. None: nobody may."""
    per_minute: int = 20
    """Words of one rater, or of one address where no rater is named; 0 is without end. Who has a token is not counted."""
    clean: Callable[[str], str] = str
    """Takes out of a text what must not be kept."""
    scheme: LabelScheme = field(default_factory=LabelScheme)
    """What scales and categories are held to."""
    spill_bytes: int = _SPILL_MB << 20


class FeedbackKeeper:
    """Brings words to the disk: into the store, or else into the spill file, and from there into the store. Of one process."""

    def __init__(self, config: FeedbackConfig) -> None:
        """Starts to store what was left behind at once; the store need not be there."""
        self._url = config.store_url
        self._opened: RolloutStore | None = None
        self._opening = threading.Lock()
        # What came in one request is one record: all of it waits, or none.
        self._spill = Spill(config.spill, config.spill_bytes, write=_told, read=_kept, durable=True)
        self._spilling = threading.Lock()
        self._ended = threading.Event()
        self._waits = threading.Event()
        self._rests_until = 0.0
        self._asked = SimpleQueue[tuple[Sequence[Feedback], Future[Sequence[bool]]] | None]()
        # A store that does not answer must not keep the process from ending, as the threads of a pool would.
        works = (*[self._answer] * _WRITERS, self._bring)
        self._threads = [threading.Thread(target=work, name="journeyman-feedback", daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    @property
    def spilled(self) -> int:
        """Requests whose words wait for the store on the disk."""
        return self._spill.records

    async def keep(self, words: Sequence[Feedback]) -> Sequence[bool | None]:
        """Have all of them on disk; whether what each is about is known, `None` where that cannot be told now.

        Raises:
            Unkeepable: One has the id of a word that says something else.
            StoreError: Neither the store nor the spill file takes them.
        """
        if time.monotonic() >= self._rests_until and self._asked.qsize() < _AT_ONCE:
            stored: Future[Sequence[bool]] = Future()
            self._asked.put((words, stored))
            try:
                return await asyncio.wait_for(asyncio.wrap_future(stored), _PATIENCE)
            except Unkeepable:
                raise
            except (StoreError, TimeoutError) as error:
                # It may still come to an end; a word is kept once, however often it comes.
                self._rests_until = time.monotonic() + _REST
                log.warning("feedback waits on the disk, for the store does not take it: %s", str(error) or "it is too slow")
        await asyncio.to_thread(self._put_aside, words)
        return [None] * len(words)

    def close(self) -> None:
        """What waits on the disk stays there for the next process."""
        self._ended.set()
        self._waits.set()
        for _ in range(_WRITERS):
            self._asked.put(None)
        until = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        with self._spilling:
            self._spill.close()
        if self._opened is not None and not any(thread.is_alive() for thread in self._threads):
            self._opened.close()

    def _answer(self) -> None:
        while (asked := self._asked.get()) is not None:
            words, stored = asked
            if stored.set_running_or_notify_cancel():
                try:
                    stored.set_result(self._store(words))
                except Exception as error:  # noqa: BLE001 - whoever asked is told
                    stored.set_exception(error)

    def _store(self, words: Sequence[Feedback]) -> Sequence[bool]:
        return self._rollouts().add_feedback(words, now=datetime.now(UTC))

    def _rollouts(self) -> "RolloutStore":
        with self._opening:
            if self._opened is None:
                # Whoever only passes chats on need not carry what a database takes.
                from journeyman.stores.rollouts import open_rollouts

                self._opened = open_rollouts(self._url)
            return self._opened

    def _put_aside(self, words: Sequence[Feedback]) -> None:
        with self._spilling:
            if not self._spill.append(words):
                raise StoreError("the store does not take feedback now, and the file for what waits has no room")
        self._waits.set()

    def _bring(self) -> None:
        """Bring what waits on the disk into the store, over and over."""
        with self._spilling:
            if count := self._spill.recover():
                log.info("feedback of %d requests that was spilled before is stored now", count)
        wait = 0.1
        while not self._ended.is_set():
            if not self._spill.records:
                self._waits.wait()
                self._waits.clear()
                continue
            try:
                self._bring_some()
                wait = 0.1
            except JourneymanError:
                self._ended.wait(wait)
                wait = min(5.0, 2 * wait)

    def _bring_some(self) -> None:
        with self._spilling:
            part = self._spill.first(_REPLAYED)
        words = [word for request in part.found for word in request]
        try:
            self._store(words)
        except Unkeepable:
            for word in words:
                self._store_one(word)
        with self._spilling:
            self._spill.forget(part)

    def _store_one(self, word: Feedback) -> None:
        try:
            self._store([word])
        except Unkeepable as error:
            # Its id is there, with what was acknowledged first.
            log.warning("%s", error)


def _told(words: Sequence[Feedback]) -> str:
    return json.dumps([word.as_json() for word in words])


def _kept(told: object) -> Sequence[Feedback]:
    if not isinstance(told, list):
        raise InputError("spilled feedback: a list is wanted")
    return [read_feedback(each, "spilled feedback", id="", now=None) for each in told]


class _Rates:
    """How much each may say: as much as in a minute at once, and then at an even pace. Remembers a bounded number of them."""

    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._most, self._clock = per_minute, clock
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, who: str, count: int) -> float:
        """Seconds until one may say so much; 0 where it is said now. Infinite where that is too much at any time."""
        if not self._most:
            return 0.0
        if count > self._most:
            return float("inf")
        now = self._clock()
        left, then = self._left.pop(who, (float(self._most), now))
        left = min(self._most, left + (now - then) * self._most / 60)
        short = count - left
        self._left[who] = (left if short > 0 else left - count, now)
        if len(self._left) > _RATERS:
            self._left.popitem(last=False)
        return max(0.0, short * 60 / self._most)


class FeedbackDesk:
    """Takes feedback over HTTP. Of one event loop."""

    def __init__(
        self, config: FeedbackConfig, metrics: MetricsRegistry, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._config = config
        self._keeper = FeedbackKeeper(config)
        self._rates = _Rates(config.per_minute, clock)
        self._under_way = 0
        self._taken = metrics.counter(
            "journeyman_feedback_total", "Words of feedback that were acknowledged, by whose they are.", "source"
        )
        metrics.gauge("journeyman_feedback_spilled", "Requests with feedback on the disk that the store has not taken yet.",
                      lambda: self._keeper.spilled)  # fmt: skip

    def close(self) -> None:
        self._keeper.close()

    def knows(self, headers: Sequence[Header]) -> bool:
        """Whether who sends these may speak for others than end users."""
        tokens = self._config.tokens
        given = [value for name, value in headers if name == TOKEN and known_token(value, tokens)]
        return bool(given) or any(name == b"authorization" and bearer_token(value, tokens) for name, value in headers)

    async def take(self, body: bytes, send: Send, *, trusted: bool, client: str) -> None:
        """Answer 200 when all of it is on disk.

        Raises:
            HTTPRejection: (400) It is no feedback; (403) it speaks for others; (409) an id is another word's; (429) it is too
                much; (503) neither the store nor the disk takes it. Nothing of it is kept then.
        """
        if self._under_way >= _AT_ONCE:
            raise HTTPRejection(429, "too much feedback at once: come back in a second", "too_much", retry_after=1)
        self._under_way += 1
        try:
            words = await asyncio.to_thread(self._read, body)
            if not trusted:
                self._allow(words, client)
            known = await self._keeper.keep(words)
        except InputError as error:
            raise HTTPRejection(400, str(error), "invalid") from None
        except Unkeepable as error:
            raise HTTPRejection(409, str(error), "conflict") from None
        except StoreError as error:
            raise HTTPRejection(503, str(error), "unavailable", retry_after=5) from None
        finally:
            self._under_way -= 1
        for word in words:
            self._taken(word.source.value).inc()
        await answer_json(send, {"ids": [word.id for word in words], "known": list(known)})

    def _read(self, body: bytes) -> list[Feedback]:
        given, now = _parsed(body), datetime.now(UTC)
        items = given if isinstance(given, list) else [given]
        if not 0 < len(items) <= MOST:
            raise InputError(f"feedback: a list has 1 to {MOST:,} words, not {len(items):,}")
        named = ("feedback" if items is not given else f"feedback[{number}]" for number in range(len(items)))
        scheme, clean = self._config.scheme, self._config.clean
        read = ((read_feedback(each, where, id=uuid4().hex, now=now), where) for each, where in zip(items, named, strict=True))
        return [scheme.cleaned(scheme.placed(word, where), clean) for word, where in read]

    def _allow(self, words: Sequence[Feedback], client: str) -> None:
        if others := {word.source for word in words} - {Source.USER}:
            said = (
                f"source {min(others)}: only who has the token of serve.feedback_token_env may speak for others than end users"
            )
            raise HTTPRejection(403, f"{said}; send it as X-Journeyman-Feedback-Token", "forbidden")
        counts: dict[str, int] = {}
        for word in words:
            who = f"rater {word.rater}" if word.rater else f"address {client}"
            counts[who] = counts.get(who, 0) + 1
        for who, count in counts.items():
            if wait := self._rates.wait(who, count):
                said = f"{who}: more than {self._config.per_minute} words of feedback in a minute (serve.feedback_per_minute)"
                raise HTTPRejection(429, said, "too_much", retry_after=min(wait, 60))


def _parsed(body: bytes) -> object:
    try:
        return json.loads(body, parse_constant=_no_number)
    except InputError:
        raise
    except (ValueError, RecursionError):
        raise InputError("feedback: the body is no JSON") from None


def _no_number(name: str) -> object:
    raise InputError(f"feedback: {name} is no number")
