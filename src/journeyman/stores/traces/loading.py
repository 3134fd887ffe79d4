"""From the tables back to whole traces."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import sqlalchemy as sa

from journeyman.errors import StoreError, boundary
from journeyman.stores.traces import codec, lines, opinions
from journeyman.stores.traces.tables import CONTENTS, PARTS, TRACES
from journeyman.trace import Trace

_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Pieces:
    """What traces are made of, as it was read from the tables."""

    bodies: Mapping[int, Sequence[bytes]]
    """The header and the steps of each trace, by its `seq`; one that is gone is not in it."""
    contents: Mapping[str, str]
    """Texts kept apart, by digest."""

    def trace(self, seq: int) -> Trace:
        """The trace as it came in, without what was said of it here.

        Raises:
            StoreError: It cannot be read.
        """
        with boundary(StoreError, f"trace number {seq} cannot be read"):
            return codec.trace(self.bodies[seq], self.contents)


def pieces(connection: sa.Connection, seqs: Sequence[int]) -> Pieces:
    bodies: dict[int, list[bytes]] = {}
    rows = sa.select(PARTS.c.trace, PARTS.c.body).where(PARTS.c.trace.in_(seqs)).order_by(PARTS.c.trace, PARTS.c.position)
    for seq, body in connection.execute(rows) if seqs else ():
        bodies.setdefault(seq, []).append(codec.unpack(body))
    digests = {digest for told in bodies.values() for body in told for digest in codec.references(body)}
    return Pieces(bodies, _contents(connection, digests))


def load(connection: sa.Connection, seqs: Sequence[int]) -> list[Trace]:
    """The whole traces with the labels and the rewards that hold, in the order asked for, without those that are gone."""
    whole = pieces(connection, seqs)
    labels = dict(connection.execute(sa.select(TRACES.c.seq, TRACES.c.label).where(TRACES.c.seq.in_(seqs))).all())
    given = opinions.given(connection, seqs)
    found = []
    for seq in seqs:
        if seq in whole.bodies:
            trace = whole.trace(seq)
            rewards = lines.in_force(trace.rewards, given.get(seq, ()))
            found.append(replace(trace, label=labels[seq], rewards=rewards))
    return found


def _contents(connection: sa.Connection, digests: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    ordered = sorted(digests)
    for begin in range(0, len(ordered), _AT_ONCE):
        some = ordered[begin : begin + _AT_ONCE]
        rows = connection.execute(sa.select(CONTENTS.c.digest, CONTENTS.c.body).where(CONTENTS.c.digest.in_(some)))
        found.update((digest, codec.unpack_text(body)) for digest, body in rows)
    return found
