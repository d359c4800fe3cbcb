"""Silence while transformers loads, and everything as it was afterwards."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

from transformers.utils import logging as transformers_logging


@contextmanager
def quiet_logging() -> Iterator[None]:
    """No progress bars and no advice from transformers within this context: errors are raised.

    The level of its logger, its progress bars and those of the hub are afterwards what they were,
    also when the body raises.
    """
    logger = logging.getLogger("transformers")
    transformers_logging.get_verbosity()  # sets its own first level, if this is the first look
    level = logger.level
    logger.setLevel(logging.ERROR)
    # a hook says nothing about what the user had set: the switch for bars has no exact way back
    previous = transformers_logging.set_tqdm_hook(_no_bar)
    try:
        # the GGUF reader draws its bar whatever the settings say
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        transformers_logging.set_tqdm_hook(previous)


def _no_bar(_factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return transformers_logging.EmptyTqdm(*args, **options)
