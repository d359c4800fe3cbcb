"""Every causal layout and encoder that transformers knows."""

from __future__ import annotations

import pytest

from tests.models.every_layout import check_layout
from tests.models.tiny import MODEL_TYPES


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_layout_shows_its_own_attention_or_is_refused_in_one_sentence(
    model_type, tokenizer, tmp_path
):
    check_layout(model_type, tokenizer, tmp_path)
