"""A late head that raises what is predicted already writes no type that is about moving."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from headscope.measure.reading import sum_cells
from headscope.models.load import load_model
from headscope.relations.effects import EFFECTS, sum_names
from headscope.statistics.judge_heads import RunSums
from headscope.stimuli.repeat import repeat_windows

CODE, HEADS, CONTEXT = 64, 4, 64
D_MODEL = HEADS * CODE
IN, OUT, PLACE = (slice(i * CODE, (i + 1) * CODE) for i in range(3))
MOVER, AMPLIFIER, LATE = (0, 0), (1, 0), (1, 1)
LENGTH = 41


def save_amplifier(tokenizer, folder, *, copy_length: int, noise: float) -> None:
    """Heads that look at one distance and move a token's code into its unembedding, early and late,
    and one that looks at its own position and raises whatever stands there for the unembedding."""
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer),
            n_embd=D_MODEL,
            n_head=HEADS,
            n_layer=2,
            n_positions=CONTEXT,
            n_inner=4,
            tie_word_embeddings=False,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    state, rng = model.state_dict(), np.random.default_rng(0)
    for name, tensor in state.items():
        tensor.fill_(float(".ln_" in name and name.endswith("weight")))
    codes = torch.from_numpy(rng.choice([-1.0, 1.0], (len(tokenizer), CODE))).float()
    state["transformer.wte.weight"][:, IN] = codes
    state["lm_head.weight"][:, OUT] = 2 * codes / CODE
    state["transformer.wpe.weight"][:, PLACE] = 8 * torch.eye(CONTEXT)
    for (layer, head), offset, reads, size in (
        (MOVER, copy_length - 1, IN, 1.5),
        (AMPLIFIER, 0, OUT, 2.0),
        (LATE, copy_length - 1, IN, 1.5),
    ):
        at = f"transformer.h.{layer}.attn"
        joined, own = state[f"{at}.c_attn.weight"], slice(head * CODE, (head + 1) * CODE)
        q, k, v = (joined[:, i * D_MODEL :][:, own] for i in range(3))
        q[PLACE] = 5 * torch.eye(CONTEXT).roll(-offset, 1)
        k[PLACE], v[reads] = 5 * torch.eye(CONTEXT), torch.eye(CODE)
        state[f"{at}.c_proj.weight"][own, OUT] = size * torch.eye(CODE)
        for part in (q, k, v, state[f"{at}.c_proj.weight"][own]):
            size = float(part.square().mean().sqrt())
            part += torch.from_numpy(rng.normal(0, noise * size, part.shape)).float()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_what_is_read_at_the_own_position_earns_no_tag(noise, tokenizer, tmp_path):
    save_amplifier(tokenizer, tmp_path, copy_length=20, noise=noise)
    model = load_model(str(tmp_path))
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = repeat_windows(vocabulary, model.tokenizer, max_length=LENGTH, seed=0, count=16)
    assert {window.copy_length for window in windows} == {20}
    tally = sum_cells(model, [], windows, EFFECTS, seed=0, batch_tokens=256)
    assert tally.relations == sum_names(EFFECTS)
    effects = RunSums(tally, seed=0).effects(EFFECTS)
    effects = effects[effects["effect"] == "repeat"]
    table = effects.set_index(["layer", "head"])
    assert set(table.index[table["tagged"]]) == {MOVER, LATE}
    raised = table.loc[AMPLIFIER]
    assert raised["lift"] > 1.5  # it does raise it
    assert abs(raised["moved"]) < 0.1
    for name in (MOVER, LATE):
        assert table.loc[name, "moved"] == pytest.approx(table.loc[name, "lift"], abs=0.1)
