"""A report in words, for `compare` and `evaluate`."""

from collections.abc import Iterator

from journeyman.evaluation import Totals
from journeyman.examination import Report

PASSED, NOT_PASSED = 0, 1
"""Exit codes; 2 is for input that cannot be used."""


def lines(report: Report) -> Iterator[str]:
    """A small table and the gate's sentence."""
    found = report.evaluation
    if report.baseline is not None and report.candidate is not None and report.gain is not None:
        alike = report.tasks - found.wins - found.losses
        yield f"baseline   {report.baseline:.4f}"
        yield f"candidate  {report.candidate:.4f}"
        yield f"gain      {report.gain:+.4f}   95 % interval {report.low:+.4f} to {report.high:+.4f}"
        yield f"tasks      {report.tasks}   {found.wins} better, {found.losses} worse, {alike} alike"
    if report.unknown:
        yield f"unknown    {report.unknown}{_missing(report)}"
    if found.spent_baseline.attempts:
        yield f"spent      {_spent(found.spent_baseline)} by the baseline, {_spent(found.spent_candidate)} by the candidate"
    yield f"{'passed' if report.passed else 'not passed'}: {report.reason}"


def _missing(report: Report) -> str:
    found = report.evaluation
    sides = (("baseline", found.only_baseline), ("candidate", found.only_candidate))
    only = [f"{len(tasks)} only in the {side}" for side, tasks in sides if tasks]
    return f"   {', '.join(only)}" if only else ""


def _spent(totals: Totals) -> str:
    if totals.input_tokens is None or totals.output_tokens is None:
        tokens = "unknown tokens"
    else:
        tokens = f"{totals.input_tokens:,} + {totals.output_tokens:,} tokens"
    return f"{tokens} ({'cost unknown' if totals.cost is None else f'${totals.cost:.4f}'})"
