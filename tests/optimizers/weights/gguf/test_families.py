"""A file that was written here says in llama.cpp what the model says in transformers: same tokens in, same tokens out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed: make test builds it")

import torch

from journeyman.optimizers.weights.gguf import GGUFExporter
from journeyman.optimizers.weights.gguf.conversion import TEXTS
from journeyman.optimizers.weights.llamacpp import loaded
from tests.support import tiny_models
from tests.support.tiny_models import byte_level, corpus, pieces

pytestmark = pytest.mark.training

PROMPTS = [line[: 12 + 3 * number] for number, line in zip(range(50), corpus(), strict=False)]
NEW = 24
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0 + 0.1 * i for i in range(8)],
    "long_factor": [2.0 + 0.3 * i for i in range(8)],
}
GEMMA2 = {"head_dim": 24, "query_pre_attn_scalar": 24, "sliding_window": 16}
GEMMA3 = {**GEMMA2, "num_hidden_layers": 7, "layer_types": ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"]}
FAMILIES: dict[str, tuple[str, Callable[[], Any], dict[str, Any]]] = {
    "llama": ("Llama", lambda: pieces(space_first=True), {}),
    "llama-3": ("Llama", lambda: byte_level(tiny_models.LLAMA3, bos=True, ignore_merges=True), {"rope_parameters": LLAMA3}),
    "llama-biased-tied": (
        "Llama",
        lambda: byte_level(None),
        {"attention_bias": True, "tie_word_embeddings": True, "mlp_bias": True},
    ),
    "mistral": ("Mistral", lambda: pieces(space_first=True), {"head_dim": 24, "sliding_window": None}),
    "qwen2": ("Qwen2", byte_level, {"tie_word_embeddings": True}),
    "qwen2-yarn": ("Qwen2", byte_level, {"rope_parameters": YARN}),
    "qwen3": ("Qwen3", byte_level, {"head_dim": 32}),
    "gemma": ("Gemma", lambda: pieces(space_first=False), {"head_dim": 24}),
    "gemma-2": ("Gemma2", lambda: pieces(space_first=False), GEMMA2),
    "gemma-3": ("Gemma3", lambda: pieces(space_first=False), GEMMA3),
    "phi-3": ("Phi3", lambda: pieces(space_first=True), {"sliding_window": None}),
    "phi-3-long": (
        "Phi3",
        lambda: pieces(space_first=True),
        {
            "sliding_window": None,
            "rope_parameters": LONG,
            "original_max_position_embeddings": 256,
            "max_position_embeddings": 1024,
        },
    ),
}


TIE = {"gemma": 5e-3, "gemma-2": 5e-3, "gemma-3": 5e-3}
"""How near two logits must lie that llama.cpp may take either: it looks Gemma's GELU up in a table of 16 bits."""
EXACT = 1e-4
"""For everybody else."""


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_model_of_each_family_says_the_same_in_llama_cpp(family: str, tmp_path: Path) -> None:
    kind, make, settings = FAMILIES[family]
    tokenizer = make()
    model = tiny_models.save(tmp_path / "model", kind, tokenizer, config="Gemma3Text" if kind == "Gemma3" else kind, **settings)

    export = GGUFExporter(tmp_path / "model", threads=1).export(["F32"], measure=False)

    assert len(export.notes) == (family == "phi-3-long")
    assert export.agreeing == export.probed
    with loaded(export.files[0].path, threads=1, context=256) as served:
        for text in (*TEXTS, *PROMPTS):
            assert served.tokenize(text.encode(), special=True) == tokenizer(text)["input_ids"], text
        prompts = [tokenizer(prompt)["input_ids"][:35] for prompt in PROMPTS]
        ties = sum(differs_only_by_a_tie(served, model, ids, NEW, TIE.get(family, EXACT)) for ids in prompts)
    assert ties <= (5 if family in TIE else 0)


def differs_only_by_a_tie(served: Any, model: Any, ids: list[int], count: int, tie: float) -> bool:
    """Whether the greedy tokens part, which they may only where two logits are as good as equal.

    All logits up to there are compared as well.
    """
    served.reset()
    served.eval(ids)
    nexts, past = ids, None
    for _ in range(count):
        with torch.inference_mode():
            out = model(input_ids=torch.tensor([nexts]), past_key_values=past, use_cache=True)
        past, wanted = out.past_key_values, out.logits[0, -1].numpy()
        there = served.scores[served.n_tokens - 1]
        assert abs(there - wanted).max() < tie
        token, said = int(wanted.argmax()), int(there.argmax())
        if token != said:
            assert wanted[token] - wanted[said] < tie
            return True
        nexts = [token]
        served.eval(nexts)
    return False
