"""Solves the rate limiter."""

import threading
import time
from collections.abc import Callable


class RateLimiter:
    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        if rate <= 0 or burst <= 0:
            raise ValueError("rate and burst must be above 0")
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._buckets)

    def allow(self, key: str, cost: float = 1) -> bool:
        self._check(cost)
        with self._lock:
            tokens, at = self._filled(key)
            passed = tokens >= cost
            self._buckets[key] = (tokens - cost if passed else tokens, at)
            return passed

    def wait(self, key: str, cost: float = 1) -> float:
        self._check(cost)
        with self._lock:
            return max(0.0, (cost - self._filled(key)[0]) / self._rate)

    def prune(self) -> int:
        with self._lock:
            full = [key for key in self._buckets if self._filled(key)[0] >= self._burst]
            for key in full:
                del self._buckets[key]
            return len(full)

    def _check(self, cost: float) -> None:
        if not 0 < cost <= self._burst:
            raise ValueError(f"a cost of {cost} can never be paid")

    def _filled(self, key: str) -> tuple[float, float]:
        now = self._clock()
        tokens, at = self._buckets.get(key, (self._burst, now))
        return min(self._burst, tokens + max(0.0, now - at) * self._rate), max(now, at)
