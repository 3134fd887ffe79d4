"""The same text is embedded once."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from journeyman.io.atomic import atomic_write
from journeyman.models.embedders import Embedder, Vectors

log = logging.getLogger(__name__)


def _key(text: str) -> bytes:
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


class Cached:
    """An embedder that remembers, in memory and, when it is given a path and `save` is called, in a file.

    A file that another embedder has written, or that cannot be read, is as good as none: a cache may always be lost.
    """

    def __init__(self, embedder: Embedder, path: Path | None = None) -> None:
        self.embedder = embedder
        self.path = path
        self.misses = 0
        """Texts that had to be embedded."""
        self._rows: dict[bytes, NDArray[np.float32]] = {}
        if path is not None and path.exists():
            self._load(path)

    @property
    def name(self) -> str:
        return self.embedder.name

    def embed(self, texts: Sequence[str]) -> Vectors:
        keys = [_key(text) for text in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._rows}
        if new or not keys:
            made = self.embedder.embed(list(new.values()))
            if not keys:
                return made
            self._rows.update(zip(new, made, strict=True))
            self.misses += len(new)
        return np.stack([self._rows[key] for key in keys])

    def save(self) -> None:
        """Write everything to the file, whole or not at all. Without a path this does nothing."""
        if self.path is None or not self._rows:
            return
        with atomic_write(self.path) as part, part.open("wb") as file:
            keys = np.frombuffer(b"".join(self._rows), np.uint8).reshape(-1, 16)
            np.savez(file, embedder=np.array(self.name), keys=keys, rows=np.stack(list(self._rows.values())))

    def _load(self, path: Path) -> None:
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as saved:
                if str(saved["embedder"]) == self.name:
                    keys, rows = saved["keys"], saved["rows"]
                    self._rows = {key.tobytes(): row for key, row in zip(keys, rows, strict=True)}
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            log.warning("%s is no embedding cache (%s); it is made anew", path, error)
