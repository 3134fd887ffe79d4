"""The money of one plan: what a job could cost is set aside before it begins, what it did cost is taken afterwards."""

import asyncio


class Purse:
    """Never promises more than there is. Belongs to one event loop."""

    def __init__(self, money: float | None) -> None:
        self.money = money
        """US dollars; `None` is without an end."""
        self.spent = 0.0
        """Where a cost is not known, the estimate counts."""
        self._held: list[float] = []
        self._changed = asyncio.Event()

    async def take(self, most: float | None) -> bool:
        """Set aside what a job costs at most; waits while the money that is set aside for others may come back. `False` when
        there is not enough, or nobody knows how much it is."""
        if self.money is None:
            return True
        while most is not None and self.spent + most <= self.money:
            if self.spent + sum(self._held) + most <= self.money:
                self._held.append(most)
                return True
            self._changed.clear()
            await self._changed.wait()
        return False

    def settle(self, most: float | None, cost: float | None) -> None:
        """Take what a job did cost, and free what was set aside for it."""
        if self.money is None or most is None:
            return
        self._held.remove(most)
        self.spent += most if cost is None else cost
        self._changed.set()
