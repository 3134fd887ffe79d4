import hashlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman.core.errors import StoreError
from journeyman.stores.artifacts import Artifacts


@given(content=st.binary())
def test_what_is_put_comes_back_under_its_digest(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    artifacts = Artifacts(tmp_path_factory.mktemp("artifacts"))
    digest = artifacts.put(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert artifacts.get(digest) == content


def test_putting_twice_is_putting_once_and_nothing_else_is_left(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path / "artifacts")
    (tmp_path / "rules.txt").write_bytes(b"rules")
    assert artifacts.put(b"rules") == artifacts.put_file(tmp_path / "rules.txt")
    assert len(list(artifacts.folder.iterdir())) == 1


def test_a_large_file_is_kept_whole(tmp_path: Path) -> None:
    content = b"weights" * 500_000
    (tmp_path / "large").write_bytes(content)
    artifacts = Artifacts(tmp_path / "artifacts")
    assert artifacts.path(artifacts.put_file(tmp_path / "large")).read_bytes() == content


def test_a_file_that_was_changed_is_refused_and_mended_by_putting_it_again(tmp_path: Path) -> None:
    artifacts = Artifacts(tmp_path)
    digest = artifacts.put(b"rules")
    (tmp_path / digest).write_bytes(b"other rules")
    with pytest.raises(StoreError, match="was changed since it was kept"):
        artifacts.get(digest)
    with pytest.raises(StoreError, match="was changed since it was kept"):
        artifacts.path(digest)
    artifacts.put(b"rules")
    assert artifacts.get(digest) == b"rules"


def test_a_digest_that_is_not_there_is_named(tmp_path: Path) -> None:
    digest = "0" * 64
    assert digest not in Artifacts(tmp_path)
    with pytest.raises(StoreError, match=f"the artifact {digest} cannot be read: No such file"):
        Artifacts(tmp_path).get(digest)


@pytest.mark.parametrize("digest", ["../secrets", "ABC", "", "0" * 63, "0" * 64 + "\n"])
def test_what_is_no_digest_never_becomes_a_path(tmp_path: Path, digest: str) -> None:
    with pytest.raises(StoreError, match="is not the digest of an artifact"):
        Artifacts(tmp_path).get(digest)


def test_a_source_or_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="nothing can be kept in"):
        Artifacts(tmp_path / "file").put(b"rules")
    with pytest.raises(StoreError, match=r"missing\.txt cannot be kept: No such file"):
        Artifacts(tmp_path).put_file(tmp_path / "missing.txt")
