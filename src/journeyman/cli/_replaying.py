"""Phase 2 on recorded outcomes: `journeyman train planner --phase 2 --replay`."""

from collections.abc import Mapping
from typing import Any

from journeyman.cli import _planner_settings as settings
from journeyman.cli._shared import console
from journeyman.cli._training import warn_of_few
from journeyman.cli._training_planner import reinforced, show
from journeyman.learn.router import outcomes
from journeyman.planning.arenas import Replay
from journeyman.planning.policies import SavedPlanner
from journeyman.routing import reading


def run(options: Mapping[str, Any], kept: SavedPlanner, *, quiet: bool) -> dict[str, Any]:
    """Learn who does what from what is on record, and prove it on requests that were held out."""
    rows = reading.rows_of_files([options["replay"]])
    names = tuple(dict.fromkeys(name for row in rows for name in row.outcomes))
    table = outcomes.table(rows, reading.cards(names), workers=names)
    chosen = settings.reinforced(options)
    arena = Replay.of(kept.learned, table, chosen.gate.least_tasks)
    if options.get("dry_run"):
        if not quiet:
            console().print(f"{len(arena.train)} requests to practise on, {len(arena.examined)} held out; nothing was trained")
        return {"train": len(arena.train), "held_out": len(arena.examined), "dry_run": True}
    if chosen.evaluate:
        warn_of_few(len(arena.examined), chosen.gate.least_tasks)
    made = reinforced(kept.path, arena, options["output_dir"], chosen)
    if not quiet:
        show(made)
    return {"phase": 2, **made.json()}
