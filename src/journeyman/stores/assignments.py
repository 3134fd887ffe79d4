"""Which session is on which arm, and what gateways that share nothing but the database promise each other.

A gateway that cannot ask serves production, and another that can would draw that session meanwhile: of two machines neither
knows what the other does. So each promises by way of the database, for a second or two and again and again, that it serves
nobody without asking; it keeps that also when it cannot ask any more. Sessions are drawn while all promise, and else put on
production. Whoever comes back tells first whom it served, and promises then.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import sqlalchemy as sa

from journeyman.core.rollout import PRODUCTION
from journeyman.stores.base import DEGRADED, DRAWN, Assignment, utc
from journeyman.stores.engine import OnDatabase
from journeyman.stores.tables import ASSIGNMENTS, LEASES
from journeyman.stores.traces.writing import insert, take_turn

MARGIN_SECONDS = 0.3
"""For which all must have promised on, so that whoever is drawn has reached the model by then."""
FORGOTTEN_SECONDS = 600
"""After which a gateway that has not been heard of counts as gone for good, with what it may have had to tell."""
_SECOND = 1_000_000
_GATEWAY, _CHANNEL = "gateway:", "journeyman_assignments"


class LeaseStore(OnDatabase):
    """Keeps who does what only one may do."""

    def lease(self, name: str, holder: str, at: datetime, seconds: float) -> int | None:
        """Take or renew a lease: its generation, which grows with each new holder; `None` while somebody else has it."""
        until = utc(at) + timedelta(seconds=seconds)
        with self._database.write() as connection:
            take_turn(connection)
            row = connection.execute(sa.select(LEASES).where(LEASES.c.name == name)).first()
            if row is None:
                insert(connection, LEASES, [{"name": name, "holder": holder, "generation": 1, "until": until}])
                return 1
            if row.holder != holder and row.until > utc(at):
                return None
            generation = row.generation + (row.holder != holder)
            changed = sa.update(LEASES).where(LEASES.c.seq == row.seq)
            connection.execute(changed.values(holder=holder, generation=generation, until=until))
            return int(generation)

    def held_by(self, name: str, at: datetime) -> str:
        """Who has a lease; empty while nobody does."""
        found = sa.select(LEASES.c.holder).where(LEASES.c.name == name, LEASES.c.until > utc(at))
        with self._database.read() as connection:
            return str(connection.scalar(found) or "")

    def give_back(self, name: str, holder: str, at: datetime) -> None:
        """End a lease early; that of somebody else stays as it is."""
        ours = (LEASES.c.name == name, LEASES.c.holder == holder, LEASES.c.until > utc(at))
        with self._database.write() as connection:
            connection.execute(sa.update(LEASES).where(*ours).values(until=utc(at)))


class AssignmentStore(LeaseStore):
    """Keeps which sessions are on which arm."""

    def assign(self, wanted: Sequence[Assignment], *, gateway: str = "") -> Sequence[Assignment]:
        """Keep on which arms sessions are. The first word on a session holds, whoever it is of, unless a gateway tells that the
        session was served production while the store did not answer: then that does. What holds, in their order.

        Args:
            gateway: Who asks, where others on the same database promise as `promise` says. While one of them does not, whoever
                would be drawn is on production instead, for good.
        """
        # In the order of their keys: of two who write the same sessions at once, neither has what the other waits for.
        ordered = sorted(wanted, key=lambda each: (each.rollout_id, each.unit))
        told = [each for each in ordered if each.why == DEGRADED]
        with self._database.write(swift=True) as connection:
            if ordered and not self.in_order and not _calls(connection, gateway) and len(told) < len(ordered):
                ordered = [each._replace(arm=PRODUCTION, why=DEGRADED) for each in ordered]
            # Another may have drawn one between the two statements, and ended before the second.
            for _ in range(2 if told else 1):
                _take_back(connection, told)
                insert(connection, ASSIGNMENTS, list(map(_row, ordered)))
            found = _assigned(connection, wanted)
        return [found[each.rollout_id, each.unit] for each in wanted]

    @property
    def in_order(self) -> bool:
        """Whether of two assignments that with the lower `seq` is seen first: SQLite lets one write at a time."""
        return self._database.dialect == "sqlite"

    def assigned(self, rollout_id: str, unit: str) -> Assignment | None:
        """The arm that a session is on; `None` while it is on none."""
        where = (ASSIGNMENTS.c.rollout_id == rollout_id, ASSIGNMENTS.c.unit == unit)
        with self._database.read() as connection:
            row = connection.execute(sa.select(ASSIGNMENTS).where(*where)).first()
        return None if row is None else _assignment(row)

    def assignments(
        self, rollout_id: str, *, after: int = 0, limit: int = 10_000, newest: bool = False
    ) -> Sequence[Assignment]:
        """In the order in which they were made: the first so many from behind a `seq` on, or the newest."""
        table = ASSIGNMENTS
        found = sa.select(table).where(table.c.rollout_id == rollout_id, table.c.seq > after)
        order = table.c.seq.desc() if newest else table.c.seq
        with self._database.read() as connection:
            rows = [_assignment(row) for row in connection.execute(found.order_by(order).limit(limit))]
        return rows[::-1] if newest else rows

    def assigned_by_arm(self, rollout_id: str) -> Mapping[str, int]:
        """How many sessions are on each arm, in the order of their names."""
        table = ASSIGNMENTS
        found = sa.select(table.c.arm, sa.func.count()).where(table.c.rollout_id == rollout_id).group_by(table.c.arm)
        with self._database.read() as connection:
            return dict(map(tuple, connection.execute(found.order_by(table.c.arm))))

    # Of gateways on one PostgreSQL.

    def clock(self) -> int:
        """The server's, in microseconds since 1970."""
        with self._database.read() as connection:
            return int(connection.exec_driver_sql(f"select {_CLOCK}").scalar_one())

    def promise(self, gateway: str, until: int) -> None:
        """Keep that a gateway serves nobody without asking, until then by the server's clock. It has told all whom it served so
        before.

        It is a moment and no span, so that it means the same whenever the server comes to write it.
        """
        said = sa.text(
            f"insert into {LEASES.name} (name, holder, generation, until) values (:name, '', 1, :until) "  # noqa: S608 - our own
            "on conflict (name) do update set until = excluded.until"
        )
        with self._database.write(swift=True) as connection:
            # One that is lost in a crash is one that was not made.
            connection.exec_driver_sql("set local synchronous_commit = off")
            connection.execute(said, {"name": f"{_GATEWAY}{gateway}", "until": until})

    def withdraw(self, gateway: str) -> None:
        """Count a gateway no more that ends, and has nothing to tell."""
        with self._database.write(swift=True) as connection:
            connection.execute(sa.delete(LEASES).where(LEASES.c.name == f"{_GATEWAY}{gateway}"))

    def listen(self, seconds: float) -> bool:
        """Wait until a gateway has put sessions on arms, for so long at most; whether one has."""
        return self._database.listen(_CHANNEL, seconds)


