"""Direct paths into single heads: against runs of transformers' own models, changed by hand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn
from transformer_lens.patching import get_act_patch_direct_path

from headscope.causal.paths import VIAS, PathReader, Sender, Via
from headscope.causal.rerun import Rerunner
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import TaskRunner
from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.stimuli.tasks import read_task
from tests.models.every_layout import own_network, save_tiny
from tests.oracles.planted_tasks import FUNCTION_VECTOR, save_model

PROMPTS = {
    "the dog saw the": "the saw dog the",
    "a man and the": "a and man the",
    # of another length: aligned at the end
    "they saw the old": "they had the young",
}
RECEIVER = (2, 1)
LAYERS, HEADS = 3, 4


@dataclass(frozen=True)
class Names:
    """Places of the parts of a layout's block."""

    blocks: str = "model.layers"
    attention: str = "self_attn"
    output: str = "self_attn.o_proj"
    mlp: str = "mlp"
    writer: str = "mlp"
    """What the MLP writes comes out here."""
    query: str = "self_attn.q_proj"
    key: str = "self_attn.k_proj"
    value: str = "self_attn.v_proj"
    fused: str = ""
    """Order of one module's outputs: `parts` (all queries first) or `heads`."""
    fields: dict[str, object] = field(default_factory=dict)

    def columns(self, via: Via, head: int, heads: int, width: int) -> slice:
        """The outputs of the module of a query, key or value that one head reads."""
        part = VIAS.index(via)
        if self.fused == "parts":
            first = (part * HEADS + head) * width
        elif self.fused == "heads":
            first = (head * 3 + part) * width
        else:
            first = head // (HEADS // heads) * width
        return slice(first, first + width)


GPT2 = Names(
    "transformer.h", "attn", "attn.c_proj", **dict.fromkeys(VIAS, "attn.c_attn"), fused="parts"
)
NEOX = Names(
    "gpt_neox.layers",
    "attention",
    "attention.dense",
    **dict.fromkeys(VIAS, "attention.query_key_value"),
    fused="heads",
)
LOCAL = {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]}
AFTER = {"writer": "post_feedforward_layernorm"}
LAYOUTS = {
    "gpt2": GPT2,
    "gpt_neox": NEOX,
    "phi": Names(output="self_attn.dense"),
    "llama": Names(),
    "qwen3": Names(fields={"layer_types": ["full_attention"] * LAYERS}),
    "gemma": Names(),
    "gemma2": Names(
        **AFTER,
        fields={**LOCAL, "sliding_window": 3, "final_logit_softcapping": None}
        | {"attn_logit_softcapping": 1.5},
    ),
    "gemma3_text": Names(**AFTER, fields={**LOCAL, "sliding_window": 3}),
    # norms of all queries of a layer together, and none before the attention
    "olmo2": Names(**AFTER, query="self_attn.q_norm", key="self_attn.k_norm"),
    "gpt_oss": Names(fields={**LOCAL, "sliding_window": 3}),
}
"""`gpt_neox` and `phi` have parallel blocks, all but the first three share keys in groups."""
ALIKE = ("gemma", "qwen3")
"""What they have is there in `llama`, `gemma2` and `gemma3_text` too."""


@pytest.fixture(scope="module")
def folder_of(tokenizer, tmp_path_factory) -> Callable[[str], str]:
    folders: dict[str, str] = {}

    def folder(layout: str) -> str:
        if layout not in folders:
            path = tmp_path_factory.mktemp(layout)
            fields = {"vocab_size": len(tokenizer), "num_hidden_layers": LAYERS}
            save_tiny(layout, tokenizer, path, **fields, **LAYOUTS[layout].fields)
            folders[layout] = str(path)
        return folders[layout]

    return folder


