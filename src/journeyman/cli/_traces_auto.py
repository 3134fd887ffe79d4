"""`journeyman traces autolabel`, and what it would like to be told."""

from dataclasses import asdict
from typing import Any

from journeyman import app, embed
from journeyman import autolabel as labeler
from journeyman.cli import _traces
from journeyman.stores.traces.base import Line, Query, TraceStore


def autolabel(url: str | None, *, threshold: float, embedder: str, dry_run: bool, quiet: bool) -> dict[str, Any]:
    """Teach a labeler and let it label; what it did, and how it stood its examination."""
    with _traces.opened(url) as store:
        taught = labeler.teach(store, embed.load(embedder) if embedder else None)
        report = taught.model.report
        found = {**report.json(), "silent": taught.silence, "threshold": threshold, "dry_run": dry_run}
        if taught.silence is not None:
            _traces.tell(f"The labeler does not speak: {taught.silence}. To help it: journeyman traces label --telling")
            return found
        applied = labeler.apply(store, taught, at=app.now(), threshold=threshold, dry_run=dry_run)
    if not quiet:
        would = "would be " if dry_run else ""
        _traces.tell(
            f"{would}labelled {applied.good} good and {applied.bad} bad; {applied.unsure} are left to people, and "
            f"{applied.withdrawn} earlier labels {would}withdrawn. AUC on tasks it had not seen: {report.auc}"
        )
    return found | asdict(applied)


def telling(store: TraceStore, wanted: Query, limit: int) -> list[Line]:
    """What a person should judge next, the most telling first."""
    asked = [trace.id for trace in labeler.ask(store, labeler.teach(store), limit, wanted)]
    lines = {line.id: line for line in store.unlabelled(labeler.POOL, wanted)}
    return [lines[id] for id in asked]
