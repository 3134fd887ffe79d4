"""TRL takes the files as they are: loaded by `datasets`, rendered by a chat template, nothing added and nothing lost."""

import json
from pathlib import Path
from typing import Any

import pytest

from journeyman.optimizers.weights.data import DatasetConfig, build
from tests.optimizers.weights.data.attempts import FIND, TALK, attempt, judged, said

pytestmark = pytest.mark.training

SMALL = Path(__file__).parents[4] / "src" / "journeyman" / "models" / "embedded" / "weights" / "small"
OTHER = (said("system", "Be brief."), said("user", "And order 8?"), said("assistant", "Ask later."))


def loaded(path: Path, folder: Path) -> list[dict[str, Any]]:
    from datasets import load_dataset
    from datasets.utils.logging import disable_progress_bar

    disable_progress_bar()
    kind = "parquet" if path.suffix == ".parquet" else "json"
    return list(load_dataset(kind, data_files=str(path), split="train", cache_dir=str(folder / "cache")))


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.filterwarnings("ignore")
def test_trl_renders_a_conversation_with_its_tools(tmp_path: Path, suffix: str) -> None:
    import trl
    from transformers import PreTrainedTokenizerFast
    from trl.data_utils import is_conversational, maybe_apply_chat_template

    path = tmp_path / f"kto.{suffix}"
    build(judged(attempt("a", TALK, reward=1.0), attempt("b", OTHER, reward=0.0)), path, DatasetConfig(method="kto"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SMALL)
    tokenizer.chat_template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    texts = []
    for row in loaded(path, tmp_path):
        assert is_conversational(row)
        tools = row["tools"]
        assert tools == [FIND]
        example = {name: row[name] for name in ("prompt", "completion", "label")}
        text = maybe_apply_chat_template(example, tokenizer, tools)
        whole = tokenizer.apply_chat_template(row["prompt"] + row["completion"], tools=tools, tokenize=False)
        assert text["prompt"] + text["completion"] == whole
        assert json.dumps(FIND) in text["prompt"]
        texts.append(text["completion"])
    assert '<tool_call>\n{"name": "find", "arguments": {"id": 7}}\n</tool_call>' in texts[0]
    assert "<tool_response>\nOslo\n</tool_response>" in texts[0]
    assert texts[1] == "Ask later.<|im_end|>\n"


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.filterwarnings("ignore")
def test_groups_come_back_with_their_messages_as_they_were(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"grpo.{suffix}"
    build(
        judged(attempt("a", TALK, reward=1.0), attempt("b", (*TALK[:2], TALK[-1]), reward=0.0)),
        path,
        DatasetConfig(method="grpo"),
    )
    (row,) = loaded(path, tmp_path)
    assert row["prompt"] == list(TALK[:2])
    assert row["completions"][1] == [TALK[-1]]
    assert row["completions"][0][0]["tool_calls"][0]["function"]["arguments"] == {"id": 7}
    assert row["rewards"] == [1.0, -1.0]