def reader_of(folder: str, method: str = "mean") -> PathReader:
    model = load_model(folder)
    spelled = model.tokenizer.spell(range(model.vocabulary_size))
    answer, wrong = [text for text in spelled if len(text) > 1 and text.startswith(" ")][:2]
    rows = [
        {"prompt": prompt, "answer": answer, "wrong": wrong, "corrupt": corrupt}
        for prompt, corrupt in PROMPTS.items()
    ]
    prompts = TaskPrompts.of(read_task(rows), model)
    return PathReader(TaskRunner(Rerunner(model), prompts, metric="difference", method=method))


@dataclass(eq=False)
class Slow:
    """A network of transformers, one prompt at a time, whose modules are changed by hooks."""

    network: nn.Module
    names: Names
    prompts: dict[int, tuple[list[int], list[int], int, int]]
    """Tokens of each prompt and its corrupt one, its answer and the wrong one."""
    replacements: dict[tuple, torch.Tensor] = field(default_factory=dict)
    inputs: dict[tuple, dict[str, torch.Tensor]] = field(default_factory=dict)

    @classmethod
    def of(cls, layout: str, folder: str, runner: TaskRunner) -> Slow:
        prompts = {}
        for one in runner.prompts.continuations:
            assert len(one.labels) == 1
            if one.sign > 0:
                prompts[one.prompt] = [list(one.tokens), list(one.corrupt), one.labels[0]]
        for one in runner.prompts.continuations:
            if one.sign < 0:
                prompts[one.prompt].append(one.labels[0])
        return cls(own_network(folder), LAYOUTS[layout], prompts)

    def module(self, layer: int, name: str) -> nn.Module:
        block = self.network.get_submodule(f"{self.names.blocks}.{layer}")
        return block.get_submodule(name) if name else block

    @contextmanager
    def editing(self, layer: int, name: str, edit: Callable, *, inputs: bool = False):
        """The module's first input or output goes through a function, which may change it."""
        module = self.module(layer, name)

        def before(_, arguments, keywords):
            if arguments:
                return (edit(arguments[0]), *arguments[1:]), keywords
            return arguments, {**keywords, "hidden_states": edit(keywords["hidden_states"])}

        def after(_, __, output):
            if isinstance(output, tuple):
                return (edit(output[0]), *output[1:])
            return edit(output)

        if inputs:
            hook = module.register_forward_pre_hook(before, with_kwargs=True)
        else:
            hook = module.register_forward_hook(after)
        with hook:
            yield

    @torch.no_grad()
    def run(self, tokens: list[int], *edits) -> torch.Tensor:
        with ExitStack() as hooks:
            for layer, name, edit, inputs in edits:
                hooks.enter_context(self.editing(layer, name, edit, inputs=inputs))
            return self.network(torch.tensor([tokens]), use_cache=False).logits[0, -1]

    def seen(self, tokens: list[int], places, *edits) -> list[torch.Tensor]:
        """What passes through these places: `(layer, name, is_input)`."""
        found = {}

        def keep(place, values):
            found[place] = values.clone()
            return values

        reads = [(layer, name, partial(keep, (layer, name, i)), i) for layer, name, i in places]
        self.run(tokens, *edits, *reads)
        return [found[place] for place in places]

    def place_of(self, sender: Sender) -> tuple[int, str, bool]:
        if sender.layer is None:
            return 0, "", True
        if sender.head is None:
            return sender.layer, self.names.writer, False
        return sender.layer, self.names.output, True

    def replacement(self, sender: Sender, prompt: int, method: str) -> torch.Tensor:
        """What stands in for all that passes through the sender's place."""
        place = self.place_of(sender)
        case = place, prompt, method
        if case not in self.replacements:
            self.replacements[case] = self.new_replacement(place, prompt, method)
        return self.replacements[case]

    def new_replacement(self, place, prompt: int, method: str) -> torch.Tensor:
        tokens, corrupt, *_ = self.prompts[prompt]
        if method == "resample":
            (other,) = self.seen(corrupt, [place])
            (aligned,) = self.seen(tokens, [place])
            shared = min(len(tokens), len(corrupt))
            aligned[0, -shared:] = other[0, -shared:]
            return aligned
        values = [self.seen(other, [place])[0][0, 1:] for other, *_ in self.prompts.values()]
        mean = torch.cat(values).mean(0).expand(1, len(tokens), -1)
        return mean if method == "mean" else mean * 0

    def changed_stream(self, sender: Sender, receiver_layer: int, prompt: int, method: str):
        """What the receiver's layer reads if one sender's output is replaced, and all modules
        behind it give what they gave before."""
        tokens = self.prompts[prompt][0]
        value = self.replacement(sender, prompt, method)
        layer, name, is_input = self.place_of(sender)
        width = self.z_width

        def replaced(own):
            if sender.head is None:
                return value.clone()
            changed = own.clone()
            part = slice(sender.head * width, (sender.head + 1) * width)
            changed[..., part] = value[..., part]
            return changed

        frozen = []
        for number in range(receiver_layer):
            if sender.layer is None or number > sender.layer:
                frozen.append((number, self.names.attention, False))
            if sender.layer is None or number > sender.layer or sender.head is not None:
                frozen += [(number, self.names.mlp, False)] if number >= (sender.layer or 0) else []
        clean = self.seen(tokens, frozen)
        edits = [
            (at, module, lambda _, own=own: own.clone(), False)
            for (at, module, _), own in zip(frozen, clean, strict=True)
        ]
        edits.append((layer, name, replaced, is_input))
        (stream,) = self.seen(tokens, [(receiver_layer, "", True)], *edits)
        return stream

    @property
    def z_width(self) -> int:
        weight = self.module(0, self.names.output).weight
        inward = weight.shape[0 if self.names.fused == "parts" else 1]
        return inward // HEADS

    def changed_z(
        self, receiver, via: Via, sender: Sender, prompt: int, method: str, at
    ) -> torch.Tensor:
        """The receiver's z if its query, key or value alone reads the changed stream."""
        layer, head = receiver
        tokens = self.prompts[prompt][0]
        case = sender, layer, prompt, method
        if case not in self.inputs:
            stream = self.changed_stream(*case)
            new_input = (layer, "", lambda _: stream.clone(), True)
            # one module may give all three
            names = sorted({getattr(self.names, each) for each in VIAS})
            seen = self.seen(tokens, [(layer, name, False) for name in names], new_input)
            self.inputs[case] = dict(zip(names, seen, strict=True))
        name = getattr(self.names, via)
        changed = self.inputs[case][name]
        config = self.network.config
        heads = getattr(config, "num_key_value_heads", HEADS) if via != "query" else HEADS
        part = self.names.columns(via, head, heads, self.z_width)

        def mixed(own):
            result = own.clone()
            result[:, at, part] = changed[:, at, part]
            return result

        (z,) = self.seen(tokens, [(layer, self.names.output, True)], (layer, name, mixed, False))
        return z[0, :, head * self.z_width : (head + 1) * self.z_width]

    def metric(self, prompt: int, receiver=None, z: torch.Tensor | None = None) -> float:
        tokens, _, answer, wrong = self.prompts[prompt]
        edits = []
        if z is not None:
            layer, head = receiver

            def replaced(own):
                changed = own.clone()
                changed[0, :, head * self.z_width : (head + 1) * self.z_width] = z
                return changed

            edits = [(layer, self.names.output, replaced, True)]
        logs = self.run(tokens, *edits).log_softmax(-1)
        return float(logs[answer] - logs[wrong])

    def gradient(self, prompt: int, receiver) -> torch.Tensor:
        """The gradient of the metric by the receiver's z."""
        tokens, _, answer, wrong = self.prompts[prompt]
        layer, head = receiver
        taken = []

        def take(own):
            taken.append(own.detach().requires_grad_())
            return taken[0]

        with self.editing(layer, self.names.output, take, inputs=True):
            logits = self.network(torch.tensor([tokens]), use_cache=False).logits[0, -1]
        (logits[answer] - logits[wrong]).backward()
        return taken[0].grad[0, :, head * self.z_width : (head + 1) * self.z_width]


