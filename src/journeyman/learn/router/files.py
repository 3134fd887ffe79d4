"""Fitted predictors as one safetensors file: the same predictors give the same bytes, and nothing in it is ever executed."""

from pathlib import Path

from journeyman.learn.router.predict import Fitted


def save(fitted: Fitted, path: Path) -> None:
    """Write it, whole or not at all."""
    raise NotImplementedError


def load(path: Path) -> Fitted:
    """Read what `save` wrote.

    Raises:
        InputError: It is not such a file, of a version that is not known, or its arrays do not fit each other.
    """
    raise NotImplementedError
