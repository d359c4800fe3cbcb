"""Heads that matter for a task: against slow loops, and in models whose heads have a known part."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import e

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

import headscope as hs
from headscope.causal.head_set import matched_sets
from headscope.causal.rerun import Rerunner
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import HeadsMixed, TaskRunner
from headscope.errors import CorpusError, HeadscopeError
from headscope.models.load import load_model
from headscope.stimuli.shipped_tasks import shipped_names
from headscope.stimuli.tasks import COLUMNS, read_task

PROMPTS = (
    "the dog saw the",
    "a man and the",
    "they saw the old",
    "we saw the man and the",
    "a dog",
)
ROWS = [{"prompt": text, "answer": " man", "wrong": " dog"} for text in PROMPTS]


def test_a_task_is_the_same_from_a_file_from_rows_and_from_a_table(tmp_path):
    table = pd.DataFrame(ROWS)
    table.to_csv(tmp_path / "task.csv", index=False)
    lines = [json.dumps(row) for row in ROWS]
    (tmp_path / "task.jsonl").write_text("\n".join(lines), encoding="utf-8")
    expected = read_task(ROWS).rows
    for source in (table, str(tmp_path / "task.csv"), tmp_path / "task.jsonl", read_task(ROWS)):
        assert read_task(source).rows == expected


def test_all_invalid_rows_are_reported_at_once():
    rows = [
        *ROWS,
        {"prompt": "a"},
        {"prompt": "a", "answer": "b", "wrong": "b"},
        {"prompt": "a", "answer": "b", "colour": ["red"]},
        {"prompt": "a", "answer": "b", "corrupt": "a"},
        "text",
        {"prompt": "a", "answer": ["b"]},
    ]
    with pytest.raises(CorpusError) as refused:
        read_task(rows)
    for number in range(len(ROWS), len(rows)):
        assert f"row {number}: " in str(refused.value)


@pytest.mark.parametrize("column", ["wrong", "corrupt"])
def test_a_column_is_filled_in_every_row_or_in_none(column):
    rows = [{"prompt": "a", "answer": "b", column: "c"}, {"prompt": "d", "answer": "b"}]
    with pytest.raises(CorpusError, match=column):
        read_task(rows)


@pytest.mark.parametrize("name", shipped_names())
def test_a_task_that_ships_is_valid(name):
    task = read_task(name, seed=1)
    rows = [{column: getattr(row, column) for column in COLUMNS} | row.roles for row in task.rows]
    assert read_task(rows).rows == task.rows
    assert len({row.prompt for row in task.rows}) >= 15


# a slow loop over heads and prompts


@dataclass
class Slow:
    """A network of transformers, whose heads are replaced before W_O by plain hooks."""

    network: GPT2LMHeadModel
    rows: list[tuple[list[int], int, int]]
    """Tokens of each prompt, its answer and the wrong one."""

    def z(self, tokens: list[int]) -> list[torch.Tensor]:
        seen: list[torch.Tensor] = []
        hooks = [
            block.attn.c_proj.register_forward_pre_hook(lambda _, x: seen.append(x[0][0].clone()))
            for block in self.network.transformer.h
        ]
        self.network(torch.tensor([tokens]))
        for hook in hooks:
            hook.remove()
        return seen

    def means(self) -> list[torch.Tensor]:
        outputs = [self.z(tokens) for tokens, *_ in self.rows]
        layers = range(len(outputs[0]))
        return [torch.cat([one[layer][1:] for one in outputs]).mean(0) for layer in layers]

    def differences(self, replaced: dict[int, dict[int, torch.Tensor]]) -> np.ndarray:
        width = self.network.config.n_embd // self.network.config.n_head

        def hook_of(layer: int):
            def change(_, inputs):
                z = inputs[0].clone()
                for head, value in replaced.get(layer, {}).items():
                    part = slice(head * width, (head + 1) * width)
                    z[..., part] = value[..., part]
                return (z,)

            return change

        blocks = self.network.transformer.h
        hooks = [
            block.attn.c_proj.register_forward_pre_hook(hook_of(layer))
            for layer, block in enumerate(blocks)
        ]
        values = []
        for tokens, answer, wrong in self.rows:
            logs = self.network(torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
            values.append(float(logs[answer] - logs[wrong]))
        for hook in hooks:
            hook.remove()
        return np.array(values)


@pytest.fixture(scope="module")
def model(gpt2_folder):
    return load_model(str(gpt2_folder))


def single_tokens(model) -> list[dict[str, str]]:
    """The rows with answers of one token each."""
    spelled = model.tokenizer.spell(range(model.vocabulary_size))
    words = [text for text in spelled if len(text) > 1 and text.startswith(" ")][:2]
    return [{"prompt": text, "answer": words[0], "wrong": words[1]} for text in PROMPTS]


@torch.inference_mode()
@pytest.mark.parametrize("method", ["mean", "zero"])
def test_effects_of_heads_and_of_sets_are_those_of_a_slow_loop(model, gpt2_folder, method):
    rows = single_tokens(model)
    prompts = TaskPrompts.of(read_task(rows), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method=method)
    by_prompt = {(one.prompt, one.sign): one for one in prompts.continuations}
    assert all(len(one.labels) == 1 for one in prompts.continuations)
    slow = Slow(
        GPT2LMHeadModel.from_pretrained(gpt2_folder).eval(),
        [
            (list(by_prompt[i, 1].tokens), by_prompt[i, 1].labels[0], by_prompt[i, -1].labels[0])
            for i in range(prompts.count)
        ],
    )
    means = slow.means()
    if method == "zero":
        means = [torch.zeros_like(mean) for mean in means]
    np.testing.assert_allclose(runner.clean, slow.differences({}), atol=1e-4)
    for layer, head in runner.heads:
        expected = slow.differences({layer: {head: means[layer]}})
        np.testing.assert_allclose(runner.without([(layer, head)]), expected, atol=1e-4)
    several = slow.differences({0: {1: means[0]}, 1: {0: means[1], 2: means[1]}})
    found = runner.without([(1, 2), (0, 1), (1, 0)])
    np.testing.assert_allclose(found, several, atol=1e-4)


def test_clean_runs_that_are_not_kept_give_the_same_effects(model, monkeypatch):
    prompts = TaskPrompts.of(read_task(single_tokens(model)), model)
    options = {"metric": "difference", "method": "mean"}
    kept = TaskRunner(Rerunner(model), prompts, **options)
    monkeypatch.setattr("headscope.causal.task_runner.KEPT_BYTES", 0)
    again = TaskRunner(Rerunner(model), prompts, **options)
    np.testing.assert_allclose(again.without([(0, 1)]), kept.without([(0, 1)]), atol=1e-6)
    np.testing.assert_allclose(again.attributions(), kept.attributions(), atol=1e-5)


def test_the_model_takes_gradients_as_before(model):
    prompts = TaskPrompts.of(read_task(single_tokens(model)), model)
    before = [weight.requires_grad for weight in model.engine.network.parameters()]
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="mean")
    runner.attributions()
    network = model.engine.network
    assert [weight.requires_grad for weight in network.parameters()] == before
    assert all(weight.grad is None for weight in network.parameters())


def test_an_answer_of_several_tokens_has_the_sum_of_their_log_probabilities(model, gpt2_folder):
    rows = [{"prompt": text, "answer": " man and the old dog"} for text in PROMPTS]
    prompts = TaskPrompts.of(read_task(rows), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="log-probability", method="zero")
    network = GPT2LMHeadModel.from_pretrained(gpt2_folder).eval()
    for one in prompts.continuations:
        assert len(one.labels) > 3
        whole = torch.tensor([[*one.tokens, one.labels[-1]]])
        with torch.inference_mode():
            logs = network(whole).logits[0].log_softmax(-1)
        start = whole.shape[1] - len(one.labels)
        expected = sum(float(logs[start + k - 1, label]) for k, label in enumerate(one.labels))
        assert runner.clean[one.prompt] == pytest.approx(expected, abs=1e-4)


def test_attribution_is_the_derivative_of_the_metric(model):
    prompts = TaskPrompts.of(read_task(single_tokens(model)), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="mean")
    step = 1e-3
    for number, (layer, head) in enumerate(runner.heads):

        def mixed(clean, layer=layer, head=head, share=1 - step):
            shares = torch.ones(len(clean.batch.rows.tokens), model.heads)
            shares[:, head] = share
            return HeadsMixed({layer: shares}, clean.replacements)

        slope = (runner._joined(mixed) - runner.clean) / step
        np.testing.assert_allclose(runner.attributions()[:, number], slope, rtol=2e-2, atol=1e-2)


# models whose heads have a known part

WIDTH, HEADS = 16, 4
UP = torch.zeros(WIDTH)
UP[0], UP[1] = 1.0, -1.0  # without a mean, which layer norm takes away
ASIDE = torch.zeros(WIDTH)
ASIDE[2], ASIDE[3] = 1.0, -1.0


def planted(tokenizer, written: dict[tuple[int, int], float], *, base: float = 0.0):
    """A model whose heads write constants along the direction that raises the answer's logit."""
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=WIDTH,
        n_layer=2,
        n_head=HEADS,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.bos_token_id,
    )
    network = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)
        network.transformer.wte.weight[:] = base * ASIDE
        head_width = WIDTH // HEADS
        for (layer, head), size in written.items():
            attention = network.transformer.h[layer].attn
            attention.c_attn.bias[2 * WIDTH + head * head_width] = 1.0
            attention.c_proj.weight[head * head_width] = size * UP
        answer, wrong = words_of(tokenizer)
        network.lm_head.weight[tokenizer.convert_tokens_to_ids(answer)] = UP
        network.lm_head.weight[tokenizer.convert_tokens_to_ids(wrong)] = -UP
    return network, tokenizer


