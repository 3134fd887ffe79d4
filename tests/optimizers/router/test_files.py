import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from journeyman.core.errors import InputError
from journeyman.optimizers.router.fit import fit
from journeyman.optimizers.router.predict import load, save
from tests.optimizers.router.worlds import QUICK, questions


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table, vectors = questions()
    path = tmp_path_factory.mktemp("router") / "router.safetensors"
    save(fit(table, vectors, QUICK, embedder="hashing:64"), path)
    return path


def changed(
    kept: Path, path: Path, *, header: dict[str, object] | None = None, arrays: Mapping[str, object] | None = None
) -> Path:
    """The same file with some of it replaced."""
    from safetensors import safe_open

    with safe_open(str(kept), framework="numpy") as file:
        said = json.loads(file.metadata()["journeyman.router"])
    found = {name: array for name, array in {**load_file(kept), **(arrays or {})}.items() if array is not None}
    save_file(found, path, {"journeyman.router": json.dumps({**said, **(header or {})})})
    return path


def test_what_is_loaded_forecasts_the_same_and_is_saved_to_the_same_bytes(kept: Path, tmp_path: Path) -> None:
    table, vectors = questions()
    fitted, again = fit(table, vectors, QUICK, embedder="hashing:64"), load(kept)
    for one, other in zip(
        vars(fitted.forecast(vectors, table.requests, [""] * 300)).values(),
        vars(again.forecast(vectors, table.requests, [""] * 300)).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    save(again, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == kept.read_bytes()
    assert again.embedder == "hashing:64"
    assert again.rows == 300


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ({"version": 99}, "version 99"),
        ({"cards": []}, "do not fit each other"),
        ({"cards": [{"name": "a", "wings": 2}, {"name": "b"}]}, "router that can be used"),
        ({"k": 0}, "no neighbours"),
        ({"types": ["a", "b", "c"]}, "side of"),
    ],
)
def test_a_header_that_does_not_fit_is_refused(kept: Path, tmp_path: Path, header: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(changed(kept, tmp_path / "bad", header=header))


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"linear.weights": None}, "'linear.weights' is missing"),
        ({"linear.weights": np.zeros((3, 3), np.float32)}, "side of 3"),
        ({"linear.bias": np.zeros(3, np.float64)}, "linear.bias is not an array"),
        ({"linear.bias": np.full(3, np.nan, np.float32)}, "no number"),
        ({"calibration.probabilities": np.array([0.9, 0.1]), "calibration.scores": np.array([0.0, 1.0])}, "does not rise"),
        ({"calibration.probabilities": np.array([0.1, 7.0]), "calibration.scores": np.array([0.0, 1.0])}, "leaves 0 to 1"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(kept: Path, tmp_path: Path, arrays: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said):
        load(changed(kept, tmp_path / "bad", arrays=arrays))


def test_what_is_no_router_is_refused_in_a_sentence(kept: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "absent")
    (tmp_path / "cut").write_bytes(kept.read_bytes()[:-100])
    with pytest.raises(InputError, match="no safetensors file"):
        load(tmp_path / "cut")
    save_file({"a": np.zeros(2, np.float32)}, tmp_path / "other")
    with pytest.raises(InputError, match="holds no router"):
        load(tmp_path / "other")
