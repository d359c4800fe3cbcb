"""Names of a sweep's models and corpora, and what tells them apart: never where they lie."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.corpus.shipped import unlike
from headscope.models.locate import run_name
from headscope.runs.recorded_paths import lies, name_of, seen_from


@dataclass
class CellNames:
    """The names in use in a sweep's folder, each with what it stands for."""

    folder: Path
    models: dict[str, str] = field(default_factory=dict)
    corpora: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, plan: Any) -> CellNames:
        """Names that a folder's `sweep.json` states."""
        if not isinstance(plan, dict):
            raise ValueError("it is no object")
        models, corpora = plan["models"], plan["corpora"]
        pairs = [*models.items(), *corpora.items()]
        if not all(isinstance(text, str) for pair in pairs for text in pair):
            raise ValueError("its models and corpora are no names")
        return cls(folder, dict(models), dict(corpora))

    def model(self, model: str) -> str:
        """The name of a model that was asked for."""
        return self._name(self.models, model)

    def corpus(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The names of the files and folders of a corpus."""
        return tuple(self._name(self.corpora, path) for path in paths)

    def _name(self, known: dict[str, str], reference: str) -> str:
        identity = self._identity(reference)
        match = next((name for name, its in known.items() if its == identity), None)
        name = match or unlike(name_of(reference), known)
        known[name] = identity
        return name

    def _identity(self, reference: str) -> str:
        """A name as it was asked for, a path as the folder sees it, or what only tells it apart."""
        if name_of(reference) == reference:
            return reference
        path = lies(reference)
        hidden = hashlib.sha256(path.encode("utf-8", "backslashreplace")).hexdigest()
        return seen_from(self.folder, path) or f"sha256:{hidden}"


def folder_name(model: str, revision: str | None, corpus: Sequence[str], used: set[str]) -> str:
    """A name for a run's folder that says what is in it, unlike those that are taken."""
    parts = [run_name(model), revision or ""]
    parts += [Path(path).stem for path in corpus[:2]]
    name = re.sub(r"[^\w.-]+", "-", "_".join(part for part in parts if part))[:100].strip(".-")
    name, number = name or "run", 1
    while (numbered := name if number == 1 else f"{name}-{number}") in used:
        number += 1
    return numbered
