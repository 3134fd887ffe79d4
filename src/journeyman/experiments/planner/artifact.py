"""Planners as files and as candidates, and back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.task import fingerprints, unpacked
from journeyman.experiments import settings
from journeyman.models import embedders
from journeyman.models.embedders import Cached
from journeyman.optimizers.planner import artifact as planner_files
from journeyman.optimizers.planner.policy import ReinforcedPlanner
from journeyman.optimizers.planner.predict import LearnedPlanner
from journeyman.stores import open_store
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.registry import find_policy

FORMAT = "journeyman-planner-policy-1"


@dataclass(frozen=True, kw_only=True)
class SavedPlanner:
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
    policy = {"format": FORMAT, "file": artifacts.put_file(planner_files.resolve(path))}
    return Candidate(kind=Kind.POLICY, body=json.dumps(policy))


def find(where: str) -> SavedPlanner:
    """A planner by its file, with its suffix or without, or the folder of its training, where that of phase 2 comes first; or
    by the id of its candidate or the beginning of it.

    Raises:
        InputError: There is no such planner, or several.
    """
    given = Path(where)
    for path in map(planner_files.resolve, (given, given / "phase2_best", given / "phase1_best")):
        if path.is_file():
            return _opened(path, planner_files.digest(path), str(path))
    project = settings.load()
    with open_store(project.store_url, make=False) as store:
        candidate = find_policy(where, store, FORMAT, what="planner", kept_as="file")
    digest = str(json.loads(candidate.body).get("file", ""))
    return _opened(Artifacts(project.artifacts).path(digest), digest, candidate.id)


def _opened(path: Path, digest: str, where: str) -> SavedPlanner:
    tensors, metadata = planner_files.read(path)
    embedder = Cached(embedders.load(str(metadata.get("embedder", ""))))
    policy = Candidate(kind=Kind.POLICY, body=json.dumps({"format": FORMAT, "file": digest}))
    planner = planner_files.planner_of(tensors, metadata, embedder, str(path))
    saved = SavedPlanner(planner=planner, id=policy.id, where=where, path=path)
    return replace(saved, trained_on=trained_on(saved.learned, metadata))
