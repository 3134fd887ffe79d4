"""When to ask a busy server again: as it asks for, else after waits that double."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long a busy server is waited for."""

    retries: int = 5
    """Calls after the first one."""
    first_wait: float = 1.0
    """Seconds, doubled each time; the real wait is a random part of it between half and all."""
    longest_wait: float = 60.0
    """Seconds. A server that asks for more is not waited for: a run must not hang for an hour in silence."""

    def wait(self, tries: int, asked: float | None, rng: random.Random) -> float | None:
        """Seconds until the next try after `tries` of them; `None` when it is not worth it."""
        if tries > self.retries or (asked is not None and asked > self.longest_wait):
            return None
        return self.backoff(tries, rng) if asked is None else asked

    def backoff(self, tries: int, rng: random.Random) -> float:
        """Seconds until the next try where the server did not ask for any; varied, so that those who failed together do not
        come back together."""
        # The power is capped first: two to the thousandth is no float.
        return min(self.first_wait * 2.0 ** min(tries - 1, 60), self.longest_wait) * rng.uniform(0.5, 1.0)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that an answer asks to wait; `None` where it does not ask, or nobody can tell what.

    `Retry-After` holds a number or a date (RFC 9110, 10.2.3); OpenAI's and Azure's servers say it more exactly in
    `Retry-After-Ms`. Names of headers are in lower case, or the mapping does not care.
    """
    exact = _number(headers.get("retry-after-ms", ""))
    if exact is not None:
        return exact / 1000
    said = headers.get("retry-after", "")
    seconds = _number(said)
    if seconds is not None:
        return seconds
    try:
        return max(0.0, (parsedate_to_datetime(said) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