def check(reader: PathReader, slow: Slow, receiver, method: str, at: np.ndarray | None) -> float:
    """Compare all paths into a receiver with the slow loop; the largest effect."""
    senders = reader.senders(receiver)
    largest = 0.0
    for via in VIAS:
        found = reader.exact(receiver, via, senders, at=at)
        expected = np.zeros_like(found)
        for prompt, (tokens, *_) in slow.prompts.items():
            where = np.ones(len(tokens), bool) if at is None else at[prompt, : len(tokens)]
            clean = slow.metric(prompt)
            for number, sender in enumerate(senders):
                z = slow.changed_z(receiver, via, sender, prompt, method, torch.from_numpy(where))
                expected[prompt, number] = slow.metric(prompt, receiver, z) - clean
        np.testing.assert_allclose(found, expected, atol=1e-4)
        largest = max(largest, float(np.abs(expected).max()))
    return largest


@pytest.mark.parametrize(
    "layout",
    [pytest.param(layout, marks=pytest.mark.slow if layout in ALIKE else ()) for layout in LAYOUTS],
)
def test_a_path_is_what_a_run_does_in_which_it_alone_changes(layout, folder_of):
    reader = reader_of(folder_of(layout))
    slow = Slow.of(layout, folder_of(layout), reader.runner)
    assert check(reader, slow, RECEIVER, "mean", None) > 1e-2


