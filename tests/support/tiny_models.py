"""Small random models of the families that can be converted, each with a real BPE tokenizer trained here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
VOCABULARY = 700
SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}


def corpus() -> Iterator[str]:
    """Sentences, code and numbers, enough for a few hundred merges."""
    things = ("blue mugs", "green plates", "red bowls", "Oslo", "Straße", "été", "東京", "def total(prices):", "can't", "I'll")
    for number in range(400):
        yield f"Send {number} {things[number % 10]} to {things[number * 7 % 10]} by {number % 28 + 1} March, please."
        yield f'{{"sku": "MUG-{number:03}", "count": {number % 9}, "to": "{things[number * 3 % 10]}"}}\nreturn {number * 1.5}'


def byte_level(expression: str | None = QWEN2, *, bos: bool = False, ignore_merges: bool = False) -> PreTrainedTokenizerFast:
    """As Qwen and Llama 3 have it; GPT-2's cuts without an expression."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if expression:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(expression), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        corpus(),
        trainers.BpeTrainer(
            vocab_size=VOCABULARY - 10,
            special_tokens=SPECIAL,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    return _wrapped(tokenizer, bos_token="<|endoftext|>" if bos else None)


def pieces(*, space_first: bool) -> PreTrainedTokenizerFast:
    """As Llama 2, Mistral and Phi-3 have it (with a space first) and Gemma (without)."""
    trained = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokens = ["<unk>", "<s>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trained.train_from_iterator(
        corpus(), trainers.BpeTrainer(vocab_size=VOCABULARY - 10, special_tokens=tokens, show_progress=False)
    )
    vocabulary = trained.get_vocab()
    # SentencePiece merges whatever gives a token: a converted tokenizer has a merge for each way to halve it.
    order = sorted((number, token) for token, number in vocabulary.items() if number >= len(tokens) and len(token) > 1)
    merges = [
        (token[:cut], token[cut:])
        for _, token in order
        for cut in range(1, len(token))
        if token[:cut] in vocabulary and token[cut:] in vocabulary
    ]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    first = [normalizers.Prepend("▁")] if space_first else []
    tokenizer.normalizer = normalizers.Sequence([*first, normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", vocabulary["<s>"])])
    tokenizer.add_special_tokens(["<s>", *SPECIAL])
    return _wrapped(tokenizer, bos_token="<s>", unk_token="<unk>")


def _wrapped(tokenizer: Tokenizer, **special: str | None) -> PreTrainedTokenizerFast:
    made = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        clean_up_tokenization_spaces=False,
        **special,
    )
    made.chat_template = TEMPLATE
    return made


def save(
    folder: Path, family: str, tokenizer: PreTrainedTokenizerFast, *, seed: int = 0, config: str = "", **settings: Any
) -> Any:
    """A random model of a family (`Llama`, `Gemma2`, …) and its tokenizer, in a folder; the model.

    All of its weights are random, those of norms and biases too: what is 1 or 0 would hide a mistake.
    """
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(seed)
    sizes = {**SIZES, "vocab_size": VOCABULARY, "eos_token_id": tokenizer.eos_token_id, "pad_token_id": 0, **settings}
    sizes.setdefault("bos_token_id", tokenizer.bos_token_id)
    settled = getattr(transformers, f"{config or family}Config")(**sizes)
    model = getattr(transformers, f"{family}ForCausalLM")(settled).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() < 2:
                weight.normal_(0 if name.endswith("bias") or family.startswith("Gemma") else 1, 0.3)
            else:
                weight.normal_(0, 0.15)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model
