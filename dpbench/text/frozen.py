"""The base of everything that is read from a file or sent between processes."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """The base of all that is read or sent: not to be changed, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
