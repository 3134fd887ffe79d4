"""Ways out of a sandbox, tried on this machine. Each is harmless when it succeeds, and shown to succeed without walls."""

from journeyman.sandbox.attacks.base import Attack, Report, Verdict
from journeyman.sandbox.attacks.suite import check
from journeyman.sandbox.attacks.table import ATTACKS

__all__ = ["ATTACKS", "Attack", "Report", "Verdict", "check"]
