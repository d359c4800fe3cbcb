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
    # torch takes seconds to import, and reading a GPU's state would start the GPU
    torch: Any = sys.modules.get("torch")
    of_torch, of_gpus = None, []
    if torch is not None:
        of_torch = torch.get_rng_state()
        if torch.cuda.is_initialized():
            of_gpus = torch.cuda.get_rng_state_all()
    outside = _is_kept.set(True)
    try:
        yield
    finally:
        _is_kept.reset(outside)
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        if torch is not None:
            torch.set_rng_state(of_torch)
        if of_gpus:
            torch.cuda.set_rng_state_all(of_gpus)
