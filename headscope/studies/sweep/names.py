"""What a sweep calls its models and corpora, and what tells them apart: never where they lie."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.corpus.naming import unlike
from headscope.runs.places import lies, seen_from
from headscope.runs.shareable import name_of


@dataclass
class Names:
    """The names in use in a sweep's folder, each with what it stands for."""

    folder: Path
    models: dict[str, str] = field(default_factory=dict)
    corpora: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, plan: Any) -> Names:
        """Those that a folder's `sweep.json` says; it said none in 0.1.0."""
        if not isinstance(plan, dict):
            raise ValueError("it is no object")
        models, corpora = plan.get("models", {}), plan.get("corpora", {})
        pairs = [*models.items(), *corpora.items()]
        if not all(isinstance(text, str) for pair in pairs for text in pair):
            raise ValueError("its models and corpora are no names")
        return cls(folder, dict(models), dict(corpora))

    def model(self, asked: str) -> str:
        """What a model is called that was asked for."""
        return self._name(self.models, asked)

    def corpus(self, asked: Iterable[str]) -> tuple[str, ...]:
        """What the files and folders of a corpus are called."""
        return tuple(self._name(self.corpora, path) for path in asked)

    def _name(self, known: dict[str, str], asked: str) -> str:
        place = self._place(asked)
        found = next((name for name, its in known.items() if its == place), None)
        name = found or unlike(name_of(asked), known)
        known[name] = place
        return name

    def _place(self, asked: str) -> str:
        """A name as it was asked for, a path as the folder sees it, or what only tells it apart."""
        if name_of(asked) == asked:
            return asked
        place = lies(asked)
        hidden = hashlib.sha256(place.encode("utf-8", "backslashreplace")).hexdigest()
        return seen_from(self.folder, place) or f"sha256:{hidden}"
