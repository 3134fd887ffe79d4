"""What workers are given: JSON that is looked at before anything is done with it."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from journeyman.core.errors import InputError


class JobItem(BaseModel):
    """The item of a job, by its fields. `paths` and `folder` are places below the worker's folder, and `sandbox` is one with
    walls: workers on PostgreSQL refuse any other."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @classmethod
    def read(cls, item: Mapping[str, Any]) -> Self:
        """
        Raises:
            InputError: A field is missing, unknown or of another kind; the message names the first.
        """
        try:
            return cls.model_validate(item)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise InputError(f"the item of a job cannot be used: {where}: {first['msg']}") from None

    def json_item(self) -> dict[str, Any]:
        """As it crosses to a worker."""
        return self.model_dump(mode="json")
