"""What an owner of jobs can be asked that is looked at while the server runs.

Apart from `job_table`, since compiled modules cannot hold a protocol that `isinstance` is asked about (`loadgen.lab.compiled`).
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engines.base import JobKey


@runtime_checkable
class GivesWay(Protocol):
    """An owner of speculative work, which gives up a slot that a turn needs."""

    def give_way(self, key: JobKey) -> bool:
        """End the job, if it is speculative; whether it was."""
        ...
