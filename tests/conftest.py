"""What holds for every test: how many examples a property is tried with, what a test costs, and that it says so."""

import gc
import os
import re
import signal
import ssl
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

COSTS = ("service", "training", "browser", "postgres", "attacks", "slow", "nightly")
"""Marks of what is not cheap. A test with none of them is a `unit`."""

DEAREST_FIRST = ("nightly", "training", "attacks", "service", "browser", "postgres", "slow")
"""In which order the tests begin: what is long at the end leaves all but one of the processes idle."""

ALL_DEAR = re.compile(rf"^pytestmark = [^=]*?pytest\.mark\.({'|'.join(COSTS)})\b", re.MULTILINE)

# How long an example takes, to make or to try, is the business of the machine, and of who else works on it.
ANY_TIME = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("check", ANY_TIME, max_examples=10, derandomize=True)
settings.register_profile("test", ANY_TIME, max_examples=40, derandomize=True)
settings.register_profile("nightly", ANY_TIME, max_examples=500)
settings.load_profile("test")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each client of HTTP reads the certificates of all authorities, which takes longer than most tests, and none speaks TLS.
ssl.create_default_context = cache(ssl.create_default_context)  # type: ignore[assignment]  # it takes the same


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--golden-update", action="store_true", help="keep what tests/golden sees now as what is right")
    parser.addoption("--most-seconds", type=float, default=0.0, help="of CPU that a test without a mark of its cost may take")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whoever asks for units alone need not import modules that say of themselves that they hold none."""
    if config.option.markexpr != "unit" or collection_path.suffix != ".py":
        return None
    return True if ALL_DEAR.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if not any(item.get_closest_marker(cost) for cost in COSTS):
            item.add_marker(pytest.mark.unit)
    if config.option.markexpr == "unit" and "torch" in sys.modules:
        raise pytest.UsageError("a module of units imports torch: give it a pytestmark of training")
    # The sort is stable: what belongs together stays together.
    dearest = {path: min(map(_rank, tests)) for path, tests in _by_file(items).items()}
    items.sort(key=lambda item: (dearest[item.path], item.path))


def pytest_collection_finish() -> None:
    """What was imported stays, so no collection of garbage need look at it again."""
    gc.freeze()


def _by_file(items: list[pytest.Item]) -> dict[Path, list[pytest.Item]]:
    found: dict[Path, list[pytest.Item]] = {}
    for item in items:
        found.setdefault(item.path, []).append(item)
    return found


def _rank(item: pytest.Item) -> int:
    return next((at for at, cost in enumerate(DEAREST_FIRST) if item.get_closest_marker(cost)), len(DEAREST_FIRST))


def cpu() -> float:
    """Seconds that this process and the children that it waited for were at work: a machine that is busy changes little."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that is dear and does not say so fails."""
    loaded, before = "torch" in sys.modules, cpu()
    yield
    if item.config.option.markexpr == "unit" and "torch" in sys.modules and not loaded:
        pytest.fail("it loads torch, which takes longer than a hundred units: mark it with training")
    most = item.config.getoption("--most-seconds")
    if most and item.get_closest_marker("unit") and cpu() - before > most:
        pytest.fail(f"it took {cpu() - before:.1f} s of CPU: make it cheaper, or mark it with one of {', '.join(COSTS)}")
