"""How a byte-level tokenizer cuts a text before it merges, and by which name llama.cpp knows that.

llama.cpp's own converter looks the name up by a hash over the ids of a long text, which no other vocabulary can have. Here it
is looked up by what tokenizer.json says: the same expressions are the same cuts, whatever the vocabulary.
"""

import re
from collections.abc import Mapping
from typing import Any

from journeyman.errors import InputError

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_SLASHED = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_TEKKEN = rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*|\p{{N}}|{_SLASHED}"
_GPT4O = rf"{_START}{_UPPER}*{_LOWER}+{_SHORT}?|{_START}{_UPPER}+{_LOWER}*{_SHORT}?|\p{{N}}{{1,3}}|{_SLASHED}"
_DEEPSEEK = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
    r"\s*[\r\n]+|\s+(?!\S)|\s+",
)
_KNOWN: Mapping[tuple[tuple[str, ...], bool], str] = {
    ((_GPT2,), False): "gpt-2",
    ((rf"{_SHORT}|{_START}\p{{L}}+|\p{{N}}|{_REST}",), False): "qwen2",
    (
        (rf"{_SHORT}|{_START}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",),
        False,
    ): "qwen35",
    ((_LLAMA3,), True): "llama-bpe",
    ((_LLAMA3,), False): "smaug-bpe",
    ((r"\p{N}", _GPT2), False): "smollm",
    ((_TEKKEN,), True): "tekken",
    ((_GPT4O,), False): "gpt-4o",
    (_DEEPSEEK, False): "deepseek-v3",
}
"""By the expressions, and whether a piece that is a token as it stands is taken without merging."""


def pre_tokenizer(tokenizer: Mapping[str, Any]) -> str:
    """llama.cpp's name for the way in which this tokenizer.json cuts.

    Raises:
        InputError: It is none of those known here.
    """
    cuts = tuple(_cuts(tokenizer.get("pre_tokenizer") or {}))
    name = _KNOWN.get((cuts, bool(tokenizer["model"].get("ignore_merges"))))
    if name is None:
        expressions = " then ".join(repr(cut) for cut in cuts) or "not at all"
        raise InputError(
            f"the tokenizer cuts texts in a way that has no known name in llama.cpp: {expressions[:300]}; if you know the "
            "name, give it with --pre-tokenizer, and its tokens are compared with the model's own"
        )
    return name


def _cuts(step: Mapping[str, Any]) -> list[str]:
    kind = step.get("type")
    if kind == "Sequence":
        return [cut for each in step.get("pretokenizers", []) for cut in _cuts(each)]
    if kind == "Split":
        return [_spelled(step.get("pattern", {}).get("Regex") or re.escape(step.get("pattern", {}).get("String", "")))]
    if kind == "Digits":
        return [r"\p{N}" if step.get("individual_digits") else r"\p{N}+"]
    if kind == "ByteLevel":
        return ([" first"] if step.get("add_prefix_space") else []) + ([_GPT2] if step.get("use_regex", True) else [])
    return [f"{kind}"] if kind else []


def _spelled(expression: str) -> str:
    """One spelling for those that mean the same."""
    spelled = expression.replace("(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])", _SHORT)
    return spelled.replace("\r", r"\r").replace("\n", r"\n")
