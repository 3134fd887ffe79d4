"""What holds for every test."""

import signal

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes, to make or to try, is the business of the machine, and of who else works on it.
settings.register_profile("journeyman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("journeyman")

# A shell that runs the tests in the background has them ignore Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-update", action="store_true", help="keep what the tests in tests/golden see now as what is right"
    )
