"""What can be said of a work without running it: which of the requirements it speaks of. Never a proof of anything."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

ENOUGH = 0.5
"""Share of a requirement's words that must occur for it to be called spoken of."""
_STEM = 5
"""Letters by which words are compared, so that "validates" speaks of "validation"."""
_SMALL = frozenset({"and", "are", "but", "for", "from", "has", "its", "must", "not", "that", "the", "this", "when", "with"})


@dataclass(frozen=True, slots=True)
class Read:
    """What was found."""

    spoken: tuple[str, ...]
    """The requirements that the work speaks of."""
    silent: tuple[str, ...]

    @property
    def share(self) -> float:
        return len(self.spoken) / (len(self.spoken) + len(self.silent))

    @property
    def evidence(self) -> str:
        """One sentence, and what is missing."""
        said = f"only read, not run: speaks of {len(self.spoken)} of {len(self.spoken) + len(self.silent)} requirements"
        return f"{said}; nothing on: {'; '.join(self.silent)}" if self.silent else said


def read(requirements: Sequence[str], work: str) -> Read:
    """Which requirements a work speaks of. It can be fooled by whoever repeats them, so it decides about nothing.

    Args:
        requirements: At least one; of a scenario without any, its goal.
    """
    words = _stems(work)
    found = [(requirement, _stems(requirement)) for requirement in requirements]
    spoken = [requirement for requirement, wanted in found if words and len(wanted & words) >= ENOUGH * len(wanted)]
    return Read(tuple(spoken), tuple(requirement for requirement in requirements if requirement not in spoken))


def _stems(text: str) -> frozenset[str]:
    words = re.findall(r"[^\W_]{3,}|\d+", text.casefold())
    return frozenset(word[:_STEM] for word in words if word not in _SMALL)
