"""The random state of the user's program, which no function of headscope changes.

headscope draws from generators of its own. Libraries that it calls draw from the global ones: a
layer that is built draws its weights before they are replaced.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

_is_kept = ContextVar("_is_kept", default=False)
"""True inside `random_state_kept`: the thousands of calls within a run do not store the states
again."""


@contextmanager
def random_state_kept() -> Iterator[None]:
    """The global generators of torch, NumPy and Python are as before after this context.

    A torch that is first imported within this context seeds itself at random, and is left so.

    >>> before = random.getstate()
    >>> with random_state_kept():
    ...     number = random.random()
    >>> random.getstate() == before
    True
    """
    if _is_kept.get():
        yield
        return
    of_python, of_numpy = random.getstate(), np.random.get_state()
    of_torch = _torch_state()
    outside = _is_kept.set(True)
    try:
        yield
    finally:
        _is_kept.reset(outside)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        _restore_torch(of_torch)


@dataclass(frozen=True)
class _TorchState:
    """The states of torch's generators."""

    processor: Any
    gpus: list[Any]
    """States of each GPU; empty if none was used yet."""


def _torch_state() -> _TorchState | None:
    """The states of torch's generators; None before torch is imported, which takes seconds."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return None
    # reading a GPU's state would start the GPU
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return _TorchState(torch.get_rng_state(), gpus)


def _restore_torch(before: _TorchState | None) -> None:
    if before is None:
        return
    torch: Any = sys.modules["torch"]
    torch.set_rng_state(before.processor)
    if before.gpus:
        torch.cuda.set_rng_state_all(before.gpus)
