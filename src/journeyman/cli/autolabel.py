"""`journeyman traces autolabel`: what follows from people's labels for the rest, with a promise of how much of it is right."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from journeyman.cli.console import say
from journeyman.cli.trace_filters import opened, reading
from journeyman.core.errors import InputError
from journeyman.core.format import counted
from journeyman.stores.traces.base import TraceStore

if TYPE_CHECKING:
    from journeyman.rewards.auto_labeler import Audit, AutoLabeler


@click.command()
@click.option(
    "--guarantee",
    "--threshold",
    "guarantee",
    type=click.FloatRange(0.5, 0.999),
    default=0.9,
    show_default=True,
    metavar="SHARE",
    help="Least share of its labels that is right; --threshold is its former name.",
)
@click.option(
    "--confidence",
    type=click.FloatRange(0.5, 0.999),
    default=0.9,
    show_default=True,
    metavar="CHANCE",
    help="How sure that is.",
)
@click.option(
    "--audit-share",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    metavar="SHARE",
    help="Of its labels, those that a person is asked about.",
)
@click.option("--audit", is_flag=True, help="Only say how its labels did with people, and withdraw them where they failed.")
@click.option("--undo", is_flag=True, help="Take back what its last round changed, labels and withdrawals alike.")
@click.option("--embedder", metavar="NAME", default="", help="Look at the words, too: hashing:32, for instance.")
@click.option("--dry-run", is_flag=True, help="Say what would be changed, and change nothing.")
@reading
def autolabel(  # noqa: PLR0913 - a parameter an option
    *,
    guarantee: float,
    confidence: float,
    audit_share: float,
    audit: bool,
    undo: bool,
    embedder: str,
    dry_run: bool,
    store: str | None,
    quiet: bool,
) -> dict[str, Any]:
    """Learn from people's labels, and label the rest where that is sure enough.

    It labels the surest traces, as many as people's labels show that it is right about: 90 of 100 with a confidence of 0.9,
    unless you say otherwise. Where they show it of none it is silent, with exit code 1, and says about how many it needs. The
    promise holds for labels of traces that were drawn at random (journeyman traces label --random), and else as far as the
    traces that people chose are like the others.

    A person's word goes before its labels. It asks one about 1 in 20 of them (journeyman traces label --audit); where what they
    say no longer bears the promise, all its labels are withdrawn, with exit code 1.

    \b
    Examples:
      journeyman traces label --random --limit 50
      journeyman traces autolabel --dry-run
      journeyman traces autolabel --guarantee 0.95
      journeyman traces autolabel --audit
    """
    from journeyman.models import embedders
    from journeyman.rewards import auto_labeler
    from journeyman.rewards.calibration import Guarantee

    if audit and undo:
        raise InputError("--audit and --undo are two things to do; give one of them")
    with opened(store) as traces:
        if undo:
            return _undone(traces, dry_run=dry_run)
        promise = Guarantee(least=guarantee, confidence=confidence)
        labeler = auto_labeler.teach(traces, embedders.load(embedder) if embedder else None, promise)
        found = auto_labeler.audit(traces.labels(), labeler, audit_share)
        result = {**labeler.json(), "audit": found.json(), "dry_run": dry_run}
        if audit:
            return result | _audited(traces, found, dry_run=dry_run, quiet=quiet)
        return result | _labelled(traces, labeler, found, dry_run=dry_run, quiet=quiet)


def _undone(traces: TraceStore, *, dry_run: bool) -> dict[str, Any]:
    from journeyman.experiments import wiring
    from journeyman.rewards import auto_labeler

    undone = auto_labeler.undo(traces, at=wiring.now(), dry_run=dry_run)
    say(f"{counted(undone, 'trace')} {'would have' if dry_run else 'have'} what the labeler said before its last round")
    return {"undone": undone, "dry_run": dry_run}


def _labelled(traces: TraceStore, labeler: "AutoLabeler", before: "Audit", *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """A round of labels; a labeler that may not speak withdraws those of before."""
    from journeyman.experiments import wiring
    from journeyman.rewards import auto_labeler

    would = "would be " if dry_run else ""
    if labeler.silence is not None:
        withdrawn = auto_labeler.withdraw(traces, at=wiring.now(), dry_run=dry_run)
        say(f"The labeler does not speak: {labeler.silence}.")
        if withdrawn:
            say(f"{counted(withdrawn, 'label')} of its earlier rounds {would}withdrawn.")
        say("To help it: journeyman traces label --random")
        return {"good": 0, "bad": 0, "unsure": None, "withdrawn": withdrawn}
    applied = auto_labeler.apply(traces, labeler, at=wiring.now(), dry_run=dry_run)
    if not quiet:
        promise = labeler.guarantee
        say(
            f"{would}labelled {applied.good} good and {applied.bad} bad; {applied.unsure} are left to people, and "
            f"{counted(applied.withdrawn, 'earlier label')} {would}withdrawn",
            f"At most {labeler.upper or 1:.1%} of them are wrong, with confidence {promise.confidence:g}: {_counts(labeler)}",
            "That holds as far as the traces that people labelled are like the others: see journeyman traces label --random",
        )
        if not dry_run:
            drawn = auto_labeler.audit(traces.labels(), labeler, before.share).waiting
            say(f"{counted(len(drawn), 'label')} of these wait for a person's word: journeyman traces label --audit")
    return asdict(applied)


def _counts(labeler: "AutoLabeler") -> str:
    found = labeler.shown
    assert found is not None, "who speaks has shown something"
    text = f"{found.wrong} of {counted(found.said, 'label')} like these was not what people said"
    wrong, said = labeler.audited
    return text + (f", nor {wrong} of {said} that it was held to" if said else "")


def _audited(traces: TraceStore, found: "Audit", *, dry_run: bool, quiet: bool) -> dict[str, Any]:
    from journeyman.experiments import wiring
    from journeyman.rewards import auto_labeler

    if not quiet:
        say(found.sentence)
    if not found.failed:
        return {"withdrawn": 0, "silent": None}
    withdrawn = auto_labeler.withdraw(traces, at=wiring.now(), dry_run=dry_run)
    say(
        f"All its labels {'would be' if dry_run else 'are'} withdrawn: {withdrawn}. "
        + ("" if dry_run else "To bring them back: journeyman traces autolabel --undo")
    )
    return {"withdrawn": withdrawn, "silent": found.sentence}
