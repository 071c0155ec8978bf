"""The base of everything that is read from a file or sent between processes."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Cannot be changed after it was checked, and has no other fields than those of its class."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