@pytest.mark.parametrize("method", ["zero", "resample"])
def test_each_method_replaces_heads_mlps_and_the_embedding(method, folder_of):
    reader = reader_of(folder_of("llama"), method)
    slow = Slow.of("llama", folder_of("llama"), reader.runner)
    some, last = np.zeros((2, len(PROMPTS), 12), bool)
    some[:, [2, 4]] = True
    for prompt, (tokens, *_) in slow.prompts.items():
        last[prompt, len(tokens) - 1] = True
    # one prompt alone changes, behind the ends of the others
    longest = max(slow.prompts, key=lambda prompt: len(slow.prompts[prompt][0]))
    only = last & (np.arange(len(PROMPTS)) == longest)[:, None]
    for at in (some, last, only):
        assert check(reader, slow, (1, 2), method, at) > 1e-2
    # earlier positions were kept
    assert reader._later_runs


@torch.inference_mode()
@pytest.mark.parametrize("layout", ["gpt2", "gpt_neox"])
def test_paths_between_heads_are_those_of_transformer_lens(layout, folder_of):
    """Its exact patches of one head's input, where it has them: without groups or post norms."""
    reader = reader_of(folder_of(layout), "resample")
    slow = Slow.of(layout, folder_of(layout), reader.runner)
    bridge = load_model(folder_of(layout), engine="lens").bridge
    senders = [sender for sender in reader.senders((2, 0)) if sender.head is not None]
    same_length = [n for n, (own, other, *_) in slow.prompts.items() if len(own) == len(other)]
    assert len(same_length) == 2
    for prompt in same_length:
        tokens, corrupt, answer, wrong = slow.prompts[prompt]
        own, other = (torch.tensor([rows]) for rows in (tokens, corrupt))
        _, cache = bridge.run_with_cache(own)
        _, other_cache = bridge.run_with_cache(other)

        def metric(logits, answer=answer, wrong=wrong):
            return logits[0, -1, answer] - logits[0, -1, wrong]

        before = metric(bridge(own))
        for via in VIAS:
            found = {
                receiver: reader.exact((2, receiver), via, senders)[prompt]
                for receiver in range(HEADS)
            }
            for number, sender in enumerate(senders):
                # what it calls clean is what is patched in, here the corrupt prompt
                results = get_act_patch_direct_path(
                    bridge,
                    own,
                    other_cache,
                    cache,
                    metric,
                    sender.layer,
                    sender.head,
                    via[0],
                    verbose=False,
                )
                expected = (results[2] - before).tolist()
                effects = [found[receiver][number] for receiver in range(HEADS)]
                np.testing.assert_allclose(effects, expected, atol=1e-4)


