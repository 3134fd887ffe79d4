"""A tokenizer as GGUF has it: tokens, their types, merges or scores, and what is put before and after a text."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, TokenType
from transformers import AutoTokenizer

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.gguf.architectures import read_json

# How a byte-level tokenizer cuts a text before it merges, and by which name llama.cpp knows that.
#
# llama.cpp's own converter looks the name up by a hash over the ids of a long text, which no other vocabulary can have. Here it
# is looked up by what tokenizer.json says: the same expressions are the same cuts, whatever the vocabulary.

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


_BYTE = re.compile(r"<0x[0-9A-F]{2}>")
_SPACE = "▁"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """What llama.cpp needs to make the same tokens."""

    kind: str
    """`gpt2`, bytes merged by rank, or `llama`, pieces merged by score."""
    pre: str
    """How a text is cut before merging, by llama.cpp's name."""
    tokens: Sequence[str]
    types: Sequence[TokenType]
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    special: Mapping[str, int]
    """Ids of bos, eos, eot, unk and pad, as far as there are such."""
    starts: bool
    """A text starts with bos."""
    ends: bool
    """And ends with eos."""
    space_first: bool
    """A text starts with a space that is not there."""
    chat_template: str | Sequence[Mapping[str, str]] | None

    def add_to(self, writer: GGUFWriter) -> None:
        writer.add_tokenizer_model(self.kind)
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        writer.add_token_types(self.types)
        if self.scores:
            writer.add_token_scores(self.scores)
        if self.merges:
            writer.add_token_merges(self.merges)
        for name, token in self.special.items():
            getattr(writer, f"add_{name}_token_id")(token)
        writer.add_add_bos_token(self.starts)
        writer.add_add_eos_token(self.ends)
        writer.add_add_space_prefix(self.space_first)
        if self.chat_template is not None:
            writer.add_chat_template(self.chat_template)


def open_tokenizer(folder: Path) -> Any:
    """The tokenizer of the model in a folder; code that comes with it is not run.

    Raises:
        InputError: There is none, or none that the `tokenizers` library knows.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # noqa: BLE001 - the boundary to transformers, which raises what its validators raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(f"{folder} has no tokenizer that could be loaded: {lines[0]}") from None
    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"{folder} has a tokenizer without a tokenizer.json: save it with transformers as a fast one")
    return tokenizer


def read_vocabulary(folder: Path, tokenizer: Any, rows: int, *, pre: str = "") -> Vocabulary:
    """The vocabulary of the model in a folder, filled up to as many tokens as its embeddings have rows.

    Args:
        pre: llama.cpp's name for the way texts are cut, where it is known better than by tokenizer.json.

    Raises:
        InputError: llama.cpp has no such tokenizer.
    """
    definition = json.loads(tokenizer.backend_tokenizer.to_str())
    model = definition["model"]
    if model.get("type") != "BPE":
        raise InputError(f"{folder} has a tokenizer of the kind {model.get('type')}, and only BPE can be written")
    pieces = _is_sentencepiece(definition)
    tokens, types = _tokens(definition, rows)
    first, last = _bos_and_eos(tokenizer)
    return Vocabulary(
        kind="llama" if pieces else "gpt2",
        pre=pre or ("default" if pieces else pre_tokenizer(definition)),
        tokens=tokens,
        types=types,
        merges=() if pieces else [_merge(pair) for pair in model["merges"]],
        scores=_scores(model, tokens) if pieces else (),
        special=_special(folder, tokenizer),
        starts=first,
        ends=last,
        space_first=pieces and _space_first(definition),
        chat_template=_template(tokenizer),
    )


def _is_sentencepiece(definition: Mapping[str, Any]) -> bool:
    """SentencePiece's way: a space is a character of its own, and there are tokens for single bytes."""
    return any(
        step.get("type") != "ByteLevel" and _SPACE in json.dumps(step, ensure_ascii=False) for step in _steps(definition)
    )


def _steps(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Normalizers and pre-tokenizers, one after the other."""
    steps: list[Mapping[str, Any]] = []
    for name, inner in (("normalizer", "normalizers"), ("pre_tokenizer", "pretokenizers")):
        step = definition.get(name) or {}
        steps += step.get(inner, []) if step.get("type") == "Sequence" else [step]
    return steps


def _space_first(definition: Mapping[str, Any]) -> bool:
    return any(
        step.get("type") == "Prepend" or (step.get("type") == "Metaspace" and step.get("prepend_scheme", "always") != "never")
        for step in _steps(definition)
    )


def _tokens(definition: Mapping[str, Any], rows: int) -> tuple[list[str], list[TokenType]]:
    names: dict[int, str] = {number: token for token, number in definition["model"]["vocab"].items()}
    added = {int(each["id"]): each for each in definition.get("added_tokens", [])}
    names.update({number: each["content"] for number, each in added.items()})
    if names and max(names) >= rows:
        raise InputError(f"the tokenizer has a token {max(names)}, and the model's embeddings have {rows} rows")
    kinds = {number: TokenType.CONTROL if each.get("special") else TokenType.USER_DEFINED for number, each in added.items()}
    unknown = definition["model"].get("unk_token")
    tokens, types = [], []
    for number in range(rows):
        token = names.get(number)
        if token is None:
            tokens.append(f"[PAD{number}]")
            types.append(TokenType.UNUSED)
            continue
        kind = kinds.get(number, TokenType.BYTE if _BYTE.fullmatch(token) else TokenType.NORMAL)
        # llama.cpp looks for these in the text as it was typed.
        tokens.append(token.replace(_SPACE, " ") if kind is TokenType.USER_DEFINED else token)
        types.append(TokenType.UNKNOWN if token == unknown else kind)
    return tokens, types


def _merge(pair: str | Sequence[str]) -> str:
    return pair if isinstance(pair, str) else " ".join(pair)


def _scores(model: Mapping[str, Any], tokens: Sequence[str]) -> list[float]:
    """llama.cpp merges what gives the highest score first: minus the rank of the merge that makes a token."""
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(model["merges"]):
        ranks.setdefault("".join(pair.split(" ") if isinstance(pair, str) else pair), rank)
    return [float(-ranks.get(token, len(ranks))) for token in tokens]


def _bos_and_eos(tokenizer: Any) -> tuple[bool, bool]:
    """Whether it puts bos before a text, and eos behind it: seen from what it does, as it is written in several places."""
    ids = tokenizer("a")["input_ids"]
    return (
        bool(ids) and tokenizer.bos_token_id is not None and ids[0] == tokenizer.bos_token_id,
        bool(ids) and tokenizer.eos_token_id is not None and ids[-1] == tokenizer.eos_token_id,
    )


def _special(folder: Path, tokenizer: Any) -> dict[str, int]:
    ids = {name: getattr(tokenizer, f"{name}_token_id") for name in ("bos", "eos", "unk", "pad")}
    generation = read_json(folder / "generation_config.json") if (folder / "generation_config.json").is_file() else {}
    ends = generation.get("eos_token_id")
    ends = [ends] if isinstance(ends, int) else list(ends or [])
    if ids["eos"] is None and ends:
        ids["eos"] = ends[0]
    # A model that talks may end its turn with another token than a text.
    ids["eot"] = next((end for end in ends if end != ids["eos"]), None)
    return {name: int(number) for name, number in ids.items() if number is not None}


def _template(tokenizer: Any) -> str | list[dict[str, str]] | None:
    template = tokenizer.chat_template
    if isinstance(template, dict):
        return [{"name": name, "template": each} for name, each in template.items()]
    return template or None
