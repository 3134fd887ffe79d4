"""What a model's tokenizer is to llama.cpp and Ollama: its vocabulary as GGUF has it, and its chat template, which is Jinja, as
one of Ollama, which is Go's.

Ollama knows the templates of some models by heart; to any other it sends the bare prompt, and a tuned model answers nonsense.
So the template is asked how it sets a few conversations, what stands around their parts is written down in Go, and the two are
compared on longer conversations. What could not be carried over is said.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from journeyman.core.errors import InputError
from journeyman.optimizers.weights.model_shape import read_json

if TYPE_CHECKING:
    from gguf import GGUFWriter, TokenType

# A tokenizer as GGUF has it: tokens, their types, merges or scores, and what is put before and after a text.

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
    types: "Sequence[TokenType]"
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

    def add_to(self, writer: "GGUFWriter") -> None:
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
    from transformers import AutoTokenizer

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


def _tokens(definition: Mapping[str, Any], rows: int) -> "tuple[list[str], list[TokenType]]":
    from gguf import TokenType

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


# A chat template as Ollama takes it, in Go: what stands around the parts of a conversation.
#
# Go's templates: https://pkg.go.dev/text/template; the names in them: Ollama's documentation of TEMPLATE.

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolTemplate:
    """What stands around tools, their calls and their results."""

    with_system: tuple[str, str]
    """Before the system message, and between it and the first tool."""
    without_system: str
    """Before the first tool."""
    between: str
    after: str
    """From the last tool to the first turn."""
    bare: bool
    """Only what stands under `function`, not the whole object."""
    call: tuple[str, str, str, str]
    """Before a name, between it and its arguments, between two calls, and after the last."""
    result: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoTemplate:
    """Written once, and rendered here as Ollama would."""

    system: tuple[str, str]
    """Around the system message, up to the first turn; to the first user's words where it is `merged`."""
    start: str
    """What stands there without one."""
    user: tuple[str, str]
    assistant: tuple[str, str]
    generation: str
    """What makes the model speak."""
    merged: bool = False
    """The system message stands within the first user's turn."""
    tools: ToolTemplate | None = None
    notes: tuple[str, ...] = ()
    """What is not carried over, each a sentence."""

    @property
    def stop(self) -> tuple[str, ...]:
        """What ends a turn of the model."""
        ending = self.assistant[1].strip()
        return (ending,) if ending else ()

    def render(self, messages: Sequence[Message]) -> str:
        """A conversation without tools, and what makes the model speak: what `text` says, in Python."""
        system = "\n\n".join(str(message["content"]) for message in messages if message["role"] == "system")
        opening = self.system[0] + system + self.system[1] if system else self.start
        first_user = opening if system else opening + self.user[0]
        out, first = ("", True) if self.merged else (opening, False)
        for message in messages:
            if message["role"] == "user":
                out += (first_user if first else self.user[0]) + str(message["content"]) + self.user[1]
                first = False
            elif message["role"] == "assistant":
                out += self.assistant[0] + str(message["content"]) + self.assistant[1]
        return out + self.generation

    @property
    def text(self) -> str:
        """The template in Go."""
        assistant = _go(self.assistant[0]) + "{{ .Content }}"
        turns = [("user", self._user() + "{{ .Content }}" + _go(self.user[1]))]
        if self.tools is None:
            turns.append(("assistant", assistant + _go(self.assistant[1])))
        else:
            turns.append(("assistant", assistant + _calls_go_template(self.tools) + _go(self.assistant[1])))
            turns.append(("tool", _go(self.tools.result[0]) + "{{ .Content }}" + _go(self.tools.result[1])))
        chosen = "{{ else ".join(f'if eq .Role "{role}" }}}}{turn}' for role, turn in turns)
        return self._opening() + _each(".Messages", "{{ " + chosen + "{{ end }}") + _go(self.generation)

    def _opening(self) -> str:
        if self.merged:
            return "{{ $first := true }}"
        plain = _if(".System", _around("{{ .System }}", self.system), _go(self.start))
        if self.tools is None:
            return plain
        tools = self.tools
        one = "{{ .Function }}" if tools.bare else '{"type": "function", "function": {{ .Function }}}'
        opened = _if(".System", _around("{{ .System }}", tools.with_system), _go(tools.without_system))
        listed = _each("$i, $tool := .Tools", _if("$i", _go(tools.between)) + one)
        return _if(".Tools", opened + listed + _go(tools.after), plain)

    def _user(self) -> str:
        """Up to the user's words."""
        if not self.merged:
            return _go(self.user[0])
        opening = _if("$.System", _around("{{ $.System }}", self.system), _go(self.start + self.user[0]))
        return _if("$first", opening + "{{ $first = false }}", _go(self.user[0]))


