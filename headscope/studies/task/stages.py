"""Finished stages of a task, kept in its folder so that an interrupted run goes on."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.runs.write import write_file

FOLDER = "unfinished"
"""Folder of the stages, below that of the results; removed at the end."""
_KEY = "key.txt"


class Stages:
    """Arrays that were computed, in memory and in a folder.

    Args:
        out: the folder of the results; None keeps arrays in memory alone.
        key: what the arrays depend on; those of another key are removed.
    """

    def __init__(self, out: Path | None, key: Any) -> None:
        self._arrays: dict[str, ndarray] = {}
        self._folder = None if out is None else out / FOLDER
        self.resumed = False
        """True if arrays of an interrupted run are there."""
        if self._folder is None:
            return
        text = json.dumps(key, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()
        key_file = self._folder / _KEY
        is_same = key_file.exists() and key_file.read_text("utf-8") == digest
        self.resumed = is_same
        if not is_same:
            self.remove()
            write_file(key_file, digest, overwrite=True)

    def array(self, name: str, make: Callable[[], Float[ndarray, ...]]) -> Float[ndarray, ...]:
        """An array by its name, computed if it is not there yet."""
        if name in self._arrays:
            return self._arrays[name]
        path = None if self._folder is None else self._folder / f"{name}.npy"
        if path is not None and path.exists():
            values: ndarray = np.load(path, allow_pickle=False)
        else:
            values = make()
            if path is not None:
                content = io.BytesIO()
                np.save(content, values, allow_pickle=False)
                write_file(path, content.getvalue(), overwrite=True)
        self._arrays[name] = values
        return values

    def remove(self) -> None:
        """Remove the folder of the stages."""
        if self._folder is not None and self._folder.exists():
            shutil.rmtree(self._folder)
