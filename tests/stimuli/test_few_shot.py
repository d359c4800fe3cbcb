"""Tasks, and few-shot prompts: those of one seed differ in their answers alone."""

from __future__ import annotations

import pytest

from headscope.errors import CorpusError
from headscope.models.load import load_model
from headscope.stimuli.few_shot import (
    CLEAN,
    SHUFFLED,
    ZERO_SHOT,
    PromptSize,
    few_shot_prompts,
    read_tasks,
    spelled_task,
)
from headscope.stimuli.prompts import Spelling
from tests.oracles.planted_tasks import save_model


def test_prompts_of_one_seed_differ_in_their_answers_alone(tmp_path):
    tokenizer = load_model(str(save_model(tmp_path))).tokenizer
    pairs = [(f"q{i}", f"w0x{i}") for i in range(24)]
    task = spelled_task("t0", pairs, Spelling(tokenizer), seed=0)
    asked = [{question for question, _ in part} for part in task.halves]
    assert not asked[0] & asked[1]
    size = PromptSize(4, 8, 0)
    kinds = {
        kind: few_shot_prompts(task, 1, kind, tokenizer=tokenizer, size=size)
        for kind in (CLEAN, SHUFFLED, ZERO_SHOT)
    }
    answer_of = dict(pairs)
    for clean, shuffled, zero in zip(*kinds.values(), strict=True):
        texts = [tokenizer.spell(p.tokens.tolist()) for p in (clean, shuffled, zero)]
        assert texts[0][-3:] == texts[1][-3:] == texts[2][-3:]
        assert clean.right == shuffled.right == zero.right
        assert not {*texts[2]} & {*answer_of.values()}
        due = texts[0][-3]
        for text, kept in ((texts[0], True), (texts[1], False)):
            shown = [
                (text[place - 3], word)
                for place, word in enumerate(text)
                if word in answer_of.values()
            ]
            assert len(shown) == 4
            assert due not in [question for question, _ in shown]
            assert all((answer_of[q] == a) == kept for q, a in shown)
        assert sorted(texts[0]) == sorted(texts[1])


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n", "task,question\nx,hot\n"])
def test_a_file_of_tasks_needs_its_three_columns(tmp_path, content):
    path = tmp_path / "wrong.csv"
    path.write_text(content)
    with pytest.raises(CorpusError, match=r"wrong\.csv"):
        read_tasks(path)
