"""The same-answer control, on heads whose writes are planted."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.models.load import load_model
from headscope.relations.effect import Effect, token_pairs
from headscope.relations.effects import EFFECTS, prompt_kinds
from headscope.relations.relation import EffectRule, find
from headscope.statistics.causes import FOLLOWS, LEAVES, STAYS, UNTESTED, cause_lines, judged
from headscope.stimuli.prompts import prompt_windows
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.text import TextWindows
from headscope.studies.ablate import same_answer
from headscope.studies.ablate.same_answer import WriteTag, same_answer_lifts
from tests.oracles.calibrate import prompt_words
from tests.oracles.words import sentence_texts, vocabulary
from tests.oracles.writer_heads import LOGITS
from tests.oracles.writers import (
    HALF,
    LAYERS,
    MARKS,
    SKETCH,
    WIDTH,
    WORD,
    inverse_gain,
    planted_heads,
    save_writers,
)

PLANTED = {(effect.type, effect.name): effect for effect in EFFECTS if not effect.of_keys}
FOLLOWERS = {
    "copy": ("copy", "looked-at"),
    "suppress": ("suppress", "looked-at"),
    "induction": ("induction", "repeat"),
    "successor": ("successor", "member"),
    "name mover": ("name-mover", "indirect-object"),
    "negative name mover": ("negative-name-mover", "indirect-object"),
    "retrieval": ("retrieval", "value"),
    "agreement": ("agreement", "number"),
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A planted model, its windows, and the words that one of its heads always raises."""
    folder = tmp_path_factory.mktemp("writers")
    corpus = controlled_corpus(24, seed=21)
    (folder / "text.conllu").write_text(corpus, encoding="utf-8")
    sentences = sentence_texts(corpus)
    words = vocabulary([*sentences, *prompt_words()])
    counts = Counter(word for text in sentences for word in re.findall(r"\w+|[^\w\s]", text))
    frequent = [word for word, _ in counts.most_common(8)]
    model = load_model(str(save_writers("gpt2", words, frequent, folder / "m", noise=0.1)))
    windows = list(
        TextWindows(
            [folder / "text.conllu"], model.tokenizer, max_length=64, seed=0, max_tokens=3_000
        )
    )
    windows += prompt_windows(model.tokenizer, prompt_kinds(EFFECTS), 128, seed=5).windows
    numbers = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows += repeat_windows(numbers, model.tokenizer, max_length=64, seed=1, count=16)
    return model, windows, [words.index(word) for word in frequent]


def place_of(name: str) -> tuple[int, int]:
    return next(place for place, head in planted_heads().items() if head.name == name)


def verdicts(planted, tags) -> pd.DataFrame:
    model, windows, _ = planted
    lifts = same_answer_lifts(model, windows, tags, seed=0, queries=48)
    return judged(pd.DataFrame([one.row(0) for one in lifts]), set())


def test_planted_writers_follow_the_token_that_they_look_at(planted):
    tags = [WriteTag(*place_of(name), PLANTED[kind]) for name, kind in FOLLOWERS.items()]
    table = verdicts(planted, tags)
    assert (table["verdict"] == FOLLOWS).all(), table.T.to_string()
    # little of the lift stays, and the answer of the new token gains it
    assert (table["ablated"] < 0.4 * table["clean"]).all(), table[["type", "clean", "ablated"]]
    assert (table["excess"] > 0.7 * table["clean"]).all()
    assert cause_lines(table, *tags[0][:2])[0].endswith(FOLLOWS)


def constant_effect(tokens: list[int]) -> Effect:
    """An effect with the answer that a lazy head always writes, wherever it looks."""

    def always(window):
        queries = np.arange(3, len(window), 5)
        return token_pairs(np.repeat(queries, len(tokens)), np.tile(tokens, len(queries)))

    def others(window, targets, rng):
        rest = [token for token in np.unique(window.tokens[1:]) if token not in tokens][:8]
        queries = np.unique(targets.query)
        return token_pairs(np.repeat(queries, len(rest)), np.tile(rest, len(queries)))

    return Effect(
        "copy", "constant", always, others, rule=EffectRule(0.5, "test", "raises a few tokens")
    )


