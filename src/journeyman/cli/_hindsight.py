"""What another policy would have brought: the log is read, asked, and the answer shown."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from journeyman import embed
from journeyman.cli._shared import console
from journeyman.errors import InputError
from journeyman.learn.router.decisions import read
from journeyman.learn.router.objective import Objective, parse
from journeyman.route import find
from journeyman.routing.hindsight import OffPolicyReport, of_router, of_worker


def run(given: Mapping[str, Any], *, quiet: bool) -> dict[str, Any]:
    """Answer for one router or one worker; words go to stderr."""
    if (given["policy"] is None) == (given["always"] is None):
        raise InputError("name who would have chosen: either --policy DIR, or --always WORKER")
    logged = read(given["log"])
    if given["always"] is not None:
        found = of_worker(logged, given["always"], parse(given["objective"]) if given["objective"] else Objective())
    elif given["objective"]:
        raise InputError("a router is judged by its own objective; --objective goes with --always")
    else:
        policy, _ = find(given["policy"])
        found = of_router(logged, policy, embed.load(policy.fitted.embedder).embed)
    if not quiet:
        _tell(found)
        if given["explain_reward"]:
            _explain(found)
    return found.json()


def _tell(found: OffPolicyReport) -> None:
    screen, result = console(), found.result
    screen.print(
        f"{result.decisions} decisions ({found.skipped} without a known worth left out), as good as {result.effective:.0f} "
        f"of {found.who}'s own",
        markup=False,
    )
    table = Table("utility a request", "value", "95 % interval")
    rows = {"as logged": result.logged, **result.estimates, **({"gain (DR)": result.gain} if result.gain else {})}
    for name, each in rows.items():
        table.add_row(name, f"{each.value:+.4f}", f"{each.low:+.4f} to {each.high:+.4f}")
    screen.print(table)
    if result.refused:
        screen.print(f"no answer: {result.refused}", markup=False, soft_wrap=True)


def _explain(found: OffPolicyReport) -> None:
    screen = console()
    table = Table("term", "mean", "share", "r² with the whole")
    for share in found.reward.shares:
        table.add_row(share.term, f"{share.mean:+.4f}", f"{share.share:.0%}", "" if share.r2 is None else f"{share.r2:.3f}")
    screen.print(table)
    for warning in found.reward.warnings:
        screen.print(f"beware: {warning}", markup=False, soft_wrap=True)
