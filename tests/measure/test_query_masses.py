"""The masses of single queries against a slow loop over Hugging Face's own attention."""

from __future__ import annotations

import pytest
import torch

from headscope.corpus.shipped import data_folder
from headscope.measure.example import ExampleRequest
from headscope.measure.query_masses import Reading, masses
from headscope.measure.sample_patterns import SamplePatterns
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.text import TextWindows

RELATIONS = relations_of(["positional", "delimiter", "induction"])
BY_NAME = {relation.id: i for i, relation in enumerate(RELATIONS)}


@pytest.fixture(scope="module")
def windows(gpt2_folder):
    model = load_model(str(gpt2_folder))
    corpus = data_folder() / "corpora" / "gold.conllu"
    return list(TextWindows([corpus], model.tokenizer, max_tokens=600, max_length=48, seed=0))


@pytest.mark.parametrize("engine", ["fused", "lens"])
def test_masses_are_those_of_a_slow_loop_over_the_models_own_attention(
    gpt2_folder, windows, engine
):
    from transformers import AutoModelForCausalLM

    wanted = [
        ExampleRequest(1, 3, BY_NAME["delimiter/punctuation"]),
        ExampleRequest(0, 1, BY_NAME["positional/offset-2"]),
        ExampleRequest(1, 0, BY_NAME["delimiter/punctuation"]),
        ExampleRequest(1, 0, BY_NAME["induction/repeat"]),  # no window of text has it
    ]
    model = load_model(str(gpt2_folder), engine=engine)
    seen: list[tuple[int, int]] = []
    reading = Reading(
        model, windows, RELATIONS, lambda *counts: seen.append(counts), SamplePatterns([])
    )
    found = masses(reading, wanted)
    plain = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    slow: list[dict[tuple[int, int], float]] = [{} for _ in wanted]
    for place, window in enumerate(windows):
        with torch.inference_mode():
            tokens = torch.from_numpy(window.tokens)[None]
            attentions = plain(tokens, output_attentions=True).attentions
        for want, sums in zip(wanted[:3], slow, strict=False):
            pairs = RELATIONS[want.relation].pairs(window)
            for query, key in zip(pairs.query.tolist(), pairs.key.tolist(), strict=True):
                mass = float(attentions[want.layer][0, want.head, query, key])
                sums[place, query] = sums.get((place, query), 0.0) + mass
    assert len(slow[0]) > 100
    assert len(set(map(len, windows))) > 1
    for queries, sums in zip(found, slow, strict=True):
        # patterns count in half precision
        places = list(zip(queries.window.tolist(), queries.query.tolist(), strict=True))
        assert dict(zip(places, queries.mass, strict=True)) == pytest.approx(sums, abs=1e-3)
        assert len(places) == len(sums)
    total = sum(map(len, windows))
    assert seen[-1] == (total, 2 * total)  # one more reading follows
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
