"""How many processes a sweep runs in, and by what."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

from headscope.errors import HeadscopeError
from headscope.measurer import InProcess, Measurer

MOST = 4
"""Workers unless more are asked for: each of them holds the model."""


def workers_of(asked: int | None, address: str | None) -> tuple[int, str]:
    """The number of Ray workers, 0 for this process alone, and a line if Ray is missing.

    Raises:
        HeadscopeError: a cluster is named, and Ray is not installed or no worker asked for.
    """
    if find_spec("ray") is None:
        how = "pip install 'headscope[ray]'"
        if address is not None:
            raise HeadscopeError(f"--address {address}: Ray is not installed here; {how}")
        if asked == 0:
            return 0, ""
        return 0, f"Ray is not installed: one process does it all ({how} for more)"
    if asked == 0 and address is not None:
        raise HeadscopeError("--engine-workers 0 uses no cluster, but --address names one")
    return min(MOST, _cores()) if asked is None else asked, ""


def measurer_of(workers: int, address: str | None) -> AbstractContextManager[Measurer]:
    """What reads the models of a sweep, to be used in a `with` statement."""
    if workers == 0:
        return nullcontext(InProcess())
    import torch

    from headscope.sweep.shards import Shards

    return Shards(workers, address=address, threads=max(1, torch.get_num_threads() // workers))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
