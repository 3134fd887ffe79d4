"""A trained router as files and as a candidate: the predictors, and in a few lines of JSON what they are used for.

DIR/policy.json            what is wanted, the best single worker, and the digest of the predictors
DIR/predictor.safetensors  the predictors
DIR/verdict.json           what the gate said, where it was asked
DIR/online.json            what was learned beyond that while serving, where it was asked for
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from journeyman.core.candidate import Candidate, Kind
from journeyman.core.errors import InputError, StoreError
from journeyman.core.release import Stage
from journeyman.core.task import packed, unpacked
from journeyman.io.atomic import write_text
from journeyman.io.files import read_text, sha256
from journeyman.optimizers.router import predict
from journeyman.optimizers.router.objective import Objective
from journeyman.optimizers.router.predict import Fitted
from journeyman.stores.artifacts import Artifacts
from journeyman.stores.base import Store
from journeyman.stores.registry import find_policy

FORMAT = "journeyman-router-1"
POLICY, PREDICTOR, VERDICT, ONLINE = "policy.json", "predictor.safetensors", "verdict.json", "online.json"


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Everything that a router needs to choose."""

    fitted: Fitted
    predictor: str
    """SHA-256 of the file of `fitted`."""
    objective: Objective
    singles: tuple[str, ...]
    """Workers that may be asked always, the best by the objective first, on the rows that were learned from."""
    dual: float = 0.0
    """Successes that a dollar is worth beyond the objective's own weight, to keep its budget."""
    unfamiliar: float = 0.0
    """The share of requests unlike those that were learned from, among those that it was chosen by."""

    most: float = 0.0
    """The largest penalty, in successes, among the answers that were learned from: scores are measured by it."""
    split: tuple[float, float, int] = (0.2, 0.15, 0)
    """Shares held out and for validation, and the seed, by which `parts` finds again what was never learned from."""
    trained_on: frozenset[str] = frozenset()
    """`task.fingerprint`s of the requests that it learned from and was chosen by; routers of before do not say it."""

    @property
    def manifest(self) -> str:
        """The text that is the candidate."""
        payload = {
            "format": FORMAT,
            "predictor": self.predictor,
            "embedder": self.fitted.embedder,
            "workers": self.fitted.workers,
            "objective": asdict(self.objective),
            "singles": self.singles,
            "dual": self.dual,
            "unfamiliar": self.unfamiliar,
            "most": self.most,
            "split": self.split,
            **({"trained_on": packed(self.trained_on)} if self.trained_on else {}),
        }
        return json.dumps(payload, indent=1, ensure_ascii=False)

    @property
    def candidate(self) -> Candidate:
        return Candidate(kind=Kind.POLICY, body=self.manifest)

    @property
    def id(self) -> str:
        return self.candidate.id

    @property
    def best(self) -> str:
        """The best single worker: what a router must beat."""
        return self.singles[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """May it choose? A policy that did not pass answers with its safe worker."""

    serves: bool
    reason: str


def write_predictor(fitted: Fitted, folder: Path) -> None:
    """Write the predictors, whose digest a policy names. What stood beside older ones goes."""
    for name in (VERDICT, POLICY, ONLINE):
        (folder / name).unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    predict.save(fitted, folder / PREDICTOR)


def save(policy: Policy, folder: Path) -> None:
    """Write the policy beside its predictors."""
    write_text(folder / POLICY, policy.manifest + "\n")


def keep(policy: Policy, folder: Path, artifacts: Artifacts) -> None:
    """Put the predictors of a saved policy among the artifacts."""
    if artifacts.put_file(folder / PREDICTOR) != policy.predictor:
        raise StoreError(f"{folder / PREDICTOR} was changed while it was kept; train again")


def read(folder: Path) -> tuple[Policy, Approval]:
    """A policy from its folder.

    Raises:
        InputError: A file is missing, or is not what it says it is.
    """
    at = folder / POLICY
    policy = _read(read_text(at).rstrip("\n"), str(at), folder / PREDICTOR)
    return policy, _verdict(folder / VERDICT, policy)


def restore(id: str, store: Store, artifacts: Artifacts) -> tuple[Policy, Approval]:
    """A policy from the store, by its id or the beginning of it.

    Raises:
        InputError: There is no such policy, or several.
    """
    candidate = find_policy(id, store, FORMAT, what="router", kept_as="folder")
    policy = of_candidate(candidate, artifacts)
    release = store.release(candidate.id)
    serves = release is not None and release.stage not in (Stage.RETIRED, Stage.ROLLED_BACK)
    said = release.moves[0].reason if release else "no gate let it pass"
    return policy, Approval(serves=serves, reason=said)


def of_candidate(candidate: Candidate, artifacts: Artifacts) -> Policy:
    """The policy that a candidate is.

    Raises:
        InputError: It is none, or its predictors are not what they were.
    """
    try:
        predictor = artifacts.path(json.loads(candidate.body)["predictor"])
    except (ValueError, KeyError, TypeError):
        raise InputError(f"{candidate.id} is no router's policy; train one with `journeyman train router`") from None
    return _read(candidate.body, candidate.id, predictor)


def _read(text: str, where: str, predictor: Path) -> Policy:
    try:
        payload: Mapping[str, Any] = json.loads(text)
        if payload["format"] != FORMAT:
            raise ValueError(f"its format is {payload['format']!r}, and {FORMAT!r} is read")
        known = {field.name for field in fields(Objective)}
        objective = {name: value for name, value in payload["objective"].items() if name in known}
        lists = {name: tuple(objective[name]) for name in ("allow", "deny") if name in objective}
        policy = Policy(
            fitted=predict.load(predictor),
            predictor=str(payload["predictor"]),
            objective=Objective(**{**objective, **lists}),
            singles=tuple(map(str, payload["singles"])),
            dual=float(payload["dual"]),
            unfamiliar=float(payload["unfamiliar"]),
            most=float(payload["most"]),
            split=(float(payload["split"][0]), float(payload["split"][1]), int(payload["split"][2])),
            trained_on=unpacked(str(payload.get("trained_on", ""))),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{where} is no router's policy ({error}); train one with `journeyman train router`") from None
    if sha256(predictor) != policy.predictor:
        raise InputError(f"{predictor} is not the file that {where} was written for; put the original back, or train again")
    if not policy.singles or not set(policy.singles) <= set(policy.fitted.workers):
        raise InputError(f"{where} names other workers than its predictors know; train again")
    return policy


def _verdict(path: Path, policy: Policy) -> Approval:
    if not path.exists():
        return Approval(serves=False, reason="no gate was asked")
    try:
        payload = json.loads(read_text(path))
        if payload["policy"] != policy.id:
            raise ValueError(f"it is of {payload['policy']!r}")
        return Approval(serves=bool(payload["passed"] or payload["forced"]), reason=str(payload["reason"]))
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no verdict on this policy ({error}); train again") from None
