"""Heads that matter for a task: against slow loops, and in models whose heads have a known part."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import e
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import GPT2LMHeadModel

from headscope.causal.head_set import STRATUM, exchangeable_sets, matched_sets, strata
from headscope.causal.intervention import OutputChange
from headscope.causal.rerun import Rerunner
from headscope.causal.roles import PromptRoles, Role
from headscope.causal.task_attention import TaskAttention
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import TaskRunner
from headscope.errors import CorpusError
from headscope.models.load import load_model
from headscope.stimuli.shipped_tasks import shipped_names
from headscope.stimuli.tasks import COLUMNS, read_task
from tests.models.every_layout import save_tiny

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


def test_a_space_stands_before_each_word_of_an_induction_prompt():
    for row in read_task("induction").rows:
        cue = row.prompt.split()[-1]
        assert row.prompt.endswith(f" {cue}")
        assert row.prompt.count(f" {cue}{row.answer}") == 1


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
    runner.attributions(smooth=True)
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


@dataclass(frozen=True, eq=False)
class Mixed(OutputChange):
    """One head's z mixed with another value."""

    head: tuple[int, int]
    value: torch.Tensor
    share: float

    @property
    def layers(self) -> frozenset[int]:
        return frozenset({self.head[0]})

    def edit(self, layer, z):
        changed = z.clone()
        number = self.head[1]
        other = self.value[..., number, :]
        changed[:, :, number] = (1 - self.share) * z[:, :, number] + self.share * other
        return changed


def test_attribution_is_the_derivative_of_the_metric(model):
    prompts = TaskPrompts.of(read_task(single_tokens(model)), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="mean")
    step = 1e-3
    attributions = runner.attributions().sum(1)
    for number, head in enumerate(runner.heads):

        def states(clean, head=head):
            change = Mixed(head, clean.replacements[head[0]], step)
            return runner.rerunner.states(clean.run, change)

        slope = (runner.of_states(states) - runner.clean) / step
        np.testing.assert_allclose(attributions[:, number], slope, rtol=2e-2, atol=1e-2)


CORRUPT = (
    *(("the dog saw the", "the dog had the"), ("a man and the", "a man or the")),
    ("they saw the old", "they saw the young man"),
    *(("we saw the man and the", "we saw the man or the"), ("a dog", "the dog")),
)


@pytest.mark.parametrize("layout", ["gpt2", "llama", "gemma2", "qwen3"])
def test_reruns_of_changed_positions_alone_are_those_of_whole_prompts(layout, tokenizer, tmp_path):
    save_tiny(layout, tokenizer, tmp_path)
    model = load_model(str(tmp_path))
    answer, wrong = (row[1] for row in single_tokens(model)[0].items() if row[0] != "prompt")
    rows = [
        {"prompt": text, "corrupt": corrupt, "answer": answer, "wrong": wrong}
        for text, corrupt in CORRUPT
    ]
    prompts = TaskPrompts.of(read_task(rows), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="resample")
    keeps_some = any(clean.later.rows.start > 1 for clean in runner.clean_batches)
    assert keeps_some == (layout != "gemma2")  # whose scores are capped
    whole = TaskRunner(Rerunner(model), prompts, metric="difference", method="resample")
    whole._kept = [replace(clean, later=clean.run) for clean in whole.clean_batches]
    heads = runner.heads
    for some in ([heads[0]], heads[1:4], heads[-1:], heads):
        np.testing.assert_allclose(runner.without(some), whole.without(some), atol=1e-4)
        half = runner.without(some, 0)
        assert np.isnan(half[prompts.halves == 1]).all()
        np.testing.assert_allclose(
            half[prompts.halves == 0], whole.without(some)[prompts.halves == 0], atol=1e-4
        )


def test_means_by_position_are_counted_from_the_end(model, gpt2_folder):
    prompts = TaskPrompts.of(read_task(single_tokens(model)), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="position")
    by_prompt = {one.prompt: list(one.tokens) for one in prompts.continuations}
    slow = Slow(GPT2LMHeadModel.from_pretrained(gpt2_folder).eval(), [])
    z = {prompt: slow.z(tokens) for prompt, tokens in by_prompt.items()}
    for clean in runner.clean_batches:
        for row, prompt in enumerate(clean.batch.prompt_of_row.tolist()):
            length = len(by_prompt[prompt])
            for position in range(length):
                at_end = [
                    one[1][-(length - position)]
                    for one in z.values()
                    if len(one[1]) >= length - position
                ]
                expected = torch.stack(at_end).mean(0)
                found = clean.replacements[1][row, position].flatten()
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_random_sets_have_as_many_other_heads_of_similar_layer_and_norm():
    norms = {(layer, head): 2.0**layer for layer in range(6) for head in range(8)}
    heads = [(1, 0), (1, 1), (4, 3)]
    for drawn in matched_sets(heads, norms, seed=3):
        assert len(set(drawn)) == 3
        assert not set(drawn) & set(heads)
        # the seven other heads of a layer are nearer than any of another layer, but for one
        assert sorted(layer for layer, _ in drawn)[-1] in (3, 4, 5)


