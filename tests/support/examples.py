"""How many examples a property is tried with: as many as the profile says, or a share of them."""

from typing import Any

from hypothesis import settings


def examples(share: float, **more: Any) -> settings:
    """`share` times the profile's, and at least one: below 1 where an example is dear, above where most of them find nothing."""
    return settings(max_examples=max(1, round(settings().max_examples * share)), **more)