def test_a_head_that_writes_the_same_wherever_it_looks_is_refused(planted):
    """Its lift is as large as a copying head's; nothing of it comes from the token."""
    effect = constant_effect(planted[2])
    copying = WriteTag(*place_of("copy"), PLANTED["copy", "looked-at"])
    table = verdicts(planted, [WriteTag(*place_of("raises the frequent"), effect), copying])
    assert table["verdict"].tolist() == [STAYS, FOLLOWS]
    lazy = table.iloc[0]
    assert lazy["clean"] > 0.5
    assert lazy["ablated"] == pytest.approx(lazy["clean"], rel=0.25)


def plant_by_position(model, name: str) -> WriteTag:
    """Makes a head raise the token two back by a mark on the token before, at which it looks."""
    layer, head = place_of(name)
    first, second = (block.attn for block in model.engine.network.transformer.h)
    own, guide = (slice(at * WIDTH, (at + 1) * WIDTH) for at in (head, place_of("suppress")[1]))
    size = HALF * 2
    with torch.no_grad():
        sketch = first.c_attn.weight[WORD, 2 * size : 2 * size + SKETCH].clone()
        for part in (0, size):  # it looks where that head does, one token back
            to, of = (slice(part + at.start, part + at.stop) for at in (own, guide))
            second.c_attn.weight[:, to] = second.c_attn.weight[:, of]
            second.c_attn.bias[to] = second.c_attn.bias[of]
        value = second.c_attn.weight[:, 2 * size + own.start : 2 * size + own.stop]
        value.zero_()
        value[MARKS["previous"] : MARKS["previous"] + SKETCH, :SKETCH] = torch.eye(SKETCH)
        out = second.c_proj.weight[own]
        out.zero_()
        out[:SKETCH, WORD] = sketch.T * LOGITS * inverse_gain(LAYERS, False) / (2 * SKETCH)
        out[:, HALF:] = -out[:, :HALF]

    def two_back(window):
        queries = np.arange(4, len(window), 5)
        apart = window.tokens[queries - 2] != window.tokens[queries - 1]
        return token_pairs(queries[apart], window.tokens[queries[apart] - 2])

    def others(window, targets, rng):
        pairs = [
            (query, token)
            for query in np.unique(targets.query).tolist()
            for token in np.setdiff1d(window.tokens[1:], window.tokens[query - 2 : query + 1])[:8]
        ]
        return token_pairs(*np.array(pairs, np.int64).reshape(-1, 2).T)

    rule = EffectRule(0.5, "test", "raises the token two back")
    return WriteTag(layer, head, Effect("copy", "two-back", two_back, others, rule=rule))


def test_a_head_that_writes_by_position_is_refused(planted):
    """It looks at the token before and raises the one before that, whichever it looks at."""
    by_position = plant_by_position(planted[0], "lowers all values")
    copies = WriteTag(*by_position[:2], PLANTED["copy", "looked-at"])
    table = verdicts(planted, [by_position, copies])
    lazy = table.iloc[0]
    assert lazy["verdict"] == STAYS, table.T.to_string()
    assert lazy["n"] == 48
    assert lazy["clean"] > 0.5
    assert lazy["ablated"] == pytest.approx(lazy["clean"], rel=0.25)
    # the token that it looks at gets no lift from it
    assert table.iloc[1]["verdict"] == f"{UNTESTED}: it shows no lift where it looks at one token"


def test_a_head_that_raises_the_usual_answer_does_not_pass_on_balanced_prompts(planted):
    lazy = {
        "raises plural verbs": ("agreement", "number"),
        "raises singular verbs": ("agreement", "number"),
        "raises the list": ("successor", "member"),
    }
    tags = [WriteTag(*place_of(name), PLANTED[kind]) for name, kind in lazy.items()]
    no_lift = f"{UNTESTED}: it shows no lift where it looks at one token"
    *of_number, of_list = verdicts(planted, tags)["verdict"]
    assert of_number == [no_lift, no_lift]
    # a list has a lift or none by which of its members are drawn
    assert of_list in (no_lift, STAYS)


def test_a_head_that_raises_the_usual_answer_is_refused_where_it_is_the_answer(planted):
    """Of subjects in the singular alone, one that always raises singular verbs has a lift."""
    model, windows, words = planted
    effect = PLANTED["agreement", "number"]
    forms = {entry.split("/")[1] for entry in lexicon.ON_THINGS}
    singular = [
        window
        for window in windows
        if (cells := find(effect, window, [0, 0])) is not None
        and forms.issuperset(model.tokenizer.spell(cells.targets.key.tolist()))
    ]
    tag = WriteTag(*place_of("raises singular verbs"), effect)
    (lazy,) = verdicts((model, singular, words), [tag]).itertuples()
    assert lazy.n == len(singular) > 20
    assert lazy.verdict == STAYS
    assert lazy.clean > 0.5
    assert lazy.ablated == pytest.approx(lazy.clean, rel=0.25)


