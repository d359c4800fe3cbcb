"""Text for the interventions."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some windows of unequal length."""
    folder = tmp_path_factory.mktemp("story")
    sentence = "Alice told them that she was in the house and the old keys were very tired. "
    for name, times in (("a", 1), ("b", 3), ("c", 7), ("d", 2)):
        (folder / f"{name}.txt").write_text(sentence[len(name) * times :] * times)
    return folder
