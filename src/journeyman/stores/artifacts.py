"""Files by digest: playbooks, policies and weights, under a name that says what is in them."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from journeyman.core.errors import StoreError
from journeyman.io.atomic import commit, temporary_file
from journeyman.io.files import sha256

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 20


class Artifacts:
    """A folder in which every file is named by the SHA-256 of its content. Putting twice is putting once."""

    def __init__(self, folder: Path) -> None:
        """`folder` is made when something is put into it."""
        self.folder = folder

    def put(self, content: bytes) -> str:
        """Keep the bytes; their digest."""
        return self._keep([content])

    def put_file(self, path: Path) -> str:
        """Keep a copy of a file, of any size; its digest."""
        with _named(f"{path} cannot be kept"), path.open("rb") as file:
            return self._keep(_chunks(file))

    def get(self, digest: str) -> bytes:
        """The bytes, verified.

        Raises:
            StoreError: There are none of that digest, or they have been changed since.
        """
        path = self._at(digest)
        with _named(f"the artifact {digest} cannot be read"):
            content = path.read_bytes()
        _verify(path, hashlib.sha256(content).hexdigest())
        return content

    def path(self, digest: str) -> Path:
        """Where the file is, verified, for libraries that open files themselves. It must not be written to."""
        path = self._at(digest)
        with _named(f"the artifact {digest} cannot be read"):
            _verify(path, sha256(path))
        return path

    def __contains__(self, digest: str) -> bool:
        return self._at(digest).is_file()

    def _keep(self, chunks: Iterator[bytes] | list[bytes]) -> str:
        with _named(f"nothing can be kept in {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary_file(self.folder, ".new-") as part:
                digest = _copy(chunks, part)
                # Over a file that is there already as well: the content is the same, unless somebody spoilt it.
                commit(part, self._at(digest))
        return digest

    def _at(self, digest: str) -> Path:
        if not _DIGEST.fullmatch(digest):
            raise StoreError(f"{digest!r} is not the digest of an artifact, which has 64 digits from 0 to f")
        return self.folder / digest


def _copy(chunks: Iterator[bytes] | list[bytes], part: Path) -> str:
    hashed = hashlib.sha256()
    with part.open("wb") as file:
        for chunk in chunks:
            hashed.update(chunk)
            file.write(chunk)
    return hashed.hexdigest()


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk


def _verify(path: Path, digest: str) -> None:
    if digest != path.name:
        raise StoreError(f"{path} was changed since it was kept (it now has the digest {digest[:12]}…); put the original back")


@contextmanager
def _named(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"{doing}: {error.strerror}") from error
