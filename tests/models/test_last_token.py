"""Last tokens that are run again by themselves: as whole prompts with the same change."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from headscope.errors import ModelError
from headscope.models.intervention import OutputChange
from headscope.models.load import load_model
from headscope.models.loss import last_stream
from headscope.models.token_rerun import LastTokenRunner
from tests.helpers.models import save_uneven
from tests.models.tiny import tiny_config

LENGTHS = (9, 14, 6)


class LastHeadSet(OutputChange):
    """A head's output at the last token of a whole prompt."""

    def __init__(self, layer, head, value):
        self.layer, self.head, self.value = layer, head, value

    @property
    def layers(self):
        return frozenset({self.layer})

    def edit(self, layer, z):
        changed = z.clone()
        changed[:, -1, self.head] = self.value
        return changed


@pytest.fixture(scope="module", params=["gpt2", "llama", "gemma3_text", "gpt_neox"])
def runner(request, tokenizer, tmp_path_factory):
    network = AutoModelForCausalLM.from_config(tiny_config(request.param))
    folder = save_uneven(network, tokenizer, tmp_path_factory.mktemp("tiny"))
    return LastTokenRunner(load_model(str(folder)))


def prompts(runner):
    generator = torch.Generator().manual_seed(0)
    size = runner.model.vocabulary_size
    return [torch.randint(1, size, (length,), generator=generator) for length in LENGTHS]


@torch.inference_mode()
def test_a_head_that_is_set_changes_the_last_state_as_in_a_whole_prompt(runner):
    tokens = prompts(runner)
    runs = runner.read(tokens, keys=True)
    heads = runner.model.heads
    for layer in runner.model.attention_layers:
        width = runs[0].z[layer].shape[1]
        item = torch.arange(len(tokens)).repeat_interleave(heads)
        head = torch.arange(heads).repeat(len(tokens))
        value = torch.randn(len(item), width, generator=torch.Generator().manual_seed(layer))
        states = runner.states(runs, layer, prompt=item, head=head, value=value)
        for row, state in enumerate(states):
            change = LastHeadSet(layer, int(head[row]), value[row])
            with change.applied(runner.model):
                whole = last_stream(runner.network, tokens[item[row]][None])[0, -1]
            torch.testing.assert_close(state, whole, atol=1e-4, rtol=1e-3)
            assert not torch.allclose(whole, runs[item[row]].state, atol=1e-4)


@torch.inference_mode()
def test_prompts_that_are_read_together_are_as_if_read_alone(runner):
    tokens = prompts(runner)
    together = runner.read(tokens)
    for prompt, run in zip(tokens, together, strict=True):
        (alone,) = runner.read([prompt])
        torch.testing.assert_close(run.state, alone.state, atol=1e-5, rtol=1e-4)
        for layer in runner.model.attention_layers:
            torch.testing.assert_close(run.z[layer], alone.z[layer], atol=1e-5, rtol=1e-4)


def test_an_encoder_is_refused(tokenizer, tmp_path):
    network = AutoModelForMaskedLM.from_config(tiny_config("bert"))
    folder = save_uneven(network, tokenizer, tmp_path)
    with pytest.raises(ModelError, match="encoder"):
        LastTokenRunner(load_model(str(folder)))