@pytest.mark.parametrize("layout", ["gpt2", "gpt_neox", "llama", "gemma"])
def test_what_senders_write_adds_up_to_the_stream(layout, folder_of):
    """Zero takes away what a sender wrote; biases of W_O alone are left."""
    reader = reader_of(folder_of(layout), "zero")
    streams = []
    senders = reader.senders(RECEIVER)
    for clean, others in zip(reader.runner.clean_batches, reader._other_changes, strict=True):
        stream = clean.run.inputs[RECEIVER[0]]
        with torch.inference_mode():
            written = [
                -others[sender]
                if sender.head is None
                else -reader._head_change((sender.layer, sender.head), clean)
                for sender in senders
            ]
        outputs = [reader.rerunner.outputs[layer] for layer in range(RECEIVER[0])]
        biases = [output.bias for output in outputs if getattr(output, "bias", None) is not None]
        total = sum(written) + sum(biases)
        torch.testing.assert_close(total, stream, atol=1e-5, rtol=0)
        streams.append(stream)
    assert len(streams) > 0


@pytest.mark.parametrize("layout", ["llama", "gpt_neox"])
def test_estimates_are_the_gradient_by_z_times_its_change(layout, folder_of):
    reader = reader_of(folder_of(layout))
    slow = Slow.of(layout, folder_of(layout), reader.runner)
    senders = reader.senders(RECEIVER)
    at = np.zeros((2, len(PROMPTS), 12), bool)
    at[0, :, 1:3] = at[1, :, 3:] = True
    found = reader.estimates(RECEIVER, at=at)
    for prompt, (tokens, *_) in slow.prompts.items():
        places = (RECEIVER[0], slow.names.output, True)
        width = slow.z_width
        part = slice(RECEIVER[1] * width, (RECEIVER[1] + 1) * width)
        z = slow.seen(tokens, [places])[0][0, :, part]
        gradient = slow.gradient(prompt, RECEIVER)
        for via in VIAS:
            for number, sender in enumerate(senders):
                for role in range(2):
                    where = torch.from_numpy(at[role, prompt, : len(tokens)])
                    changed = slow.changed_z(RECEIVER, via, sender, prompt, "mean", where)
                    expected = float((gradient * (changed - z)).sum())
                    assert found[via][prompt, number, role] == pytest.approx(expected, abs=1e-4)
    assert float(np.abs(found["key"]).max()) > 1e-2


def test_without_roles_there_is_one_of_all_positions(folder_of):
    reader = reader_of(folder_of("llama"))
    everywhere = np.ones((1, len(PROMPTS), 40), bool)
    found, expected = (reader.estimates(RECEIVER, at=at) for at in (None, everywhere))
    for via in VIAS:
        np.testing.assert_array_equal(found[via], expected[via])


def test_prompts_whose_corrupt_prompts_begin_alike_have_no_effects_there(folder_of):
    """Exactly none, although the runs of both prompts round."""
    reader = reader_of(folder_of("llama"), "resample")
    same = np.zeros((len(PROMPTS), 12), bool)
    same[:, :2] = True
    for via in VIAS:
        senders = reader.senders(RECEIVER)
        effects = reader.exact(RECEIVER, via, senders, at=same)[:2]
        assert not effects.any()
        assert reader.exact(RECEIVER, via, senders)[:2].any()


# a model in which the paths are planted


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    return load_model(str(save_model(tmp_path_factory.mktemp("planted"))))


def effects_of(model, rows: list[dict[str, str]], receiver, via: Via, method: str):
    """Mean effect of each path into an input of a planted head, by the sender's name."""
    prompts = TaskPrompts.of(read_task(rows), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method=method)
    reader = PathReader(runner)
    senders = reader.senders(receiver)
    effects = reader.exact(receiver, via, senders).mean(0)
    assert runner.clean.mean() > 1
    return dict(zip(map(str, senders), effects.tolist(), strict=True))