def words_of(tokenizer) -> list[str]:
    """Two tokens that begin a word, as the vocabulary writes them."""
    return sorted(token for token in tokenizer.get_vocab() if token[0] == "Ġ" and len(token) > 1)[
        :2
    ]


def rows_of(tokenizer) -> list[dict[str, str]]:
    answer, wrong = (token.replace("Ġ", " ") for token in words_of(tokenizer))
    return [{"prompt": text, "answer": answer, "wrong": wrong} for text in PROMPTS]


def effects(tokenizer, model, **options) -> pd.DataFrame:
    """The rows of an ablation by zero."""
    return hs.ablate(
        model, task=rows_of(tokenizer), how="zero", progress=False, **options
    ).table.set_index("heads")


def test_of_a_redundant_pair_either_alone_has_no_effect_and_both_take_all(tokenizer):
    # the last layer norm makes one head's output as large as that of both
    model = planted(tokenizer, {(0, 1): 1.0, (1, 2): 1.0})
    singles = effects(tokenizer, model)["effect"].dropna()
    assert singles.abs().max() < 1e-3
    pair = effects(tokenizer, model, heads="L0H1,L1H2").loc["L0H1;L1H2"]
    whole = pair[pair["kind"] == "set"].iloc[0]
    assert whole["share"] == pytest.approx(1.0, abs=1e-4)
    assert whole["rank"] == 1
    only = pair[pair["kind"] == "only the set"].iloc[0]
    assert only["effect"] == pytest.approx(0.0, abs=1e-4)