def _calls_go_template(tools: ToolTemplate) -> str:
    """The calls of a turn. Ollama reads here how the model writes one: by the first words in the condition, up to a brace."""
    opening, middle, between, after = tools.call
    one = _if("$i", _go(between)) + "{{ .Function.Name }}" + _go(middle) + "{{ .Function.Arguments }}"
    return _if(".ToolCalls", _go(opening) + _each("$i, $call := .ToolCalls", one) + _go(after))


def _if(condition: str, then: str, otherwise: str = "") -> str:
    return "{{ if " + condition + " }}" + then + ("{{ else }}" + otherwise if otherwise else "") + "{{ end }}"


def _each(named: str, then: str) -> str:
    return "{{ range " + named + " }}" + then + "{{ end }}"


def _around(value: str, text: tuple[str, str]) -> str:
    return _go(text[0]) + value + _go(text[1])


def _go(text: str) -> str:
    """As it is; quoted, where Go would take it for its own."""
    return "{{ " + json.dumps(text, ensure_ascii=False) + " }}" if "{{" in text or text.endswith("{") else text


_S, _U, _A, _T = "Qsystem0Q", "Quser{}Q", "Qassistant{}Q", "Qresult0Q"
"""Words that no template holds."""


def translate(jinja: str, *, bos: str = "", eos: str = "") -> GoTemplate | None:
    """The same template for Ollama; `None` when it is of a shape that cannot be carried over.

    Args:
        bos: What the template may write as the first token; empty where the server sets it itself.
    """
    try:
        render = _Renderer(jinja, bos=bos, eos=eos)
        template = _plain(render)
    except _FAILURES:
        return None
    notes: tuple[str, ...] = template.notes
    tools = None
    try:
        tools = _tools(render, template)
        if tools is None and not render.ignores_tools():
            notes += (_NO_TOOLS,)
    except _FAILURES:
        notes += (_NO_TOOLS,)
    notes += (_DATED,) if "strftime_now" in jinja else ()
    return replace(template, tools=tools, notes=notes)


