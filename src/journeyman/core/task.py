"""What is asked, and which split it belongs to."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from journeyman.core.errors import InputError
from journeyman.core.format import named


class Split(StrEnum):
    """What a task may be used for: to learn from, to choose by, or only to be examined on."""

    TRAIN = "train"
    VALIDATION = "validation"
    HELD_OUT = "held_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to do. What verifies the answer is the verifier of the dataset that the task came from."""

    id: str
    question: str
    answer: str = ""
    """The ground truth, in the form that the dataset's verifier reads. Never shown to the agent."""
    domain: str = "general"
    """Bullets learned in one domain are not shown in another."""
    split: Split = Split.TRAIN
    instructions: str = ""
    """What a capable model must be told to do this kind of task at all; empty when the question says it."""
    cluster: str = ""
    """What it has in common with others, so that they go well or badly together: a repository, a customer, a family of tasks.
    Empty where each stands alone; then so must all."""


def check_clusters(clusters: Mapping[str, str]) -> None:
    """Refuse tasks, by id, of which some have a cluster and others none: nobody can tell what these belong to.

    Raises:
        InputError: They are not alike in this.
    """
    without = sorted(id for id, cluster in clusters.items() if not cluster)
    if without and len(without) < len(clusters):
        raise InputError(
            f"{len(without)} of {len(clusters)} tasks have no cluster, though the others have one ({named(without)}); "
            "name one for each task, or for none"
        )


def is_name(value: object) -> bool:
    """Whether what a file says can name a task, an attempt or a cluster: a text or a whole number."""
    return isinstance(value, int | str) and not isinstance(value, bool) and value != ""


def content(question: str) -> str:
    """The question as it is compared: blanks and case make no other question."""
    return " ".join(question.casefold().split())


def fingerprint(question: str) -> str:
    """16 hex digits made of the question's content alone: by them it is known again, in whatever file and under whatever id."""
    return hashlib.sha256(content(question).encode(errors="surrogatepass")).hexdigest()[:16]


def fingerprints(questions: Iterable[str]) -> frozenset[str]:
    """Those of many questions: what something was trained on, in a compact form."""
    return frozenset(map(fingerprint, questions))


def packed(found: Iterable[str]) -> str:
    """Fingerprints as one text, 16 characters each, in order."""
    return "".join(sorted(found))


def unpacked(text: str) -> frozenset[str]:
    """The fingerprints of a text that `packed` made."""
    return frozenset(text[at : at + 16] for at in range(0, len(text), 16))