def test_strata_are_halves_by_layer_and_their_halves_by_norm():
    """Norms do not depend on the layer: two layers hold small and large ones."""
    sizes = np.random.default_rng(0).permutation(4 * STRATUM).tolist()
    heads = [(layer, head) for layer in range(4) for head in range(STRATUM)]
    norms = dict(zip(heads, map(float, sizes), strict=True))
    groups = strata(norms)
    assert [{layer for layer, _ in group} for group in groups] == [{0, 1}] * 2 + [{2, 3}] * 2
    for small, large in (groups[:2], groups[2:]):
        assert len(small) == len(large) == STRATUM
        assert max(norms[head] for head in small) < min(norms[head] for head in large)


def test_sets_of_a_p_value_have_any_heads_of_the_same_strata():
    rng = np.random.default_rng(0)
    norms = {(layer, head): float(rng.random()) for layer in range(30) for head in range(9)}
    groups = strata(norms)
    assert sorted(head for group in groups for head in group) == sorted(norms)
    assert min(map(len, groups)) >= STRATUM
    heads = [groups[0][0], groups[0][1], groups[5][2]]
    drawn = exchangeable_sets(heads, norms, count=2000, seed=1)
    for one in drawn:
        assert [len(set(one) & set(group)) for group in groups] == [2, 0, 0, 0, 0, 1, 0, 0]
    # each head of a stratum as often as any other, the set's own too
    for group, members in ((groups[0], 2), (groups[5], 1)):
        share = [np.mean([head in one for one in drawn]) for head in group]
        expected = members / len(group)
        np.testing.assert_allclose(share, expected, atol=4 * (expected / 2000) ** 0.5)


def test_what_only_some_heads_keep_is_the_metric_without_all_others(model):
    prompts = TaskPrompts.of(read_task(single_tokens(model)), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="mean")
    heads = runner.heads
    for kept in ([], [heads[-1]], heads[: model.heads], heads[-model.heads :], heads):
        others = [head for head in heads if head not in kept]
        np.testing.assert_allclose(runner.only(kept), runner.without(others), atol=1e-4)


def test_a_layer_away_counts_as_its_part_of_the_model():
    """Of ten layers one is 0.1 away; a head with e^0.5 times the norm is 0.5 away."""
    norms = {(layer, head): 50.0 for layer in range(10) for head in range(8)}
    norms |= {(5, head): e**0.5 for head in range(1, 9)}
    norms |= {(5, 0): 1.0} | {(6, head): 1.0 for head in range(8)}
    for drawn in matched_sets([(5, 0)], norms, seed=1):
        assert drawn[0][0] == 6


class NotRun(TaskRunner):
    """Prompts without a model."""

    clean_batches = ()

    def __init__(self, prompts: SimpleNamespace) -> None:
        self.prompts = prompts


@pytest.mark.parametrize(
    ("keys", "control"),
    [
        ([4], (0.04 + 0.08 + 0.02) / 3),  # of 2, 3 and 5
        ([2], (0.01 + 0.08 + 0.16) / 3),  # of 1, 3 and 4
        ([2, 4], (0.01 + 0.08 + 0.02) * 2 / 3),
        ([1, 2, 3], np.nan),  # 4 and 5 are fewer
    ],
)
def test_a_control_key_of_a_role_is_neither_the_query_nor_the_first_token(
    keys, control, monkeypatch
):
    pattern = np.zeros((7, 7))
    pattern[6] = 0.5, 0.01, 0.04, 0.08, 0.16, 0.02, 0.19
    monkeypatch.setattr(TaskAttention, "pattern", lambda *_: pattern)
    names = ["key" if position in keys else "other" for position in range(6)] + ["end"]
    roles = PromptRoles(tuple(Role(n, 1, 0, 0) for n in ("end", "key", "other")), [names], None)
    runner = NotRun(SimpleNamespace(continuations=[SimpleNamespace(tokens=names)], count=1))
    (found,) = TaskAttention(runner, roles, [(0, 0)]).control((0, 0), 0, 1)
    assert found == pytest.approx(control, nan_ok=True)