def test_a_head_that_looks_at_one_token_alone_cannot_be_told_from_a_constant(planted):
    tag = WriteTag(*place_of("raises the one token it looks at"), PLANTED["copy", "looked-at"])
    (verdict,) = verdicts(planted, [tag])["verdict"]
    assert verdict.startswith(f"{UNTESTED}: it looks at one token at 0 queries")


def test_a_head_without_a_lift_is_no_subject_of_the_control(planted):
    tag = WriteTag(*place_of("writes at random"), PLANTED["copy", "looked-at"])
    (verdict,) = verdicts(planted, [tag])["verdict"]
    assert verdict == f"{UNTESTED}: it shows no lift where it looks at one token"


def test_the_lifts_are_those_of_a_slow_rerun(planted, monkeypatch):
    """Values by transformers' hidden states and GPT-2's own matrices, query by query."""
    model, windows, _ = planted
    network = model.engine.network
    layer, head = place_of("name mover")
    tag = WriteTag(layer, head, PLANTED["name-mover", "indirect-object"])
    queries = []
    fast = same_answer._lifts

    def listening(*parts):
        queries.extend(parts[-1])
        return fast(*parts)

    monkeypatch.setattr(same_answer, "_lifts", listening)
    (lifts,) = same_answer_lifts(model, windows, [tag], seed=0, queries=4)
    assert len(queries) == 4
    size = network.config.n_embd
    own = slice(
        head * (size // network.config.n_head), (head + 1) * (size // network.config.n_head)
    )
    block, last = network.transformer.h[layer], network.transformer.ln_f
    rows = network.lm_head.weight * last.weight
    directions = block.attn.c_proj.weight[own] @ (rows - rows.mean(1, keepdim=True)).T
    ends: list[torch.Tensor] = []
    last.register_forward_pre_hook(lambda module, inputs: ends.insert(0, inputs[0]))
    for number, one in enumerate(queries):
        text = torch.from_numpy(windows[one.window].tokens[: one.query + 1])[None]
        changed = text.clone()
        changed[0, one.key] = one.new_token
        with torch.no_grad():
            after = network.transformer(changed, output_hidden_states=True)
            clean = network.transformer(text, output_hidden_states=True)
            mixed = block.attn.c_attn(block.ln_1(clean.hidden_states[layer]))[0]
            query, key = mixed[one.query, :size][own], mixed[:, size : 2 * size][:, own]
            attention = (key @ query / len(query) ** 0.5).softmax(0)
            scale = (ends[0][0, -1].var(unbiased=False) + last.eps).rsqrt()
            logits = []
            for states in (clean.hidden_states, after.hidden_states):
                mixed = block.attn.c_attn(block.ln_1(states[layer]))[0]
                value = mixed[:, 2 * size :][:, own]
                logits.append((attention @ value @ directions * scale).numpy())
        before, behind = (side[one.answer].mean() - side[one.control].mean() for side in logits)
        assert lifts.lift[number] == pytest.approx(before, abs=1e-3)
        assert lifts.same_answer[number] == pytest.approx(behind, abs=1e-3)
        assert lifts.new_before[number] == pytest.approx(logits[0][one.new_answer].mean(), abs=1e-3)
        assert lifts.new_after[number] == pytest.approx(logits[1][one.new_answer].mean(), abs=1e-3)


def test_a_lift_that_goes_and_comes_nowhere_is_called_so():
    row = {
        "kind": "write", "layer": 0, "head": 0, "type": "copy", "heads": "L0H0",
        "behaviour": "same-answer", "n": 48, "clean": 1.0, "ablated": 0.1, "effect": -0.9,
        "ci_low": -1.0, "ci_high": -0.8, "excess": 0.1, "excess_low": 0.05, "excess_high": 0.2,
        "p_value": 1e-6, "verdict": "", "relation": "looked-at",
    }  # fmt: skip
    stays = row | {"ablated": 0.6, "effect": -0.4, "ci_low": -0.5, "ci_high": -0.3, "excess": 1.0}
    unsure = row | {"excess": 0.9, "p_value": 0.4}
    table = judged(pd.DataFrame([row, stays, unsure]), {(0, 0)})
    assert table["verdict"].tolist() == [LEAVES, STAYS, LEAVES]
    assert not table["agrees"].any()
