"""Windows that studies read, and intervals of a rise of the loss."""

from __future__ import annotations

import pytest

from headscope.measure.study_windows import edge_windows, text_windows
from headscope.models.load import load_model
from tests.helpers import encoders


@pytest.mark.parametrize("max_tokens", [2, 90, 200, 365])
def test_a_text_has_no_more_tokens_than_were_asked_for(max_tokens, gpt2_folder, story):
    model = load_model(str(gpt2_folder))
    windows = text_windows(model, story, max_tokens=max_tokens)
    assert sum(map(len, windows)) == max_tokens
    whole = text_windows(model, story, max_tokens=2000)
    named = {window.name: window for window in whole}
    for window in windows:
        same = named[window.name]
        assert window.tokens.tolist() == same.tokens[: len(window)].tolist()
        assert window.strings == same.strings[: len(window)]


def test_a_cut_window_of_an_encoder_is_closed(tmp_path):
    model = load_model(str(encoders.save_hand_built(tmp_path / "model")))
    text = tmp_path / "text.conllu"
    text.write_text(encoders.corpus(20, seed=0))
    windows = text_windows(model, text, max_tokens=31)
    assert sum(map(len, windows)) == 31
    assert {window.tokens[-1] for window in windows} == {model.tokenizer.frame.end}


def test_a_text_needs_two_tokens_after_its_first(gpt2_folder, tmp_path):
    model = load_model(str(gpt2_folder))
    texts = ["a", "a.", "a.b"]
    for number, text in enumerate(texts):
        (tmp_path / f"{number}.txt").write_text(text)
    windows = edge_windows(model, [tmp_path], {"text"}, seed=0)
    assert sorted(map(len, windows)) == [3, 4]
