"""Which rows are learned from, which are chosen by, and which are only for the examination."""

import hashlib
import math
from dataclasses import dataclass

from journeyman.core.errors import InputError
from journeyman.core.task import Split, content
from journeyman.optimizers.outcome_table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Places of rows in a table. A request, however often it stands there, is in one part alone."""

    train: tuple[int, ...]
    validation: tuple[int, ...]
    held_out: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    """Rows that a file wants learned from although their requests are held out."""


def parts(table: Table, *, held_out: float = 0.2, validation: float = 0.1, seed: int = 0, least: int = 0) -> Parts:
    """As the file says; rows of which it says nothing by a hash of the request, so that a request never changes sides.

    Args:
        held_out: The share of the requests that is set apart, where the file sets none apart itself.
        validation: The same for those to choose by.
        seed: Of routers of before, which split by one; now the request alone decides.
        least: So many requests are set apart where a share of them is fewer and there are twice as many: what a gate needs.

    Raises:
        InputError: A share is not between 0 and 1, or both together leave nothing to learn from.
    """
    if not (0 <= held_out < 1 and 0 <= validation < 1 and held_out + validation < 1):
        raise InputError(
            f"shares of {held_out:g} held out and {validation:g} for validation leave nothing to learn from; take smaller ones"
        )
    told = table.splits or ("",) * len(table)
    shares = {
        Split.HELD_OUT: 0.0 if Split.HELD_OUT in told else held_out,
        Split.VALIDATION: 0.0 if Split.VALIDATION in told else validation,
    }
    if shares[Split.HELD_OUT] > 0:
        places = sorted(
            {_place(content(request), seed) for request, said in zip(table.requests, told, strict=True) if not said}
        )
        if 2 * least <= len(places) and (wanted := places[least - 1] if least else 0.0) >= held_out:
            # The next place after it, so that it is within; what is left is shared as before.
            shares[Split.VALIDATION] *= (1 - wanted) / (1 - held_out)
            shares[Split.HELD_OUT] = math.nextafter(wanted, 1.0)
    # What the file holds out stays held out under every name.
    said_of = list(zip((content(request) for request in table.requests), told, strict=True))
    # What the file says of a request holds for all its rows; what it holds out anywhere is held out everywhere.
    strongest = {own: said for split in ("", *Split) for own, said in said_of if said == split}
    found: dict[Split, list[int]] = {split: [] for split in Split}
    left_out = []
    for at, (own, said) in enumerate(said_of):
        if said and said != strongest[own]:
            left_out.append(at)
        else:
            found[_drawn(own, seed, shares, strongest[own])].append(at)
    return Parts(
        train=tuple(found[Split.TRAIN]),
        validation=tuple(found[Split.VALIDATION]),
        held_out=tuple(found[Split.HELD_OUT]),
        left_out=tuple(left_out),
    )


def _place(own: str, seed: int) -> float:
    return int.from_bytes(hashlib.sha256(f"{seed}/{own}".encode(errors="surrogatepass")).digest()[:8]) / 2**64


def _drawn(own: str, seed: int, shares: dict[Split, float], said: str) -> Split:
    if said in (Split.VALIDATION, Split.HELD_OUT):
        return Split(said)
    place = _place(own, seed)
    # What is said to be for learning is never held out; a part of it may be to choose by.
    held_out = 0.0 if said == Split.TRAIN else shares[Split.HELD_OUT]
    if place < held_out:
        return Split.HELD_OUT
    return Split.VALIDATION if place < held_out + shares[Split.VALIDATION] else Split.TRAIN