# Texts, as each is on the way of a session's first request, and to make them of their parts takes longer than to ask.
_CLOCK = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_CALL = (
    f"select pg_notify('{_CHANNEL}', ''), %s and exists (select 1 from {LEASES.name} "  # noqa: S608 - our own names
    f"where starts_with(name, '{_GATEWAY}') and name <> %s and until < {_CLOCK} + {round(MARGIN_SECONDS * _SECOND)} "
    f"and until > {_CLOCK} - {FORGOTTEN_SECONDS * _SECOND})"
)


def _calls(connection: sa.Connection, gateway: str) -> bool:
    """Call on the others once this is on disk; whether all of them promise, where whoever asks has a name."""
    found = connection.exec_driver_sql(_CALL, (bool(gateway), f"{_GATEWAY}{gateway}")).one()
    return not found[1]


def _row(each: Assignment) -> dict[str, Any]:
    row = {**each._asdict(), "at": utc(each.at)}
    del row["seq"]
    return row


def _assignment(row: sa.Row[Any]) -> Assignment:
    return Assignment(row.rollout_id, row.unit, row.arm, row.event, row.why, row.at, row.seq)


def _take_back(connection: sa.Connection, served: Sequence[Assignment]) -> None:
    """What was drawn of sessions that were served something else."""
    for rollout_id, some in groupby(served, lambda each: each.rollout_id):
        of_them = (ASSIGNMENTS.c.rollout_id == rollout_id, ASSIGNMENTS.c.unit.in_([each.unit for each in some]))
        connection.execute(sa.delete(ASSIGNMENTS).where(*of_them, ASSIGNMENTS.c.why == DRAWN))


# Made once: to make it takes as long as to ask, and a session's first request waits for it.
_OF_UNITS = sa.select(ASSIGNMENTS).where(
    ASSIGNMENTS.c.rollout_id == sa.bindparam("rollout"), ASSIGNMENTS.c.unit.in_(sa.bindparam("units", expanding=True))
)


def _assigned(connection: sa.Connection, wanted: Sequence[Assignment]) -> Mapping[tuple[str, str], Assignment]:
    found: dict[tuple[str, str], Assignment] = {}
    for rollout_id in {each.rollout_id for each in wanted}:
        units = [each.unit for each in wanted if each.rollout_id == rollout_id]
        rows = connection.execute(_OF_UNITS, {"rollout": rollout_id, "units": units})
        found |= {(rollout_id, row.unit): _assignment(row) for row in rows}
    return found
