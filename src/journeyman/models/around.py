"""A model client around another one: what it is called and can do is the other's."""

from journeyman.models.base import Dialect, Model


class Around:
    """All of a `Model` but its verb, `complete`."""

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def dialect(self) -> Dialect:
        return self.model.dialect

    @property
    def deterministic(self) -> bool:
        return self.model.deterministic

    async def close(self) -> None:
        await self.model.close()
