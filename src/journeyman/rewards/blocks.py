"""The code in a reply: fenced blocks, as Markdown has them."""

import ast
import re
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from journeyman.core.trace import Trace
from journeyman.io.markdown import fences

_WORD = re.compile(r"[\w+#-]+")

_LANGUAGES = {
    "py": "python", "python3": "python", "ipython": "python", "pycon": "python",
    "sh": "shell", "bash": "shell", "console": "shell", "shell-session": "shell", "zsh": "shell",
    "js": "javascript", "node": "javascript", "mjs": "javascript", "nodejs": "javascript",
}  # fmt: skip
_PROMPT = {"python": re.compile(r"^(?:>>>|\.\.\.)(?: |$)"), "shell": re.compile(r"^\$ ")}
"""What stands before typed lines where a whole session is shown, with what was printed between them."""


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """One piece of code."""

    language: str
    """In small letters, the usual short names made long ("py" is python, "bash" shell); empty where none was named."""
    code: str


def blocks(text: str) -> tuple[CodeBlock, ...]:
    """Every fenced block, in order. One that is not closed ends with the text, as in CommonMark.

    Of a session with prompts only what was typed is kept.
    """
    return tuple(_block(_language(fence.info), fence.lines) for fence in fences(text))


def last_blocks(trace: Trace, languages: Collection[str]) -> tuple[CodeBlock, ...]:
    """The blocks in these languages of the last reply that holds any: what came before was a draft."""
    for call in reversed(trace.calls):
        # Most replies of an agent hold no code at all.
        if "```" in call.reply or "~~~" in call.reply:
            found = tuple(block for block in blocks(call.reply) if block.language in languages and block.code.strip())
            if found:
                return found
    return ()


def parsed(code: str) -> ast.Module:
    """The code as Python.

    Raises:
        ValueError: It is none; the message says where.
    """
    try:
        with warnings.catch_warnings():
            # Bad style, such as an unknown escape, is Python all the same.
            warnings.simplefilter("ignore")
            return ast.parse(code)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (RecursionError, MemoryError) as error:
        raise ValueError(str(error) or "nested too deep") from None


def _language(info: str) -> str:
    word = _WORD.search(info)
    name = word[0].lower() if word else ""
    return _LANGUAGES.get(name, name)


def _block(language: str, lines: Sequence[str]) -> CodeBlock:
    prompt = _PROMPT.get(language)
    if prompt and any(prompt.match(line) for line in lines[:1]):
        lines = [prompt.sub("", line) for line in lines if prompt.match(line)]
    return CodeBlock(language, "".join(f"{line}\n" for line in lines))
