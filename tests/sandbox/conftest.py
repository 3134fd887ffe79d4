"""What tests of the sandboxes share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock


@pytest.fixture
def only_audit() -> Iterator[None]:
    """One process of these tests at a time: attacks look for traces of other runs on files of the host, and would find those
    of the same attacks that another one tries without walls."""
    with FileLock(Path(tempfile.gettempdir()) / "journeyman-attacks.lock", timeout=900):
        yield
