"""Where the tokens of our servers come from."""

import os

from journeyman.errors import InputError


def tokens_in(variable: str) -> tuple[str, ...]:
    """The tokens in an environment variable. They are in nothing that is said."""
    tokens = tuple(os.environ.get(variable, "").split())
    if not tokens:
        raise InputError(f"the environment variable {variable} of --token-env is empty: put the token there")
    if not all(token.isascii() and len(token) >= 16 for token in tokens):
        raise InputError(f"a token in {variable} is too short: use 16 ASCII characters or more, as of `openssl rand -hex 16`")
    return tokens
