"""Routers and planners in the store: candidates whose body is a manifest in JSON, told apart by its format."""

import json
from collections.abc import Mapping
from typing import Any

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError
from journeyman.core.release import Stage
from journeyman.stores.base import Store


def manifest(candidate: Candidate, format: str) -> Mapping[str, Any] | None:
    """What the body of a policy says; `None` where it is of another format."""
    try:
        said = json.loads(candidate.body)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("format") == format else None


def find_policy(id: str, store: Store, format: str, *, what: str, kept_as: str) -> Candidate:
    """The one policy of a format by its id, or the beginning of it.

    Args:
        what: "router" or "planner": what it is called, and how its training is.
        kept_as: Where else it is looked for: "file" or "folder".

    Raises:
        InputError: There is no such policy, or several.
    """
    found = [each for each in store.candidates(Kind.POLICY) if each.id.startswith(id) and manifest(each, format) is not None]
    if len(found) != 1:
        known = f"{len(found)} of them begin so; type more of it" if found else f"train one with `journeyman train {what}`"
        raise InputError(f"no {what} {id!r} is in the store, and no {kept_as} is called that: {known}")
    return found[0]


def in_production(store: Store, format: str) -> str | None:
    """The id of the policy of a format that is in production, the newest of several; `None` where there is none."""
    found = [
        release.candidate_id
        for release in store.releases(Stage.PRODUCTION)
        if (candidate := store.candidate(release.candidate_id)) is not None and manifest(candidate, format) is not None
    ]
    return found[-1] if found else None
