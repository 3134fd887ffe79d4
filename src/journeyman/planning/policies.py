"""Planners as files and as candidates, and back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from journeyman import config, embed
from journeyman.candidate import Candidate, Kind
from journeyman.config import Project
from journeyman.embed.cache import Cached
from journeyman.errors import InputError
from journeyman.experiments.evaluator import existing
from journeyman.learn.planner import checkpoints, files, reinforced
from journeyman.learn.planner.predict import LearnedPlanner
from journeyman.learn.planner.reinforced import ReinforcedPlanner
from journeyman.release import Stage
from journeyman.stores import Store
from journeyman.stores.artifacts import Artifacts
from journeyman.task import fingerprints, unpacked

FORMAT = "journeyman-planner-policy-1"


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A planner that can be asked."""

    planner: LearnedPlanner | ReinforcedPlanner
    id: str
    """The candidate's, which is made of the file's content."""
    where: str
    """The file, or the candidate's id, as people are told it."""
    path: Path
    """The file."""
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of the instructions that it learned from and was chosen by."""

    @property
    def learned(self) -> LearnedPlanner:
        """What it learned in phase 1."""
        return self.planner.planner if isinstance(self.planner, ReinforcedPlanner) else self.planner


def trained_on(planner: LearnedPlanner, said: Mapping[str, Any]) -> frozenset[str]:
    """`task.fingerprint`s of what a planner learned from: the plans that it remembers, and what its file says beyond them."""
    remembered = fingerprints(example.plan.instruction for example in planner.model.encoder.memory.examples)
    further = (said.get("validated_on", ""), said.get("reinforced", {}).get("trained_on", ""))
    return remembered.union(*map(unpacked, further))


def keep(path: Path, artifacts: Artifacts) -> Candidate:
    """Put a planner's file among the artifacts; what can be evaluated and released."""
    told = {"format": FORMAT, "file": artifacts.put_file(checkpoints.resolve(path))}
    return Candidate(kind=Kind.POLICY, body=json.dumps(told))


def find(where: str) -> Kept:
    """A planner by its file, with its suffix or without, or the folder of its training, where that of phase 2 comes first; or
    by the id of its candidate or the beginning of it.

    Raises:
        InputError: There is no such planner, or several.
    """
    given = Path(where)
    for path in map(checkpoints.resolve, (given, given / "phase2_best", given / "phase1_best")):
        if path.is_file():
            return _opened(path, checkpoints.digest(path), str(path))
    project = config.load()
    with there(project) as store:
        candidate = _candidate(where, store)
    digest = _file(candidate)
    return _opened(Artifacts(project.artifacts).path(digest), digest, candidate.id)


def there(project: Project) -> Store:
    """The project's store to look into; an empty one where there is none yet."""
    return existing(project.store_url)


def in_production(store: Store) -> str | None:
    """The id of the planner that was released furthest, the newest of several; `None` where there is none."""
    found = [
        release
        for release in store.releases(Stage.PRODUCTION)
        if (candidate := store.candidate(release.candidate_id)) is not None and _file(candidate)
    ]
    return found[-1].candidate_id if found else None


def _candidate(id: str, store: Store) -> Candidate:
    found = [each for each in store.candidates(Kind.POLICY) if each.id.startswith(id) and _file(each)]
    if len(found) != 1:
        known = f"{len(found)} of them begin so; type more of it" if found else "train one with `journeyman train planner`"
        raise InputError(f"no planner {id!r} is in the store, and no file is called that: {known}")
    return found[0]


def _opened(path: Path, digest: str, where: str) -> Kept:
    tensors, said = checkpoints.load(path)
    embedder = Cached(embed.load(files.embedder_in(said)))
    told = Candidate(kind=Kind.POLICY, body=json.dumps({"format": FORMAT, "file": digest}))
    planner = reinforced.restore(tensors, said, embedder, str(path))
    kept = Kept(planner=planner, id=told.id, where=where, path=path)
    return replace(kept, trained_on=trained_on(kept.learned, said))


def _file(candidate: Candidate) -> str:
    """The digest of a planner's file; empty where the candidate is none."""
    try:
        told = json.loads(candidate.body)
    except ValueError:
        return ""
    return str(told.get("file", "")) if isinstance(told, dict) and told.get("format") == FORMAT else ""