def test_a_head_that_suppresses_the_answer_helps_if_it_is_ablated(tokenizer):
    model = planted(tokenizer, {(0, 1): 2.0, (1, 2): -1.0}, base=1.0)
    table = effects(tokenizer, model)
    assert table.loc["L1H2", "effect"] > 0.1
    assert table.loc["L0H1", "effect"] < -0.5
    others = table.drop(index=["L1H2", "L0H1"])
    assert not others["measured"].any()
    assert others["attribution"].abs().max() < 1e-4


def test_the_search_finds_the_heads_that_write_the_answer(tokenizer):
    model = planted(tokenizer, {(0, 1): 2.0, (1, 2): 1.5, (1, 0): -0.1}, base=1.0)
    table = effects(tokenizer, model, find=True).reset_index()
    assert table.loc[table["kind"] == "set", "heads"].item() == "L0H1;L1H2"
    assert table.loc[table["kind"] == "set", "prompts"].item() < len(PROMPTS)


def test_the_most_harmful_heads_are_chosen_and_tested_on_different_prompts(tokenizer):
    model = planted(tokenizer, {(0, 1): 2.0, (1, 2): 1.5}, base=1.0)
    table = effects(tokenizer, model, top=2).reset_index()
    assert table.loc[table["kind"] == "set", "heads"].item() == "L0H1;L1H2"
    assert table.loc[table["kind"] == "set", "prompts"].item() < len(PROMPTS)


