"""Fitted predictors as one safetensors file: the same predictors give the same bytes, and nothing in it is ever executed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from journeyman.errors import InputError
from journeyman.io.atomic import atomic_write
from journeyman.learn.router.calibrate import Calibration
from journeyman.learn.router.features import COUNTED, Space
from journeyman.learn.router.members import Clusters, Linear, NearestNeighbours, Network
from journeyman.learn.router.predict import Amount, Fitted, Mixture
from journeyman.policy import Card

VERSION = 1
_KEY = "journeyman.router"
"""The one key of the file's metadata: several would come in any order, and the bytes would not be the same twice."""
_MOST = 1 << 29
"""Bytes of a file that is still read."""

Array = NDArray[Any]


def save(fitted: Fitted, path: Path) -> None:
    """Write it, whole or not at all.

    Raises:
        InputError: It cannot be written.
    """
    from safetensors.numpy import save as packed  # Heavy, and needed for files only.

    header = {
        "version": VERSION,
        "embedder": fitted.embedder,
        "cards": [asdict(card) for card in fitted.cards],
        "types": list(fitted.types),
        "rows": fitted.rows,
        "strange": fitted.strange,
        "unit": fitted.space.unit,
        "k": fitted.success.neighbours.k,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in _arrays(fitted).items()}
    content = packed(arrays, {_KEY: json.dumps(header, ensure_ascii=False, sort_keys=True)})
    with atomic_write(path) as part:
        part.write_bytes(content)


def load(path: Path) -> Fitted:
    """Read what `save` wrote.

    Raises:
        InputError: It is not such a file, of a version that is not known, or its arrays do not fit each other.
    """
    from safetensors import SafetensorError, safe_open  # Heavy, and needed for files only.

    try:
        if path.stat().st_size > _MOST:
            raise InputError(f"{path} is larger than a router's file can be; train it again")
        with safe_open(str(path), framework="numpy") as file:
            header_text = (file.metadata() or {}).get(_KEY)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except SafetensorError as error:
        raise InputError(f"{path} is no safetensors file ({error}); train a router with `journeyman train router`") from None
    if header_text is None:
        raise InputError(f"{path} holds no router; train one with `journeyman train router`")
    try:
        return _read(json.loads(header_text), arrays)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is no router that can be used: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _arrays(fitted: Fitted) -> dict[str, Array]:
    mixture = fitted.success
    parts: Mapping[str, object] = {
        "space": fitted.space,
        "linear": mixture.linear,
        "clusters": mixture.clusters,
        "neighbours": mixture.neighbours,
        "network": mixture.network,
        "success": mixture,
        "calibration": fitted.calibration,
        "cost": fitted.cost,
        "seconds": fitted.seconds,
    }
    return {
        f"{name}.{field.name}": value
        for name, part in parts.items()
        for field in fields(part)  # type: ignore[arg-type]
        if isinstance(value := getattr(part, field.name), np.ndarray)
    }


class _Sizes:
    """What the letters in a shape stand for: the first array says it, and the others must agree."""

    def __init__(self, arrays: Mapping[str, Array], **known: int) -> None:
        self.arrays, self.known = arrays, known

    def __call__(self, part: str, kind: type, **shapes: str) -> dict[str, Array]:
        """Checked arrays of one part. A shape is written like "d q"; `kind` is that of the numbers."""
        return {name: self._checked(f"{part}.{name}", kind, shape.split()) for name, shape in shapes.items()}

    def _checked(self, name: str, kind: type, shape: list[str]) -> Array:
        array = self.arrays[name]
        if array.dtype != kind or array.ndim != len(shape):
            raise ValueError(f"{name} is not an array of {len(shape)} dimensions of {np.dtype(kind)}")
        for letter, size in zip(shape, array.shape, strict=True):
            if self.known.setdefault(letter, size) != size:
                raise ValueError(f"{name} has a side of {size} where {self.known[letter]} is due")
        if np.isnan(array).any() and name not in _MAY_BE_UNKNOWN:
            raise ValueError(f"{name} holds what is no number")
        return array


_MAY_BE_UNKNOWN = ("cost.bias", "seconds.bias")


def _read(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> Fitted:
    if header["version"] != VERSION:
        raise ValueError(f"it is of version {header['version']}, and this program reads {VERSION}")
    cards = tuple(Card(**{**card, "takes": tuple(card["takes"]), "gives": tuple(card["gives"])}) for card in header["cards"])
    types = tuple(str(type) for type in header["types"])
    m = len(cards)
    sizes = _Sizes(arrays, m=m, M=m + 1, T=len(types) + 1, S=COUNTED, one=1, two=2, three=3, five=5)
    single, double = np.float32, np.float64
    space = sizes("space", single, mean="d", counts_mean="S", counts_scale="S", axes="D q")
    if sizes.known["D"] != sizes.known["d"] + COUNTED or not cards or len(set(types)) != len(types):
        raise ValueError("its parts do not fit each other")
    mixture = sizes("success", single, abilities="m", effects="T M", easy="three five", gap="three five")
    clusters = sizes("clusters", single, centres="C q", offsets="C", values="r c M")
    if sizes.known["C"] != sizes.known["r"] * sizes.known["c"] or not sizes.known["C"]:
        raise ValueError("its clusters do not fit their centres")
    near = sizes("neighbours", single, points="p q", offsets="p", values="p M", known="p M", prior="M", distances="k")
    if int(header["k"]) < 1 or not sizes.known["p"] or not sizes.known["k"]:
        raise ValueError("it has no neighbours to ask")
    curve = sizes("calibration", double, scores="knots", probabilities="knots")
    if not sizes.known["knots"] or (np.diff(curve["scores"]) < 0).any() or (np.diff(curve["probabilities"]) < 0).any():
        raise ValueError("its calibration does not rise")
    if not 0 <= curve["probabilities"][0] <= curve["probabilities"][-1] <= 1:
        raise ValueError("its calibration leaves 0 to 1")
    return Fitted(
        cards=cards,
        embedder=str(header["embedder"]),
        types=types,
        rows=int(header["rows"]),
        strange=float(header["strange"]),
        space=Space(unit=float(header["unit"]), **space),
        success=Mixture(
            linear=Linear(**sizes("linear", single, weights="D M", bias="M")),
            clusters=Clusters(**clusters),
            neighbours=NearestNeighbours(k=int(header["k"]), **near),
            network=Network(**sizes("network", single, first="q h", first_bias="h", second="h M", second_bias="M")),
            **mixture,
        ),
        calibration=Calibration(**curve),
        cost=_amount(sizes, "cost", "one"),
        seconds=_amount(sizes, "seconds", "two"),
    )


def _amount(sizes: _Sizes, name: str, statistics: str) -> Amount:
    linear = sizes(name, np.float32, weights="D m", bias="m")
    return Amount(**linear, **sizes(name, np.float64, offsets=f"{statistics} T m"))