_FAILURES = (TemplateError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What a template that came with a file may end in."""
_NO_TOOLS = "tools: the template has them in a form that was not recognised, so Ollama will say that the model takes none"
_NO_SYSTEM = "system messages: the template takes none"
_DATED = "the date: the template writes that of the day, Ollama's will keep the one of its making"
_WHOLE = "the template asks for whole objects"
_TOOLS = tuple(
    {
        "type": "function",
        "function": {
            "name": f"Qtool{n}Q",
            "description": f"Qabout{n}Q",
            "parameters": {"type": "object", "properties": {"Qkey": {"type": "string"}}, "required": ["Qkey"]},
        },
    }
    for n in (0, 1)
)


class _Renderer:
    """A Jinja template, rendered as Hugging Face's tokenizers do. It comes with the file: the environment is a sandbox."""

    def __init__(self, jinja: str, *, bos: str, eos: str) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _now
        self._template = environment.from_string(jinja)
        self._tokens = {"bos_token": bos, "eos_token": eos}

    def __call__(self, messages: Sequence[Message], *, generation: bool = False, tools: Sequence[Any] = ()) -> str:
        return self._template.render(
            messages=messages, tools=list(tools) or None, add_generation_prompt=generation, **self._tokens
        )

    def unended(self, text: str, longer: str) -> str:
        """Without the end-of-text token that some templates set only behind the last turn."""
        return text if longer.startswith(text) else text.removesuffix(self._tokens["eos_token"])

    def ignores_tools(self) -> bool:
        return self([_user(0)], tools=_TOOLS) == self([_user(0)])


def _plain(render: _Renderer) -> GoTemplate:
    """The parts of conversations without tools.

    Raises:
        ValueError: They are not set one after the other, or some conversation comes out otherwise.
    """
    start_and_user, user_end = _split(render([_user(0)]), _U.format(0))
    opened = _split(render([_user(0)], generation=True), _U.format(0))[1]
    user_end = render.unended(user_end, opened)
    generation = _without_prefix(opened, user_end)
    _, middle, second, _ = _split(render([_user(0), _assistant(0), _user(1)]), _U.format(0), _A.format(0), _U.format(1))
    assistant_end = render.unended(_split(render([_user(0), _assistant(0)]), _A.format(0))[1], second)
    assistant, user = _without_prefix(middle, user_end), _without_prefix(second, assistant_end)
    template = GoTemplate(
        system=("", ""),
        start=_without_suffix(start_and_user, user),
        user=(user, user_end),
        assistant=(assistant, assistant_end),
        generation=generation,
    )
    _check_same(render, template, system=False)
    try:
        before, after, _ = _split(render([_system(), _user(0)]), _S, _U.format(0))
    except (TemplateError, ValueError):
        return replace(template, system=(template.start, ""), notes=(_NO_SYSTEM,))
    merged = not after.endswith(user)
    with_system = replace(template, system=(before, after if merged else _without_suffix(after, user)), merged=merged)
    _check_same(render, with_system, system=False)
    _check_same(render, with_system, system=True)
    return with_system


def _tools(render: _Renderer, template: GoTemplate) -> ToolTemplate | None:
    """What stands around tools; `None` when the template ignores them.

    Raises:
        ValueError: They stand where they cannot be put in Go.
    """
    if render.ignores_tools() or template.merged:
        return None
    with_system = render([_system(), _user(0)], tools=_TOOLS)
    bare = _json(_TOOLS[0]) not in with_system
    first, second = (_json(tool["function"] if bare else tool) for tool in _TOOLS)
    before, to_tools, between, after, _ = _split(with_system, _S, first, second, _U.format(0))
    without, _, after_too, _ = _split(render([_user(0)], tools=_TOOLS), first, second, _U.format(0))
    if after != after_too:
        raise ValueError(_WHOLE)
    # Not as the last turn: some templates set that one otherwise, as the place where the model thinks.
    called = render([_user(0), _calls(2), _user(1)], tools=_TOOLS).partition(_U.format(0))[2]
    name, middle, more, middle_too, to_user, _ = _split(
        called, "Qtool0Q", _ARGUMENTS[0], "Qtool1Q", _ARGUMENTS[1], _U.format(1)
    )
    if middle != middle_too:
        raise ValueError(_WHOLE)
    opening, end = _without_prefix(name, template.user[1]), _without_suffix(to_user, template.user[0])
    talk = [_user(0), _calls(1), _result(), _assistant(0), _user(1)]
    _, to_result, to_answer, _ = _split(render(talk, tools=_TOOLS), _ARGUMENTS[0], _T, _A.format(0))
    return ToolTemplate(
        with_system=(before, to_tools),
        without_system=without,
        between=between,
        after=_without_suffix(after, template.user[0]),
        bare=bare,
        call=(_without_prefix(opening, template.assistant[0]), middle, more, _without_suffix(end, template.assistant[1])),
        result=(_without_prefix(to_result, end), _without_suffix(to_answer, template.assistant[0])),
    )


def _check_same(render: _Renderer, template: GoTemplate, *, system: bool) -> None:
    """Whether conversations come out as Jinja sets them."""
    opening = [_system()] if system else []
    turns = [_user(0), _assistant(0), _user(1), _assistant(1), _user(2)]
    for length in (1, 3, 5):
        messages = [*opening, *turns[:length]]
        if render(messages, generation=True) != template.render(messages):
            raise ValueError("a conversation comes out otherwise")


def _split(text: str, *parts: str) -> list[str]:
    """What stands before, between and behind `parts`, which must follow each other."""
    pieces = []
    for part in parts:
        before, separator, text = text.partition(part)
        if not separator:
            raise ValueError(f"{part} is not where it should be")
        pieces.append(before)
    return [*pieces, text]


def _without_prefix(text: str, start: str) -> str:
    if not text.startswith(start):
        raise ValueError(f"{text!r} does not begin with {start!r}")
    return text[len(start) :]


def _without_suffix(text: str, end: str) -> str:
    if not text.endswith(end):
        raise ValueError(f"{text!r} does not end with {end!r}")
    return text[: len(text) - len(end)]


_ARGUMENTS = tuple(f'{{"Qkey": "Qvalue{n}Q"}}' for n in (0, 1))


def _system() -> Message:
    return {"role": "system", "content": _S}


def _user(number: int) -> Message:
    return {"role": "user", "content": _U.format(number)}


def _assistant(number: int) -> Message:
    return {"role": "assistant", "content": _A.format(number)}


def _calls(count: int) -> Message:
    calls = [
        {"type": "function", "id": f"call{n}", "function": {"name": f"Qtool{n}Q", "arguments": {"Qkey": f"Qvalue{n}Q"}}}
        for n in range(count)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _result() -> Message:
    return {"role": "tool", "content": _T, "name": "Qtool0Q", "tool_call_id": "call0"}


def _json(value: Any, ensure_ascii: bool = False, **more: Any) -> str:
    """As Hugging Face's tokenizers write JSON: without HTML's escapes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **more)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)


def _now(form: str) -> str:
    from datetime import datetime

    return datetime.now().strftime(form)


class _Generation(Extension):
    """`{% generation %}`, by which templates mark what is trained on, means nothing here."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)
