"""What a number may be: it stands with the field that it bounds, `Annotated[int, Within(1, 64)]`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Within:
    """Least and most of a number."""

    low: float
    high: float
