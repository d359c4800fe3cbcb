"""What tests of several relations share."""

from __future__ import annotations

import pytest

from headscope.models.load import load_model
from headscope.models.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def encoder() -> Tokenizer:
    return load_model("mini").tokenizer
