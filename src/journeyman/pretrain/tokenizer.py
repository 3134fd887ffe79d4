"""The embedded model's tokenizer: byte-level BPE whose merges are learned from the desk's own words.

Each word of the desk is one token, with and without a space before it, and digits stand alone; any other text still encodes,
byte by byte. Words are cut as Qwen2's tokenizer cuts them, a rule that llama.cpp knows by name.
"""

import random
from collections.abc import Iterator

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from journeyman.pretrain.corpus import clerk, reflector

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CUT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train(samples: int = 40_000, seed: int = 0) -> PreTrainedTokenizerFast:
    """Learn the merges from that many samples of the corpus."""
    tokenizer = Tokenizer(models.BPE())
    cut = pre_tokenizers.Split(Regex(CUT), behavior="isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4096,
        min_frequency=1,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sorted(_words(cut, samples, seed)), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",  # noqa: S106 - a token of text, not a secret
        pad_token="<|endoftext|>",  # noqa: S106
        additional_special_tokens=["<|im_start|>"],
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def _words(cut: pre_tokenizers.Split, samples: int, seed: int) -> set[str]:
    """Every piece that occurs, without the quote or dash that the cut leaves before a word."""
    words: set[str] = set()
    for text in _texts(samples, seed):
        for piece, _ in cut.pre_tokenize_str(text):
            bare = piece[1:] if len(piece) > 1 and piece[1].isalpha() and not piece[0].isalpha() else piece
            words.add(bare)
            if bare.isalpha():
                words.add(" " + bare)
    return words


def _texts(samples: int, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    for number in range(samples):
        sample = (reflector if number % 4 == 0 else clerk)(chance)
        yield from (sample.system, sample.user, sample.reply)
    yield from ("system\n", "user\n", "assistant\n")