def strong(effects: dict[str, float]) -> set[str]:
    """Senders with more than a tenth of the largest effect."""
    least = max(map(abs, effects.values())) / 10
    return {sender for sender, effect in effects.items() if abs(effect) > least}


def repeats() -> list[dict[str, str]]:
    """Six words, the last of which came before: the word that followed it is the answer."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(8):
        drawn = zip(rng.permutation(8)[:5], rng.permutation(30)[:5], strict=True)
        words = [f"w{task}x{number}" for task, number in drawn]
        a, b, c, d, e = words
        prompt, corrupt = (
            " ".join(("It", *order)) for order in ((a, b, c, d, e, b), (a, d, c, b, e, b))
        )
        rows.append({"prompt": prompt, "corrupt": corrupt, "answer": f" {c}", "wrong": f" {e}"})
    return rows


def shots() -> list[dict[str, str]]:
    """Three examples of one task, or in the corrupt prompt of another, and a question."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(8):
        *examples, question = rng.permutation(30)[:4].tolist()
        prompt, corrupt = (
            "".join(f"Q: q{n}\nA: w{task}x{n}\n\n" for n in examples) + f"Q: q{question}\nA:"
            for task in (0, 3)
        )
        answers = {"answer": f"w0x{question}", "wrong": f"w3x{question}"}
        rows.append({"prompt": prompt, "corrupt": corrupt, **answers})
    return rows


INDUCTION, ANSWERS = (1, 2), (2, 0)
PLANTED = {
    ("mean", "query"): {"embedding"},
    ("mean", "key"): {"L0H8"},
    ("mean", "value"): {"embedding"},
    ("resample", "key"): {"L0H8"},
}


@pytest.mark.parametrize(("method", "via"), PLANTED)
def test_an_induction_head_reads_the_previous_token_by_its_keys_alone(method, via, planted):
    effects = effects_of(planted, repeats(), INDUCTION, via, method)
    assert strong(effects) == PLANTED[method, via]
    assert min(effects.values()) < -1


def test_a_chain_through_values_and_then_a_query_is_found(planted):
    """Heads that check a task mark answers; one head carries the marks to the end by its values,
    and the head that answers looks for its question by the mark there."""
    carried = effects_of(planted, shots(), FUNCTION_VECTOR, "value", "resample")
    # the mark of the task, and of the task of the corrupt prompt
    assert strong(carried) == {"L0H0", "L0H3"}
    asked = effects_of(planted, shots(), ANSWERS, "query", "resample")
    assert strong(asked) == {"L1H0"}
    for via in ("query", "key"):
        others = effects_of(planted, shots(), FUNCTION_VECTOR, via, "resample")
        assert max(map(abs, others.values())) < 1e-2


# what does not fit


def test_a_head_whose_output_passes_a_gate_is_refused(folder_of):
    """The gate reads the stream too, so that attention and values alone do not make the z."""
    reader = reader_of(folder_of("llama"))
    output = reader.rerunner.outputs[RECEIVER[0]]
    with output.register_forward_pre_hook(lambda _, inputs: (inputs[0] * inputs[0].sigmoid(),)):
        gated = PathReader(
            TaskRunner(reader.rerunner, reader.runner.prompts, metric="difference", method="mean")
        )
        with pytest.raises(ModelError, match="L2H1"):
            gated.estimates(RECEIVER)


def test_a_block_that_adds_more_is_refused(folder_of):
    runner = reader_of(folder_of("llama")).runner
    block = runner.rerunner.blocks[0]
    with (
        block.register_forward_hook(lambda _, inputs, output: output * 1.5),
        pytest.raises(ModelError, match="block"),
    ):
        PathReader(runner)


def test_the_first_layer_reads_the_embedding_alone(folder_of):
    reader = reader_of(folder_of("gpt2"))
    assert list(map(str, reader.senders((0, 3)))) == ["embedding"]
    assert np.abs(reader.exact((0, 3), "key", reader.senders((0, 3)))).max() > 1e-3