@pytest.mark.parametrize("options", [{"top": 1}, {"find": True}])
def test_too_few_prompts_for_two_halves_are_refused(tokenizer, options):
    model = planted(tokenizer, {(0, 1): 2.0}, base=1.0)
    rows = [row | {"group": "one"} for row in rows_of(tokenizer)]
    with pytest.raises(CorpusError, match="groups"):
        hs.ablate(model, task=rows, how="zero", progress=False, **options)


def test_no_head_is_blamed_for_a_task_that_the_model_cannot_do(tokenizer):
    model = planted(tokenizer, {(0, 1): -1.0})
    with pytest.raises(HeadscopeError, match="cannot do"):
        effects(tokenizer, model)


def test_random_sets_have_as_many_other_heads_of_similar_layer_and_norm():
    norms = {(layer, head): 2.0**layer for layer in range(6) for head in range(8)}
    heads = [(1, 0), (1, 1), (4, 3)]
    for drawn in matched_sets(heads, norms, seed=3):
        assert len(set(drawn)) == 3
        assert not set(drawn) & set(heads)
        # the seven other heads of a layer are nearer than any of another layer, but for one
        assert sorted(layer for layer, _ in drawn)[-1] in (3, 4, 5)


def test_a_layer_away_counts_as_its_part_of_the_model():
    """Of ten layers one is 0.1 away; a head with e^0.5 times the norm is 0.5 away."""
    norms = {(layer, head): 50.0 for layer in range(10) for head in range(8)}
    norms |= {(5, head): e**0.5 for head in range(1, 9)}
    norms |= {(5, 0): 1.0} | {(6, head): 1.0 for head in range(8)}
    for drawn in matched_sets([(5, 0)], norms, seed=1):
        assert drawn[0][0] == 6


@pytest.mark.slow
def test_random_sets_of_random_models_are_as_often_significant_as_they_say(tokenizer):
    rng = np.random.default_rng(0)
    p_values = []
    for seed in range(200):
        torch.manual_seed(seed)
        config = GPT2Config(
            vocab_size=len(tokenizer),
            n_embd=64,
            n_layer=4,
            n_head=8,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.bos_token_id,
        )
        network = GPT2LMHeadModel(config).eval()
        for weight in network.parameters():
            torch.nn.init.normal_(weight, std=0.2)
        model = hs.load_model((network, tokenizer))
        prompts = TaskPrompts.of(read_task(rows_of(tokenizer)), model)
        runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="mean")
        numbers = rng.permutation(len(runner.heads))[:3]
        heads = [runner.heads[number] for number in numbers]
        size = abs((runner.without(heads) - runner.clean).mean())
        controls = matched_sets(heads, runner.output_norms(), seed=seed)
        sizes = [abs((runner.without(control) - runner.clean).mean()) for control in controls]
        p_values.append((1 + sum(other >= size for other in sizes)) / (1 + len(sizes)))
    share = float(np.mean(np.array(p_values) < 0.05))
    # 5 % of 200, give or take 2.6 standard errors
    assert share <= 0.05 + 0.04
