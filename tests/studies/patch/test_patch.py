"""Patching between two prompts: exactly what a slow loop and TransformerLens' own tools give."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console
from transformer_lens import patching

import headscope as hs
from headscope.errors import ChoiceError, HeadscopeError
from headscope.models.load import load_model
from headscope.studies.patch.patch_result import patch_lines
from headscope.views.show import text_window
from tests.oracles.network import (
    HeadMaps,
    NetworkSize,
    mirrored,
    planted_config,
    save_network,
)
from tests.oracles.words import BOS, UNKNOWN, save_tokenizer

CLEAN = "they saw the old man and the young friend before the old"
CORRUPT = "they saw the old man and the young friend before the young"
SHORT, OTHER_SHORT = "we saw that she could", "we saw that she was"
NAMES = "When Mary and John went to the store, John gave a drink to"
OTHER_NAMES = "When Mary and John went to the store, Mary gave a drink to"


def _is_read(name: str) -> bool:
    return name.endswith(("attn.hook_pattern", "attn.hook_v", "attn.v.hook_out", "attn.hook_z"))


class Tokens:
    """Both prompts as a bridge runs them, and the logits that are compared."""

    def __init__(self, name: str, clean: str, corrupt: str, found) -> None:
        model = load_model(name, engine="lens")
        self.bridge = model.bridge
        windows = [text_window(model, prompt).tokens for prompt in (clean, corrupt)]
        self.clean, self.corrupt = (torch.from_numpy(tokens)[None] for tokens in windows)
        with torch.no_grad():
            caches = [
                self.bridge.run_with_cache(tokens, names_filter=_is_read)
                for tokens in (self.clean, self.corrupt)
            ]
        (self.clean_logits, self.clean_cache), (self.corrupt_logits, self.corrupt_cache) = caches
        self.answer, self.wrong = (
            int(text_window(model, word).tokens[1]) for word in found.compared
        )
        assert self.metric(self.clean_logits) == pytest.approx(found.clean, abs=1e-4)
        assert self.metric(self.corrupt_logits) == pytest.approx(found.corrupt, abs=1e-4)

    def metric(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[0, -1, self.answer] - logits[0, -1, self.wrong]

    def share(self, logits_or_metric, *, denoise: bool) -> float:
        """A share of the difference between the prompts, as the table states it."""
        clean, corrupt = self.metric(self.clean_logits), self.metric(self.corrupt_logits)
        start, end = (corrupt, clean) if denoise else (clean, corrupt)
        return float((logits_or_metric - start) / (end - start))

    def rerun(self, hook_name: str, change, *, denoise: bool) -> float:
        """The share with one activation changed, by one forward pass of TransformerLens'."""
        tokens = self.corrupt if denoise else self.clean
        with torch.no_grad():
            logits = self.bridge.run_with_hooks(tokens, fwd_hooks=[(hook_name, change)])
        return self.share(self.metric(logits), denoise=denoise)

    def slow(self, row, part: str, *, denoise: bool) -> float:
        """One row of the table by hand."""
        here, there = (
            (self.corrupt_cache, self.clean_cache)
            if denoise
            else (self.clean_cache, self.corrupt_cache)
        )
        attention, head = f"blocks.{row.layer}.attn", row.head
        cells = (slice(None), slice(None))
        if row.kind == "edge":
            cells = (slice(row.query, row.query + 1), slice(row.key, row.key + 1))

        def of_pattern(pattern, hook):
            pattern[0, head][cells] = there[f"{attention}.hook_pattern"][0, head][cells]
            return pattern

        def of_output(z, hook):
            group = head * there[f"{attention}.hook_v"].shape[2] // z.shape[2]
            carried = [
                cache[f"{attention}.hook_pattern"][0, head][cells]
                @ cache[f"{attention}.hook_v"][0, cells[1], group]
                for cache in (there, here)
            ]
            z[0, cells[0], head] += carried[0] - carried[1]
            return z

        if part == "attention":
            return self.rerun(f"{attention}.hook_pattern", of_pattern, denoise=denoise)
        return self.rerun(f"{attention}.hook_z", of_output, denoise=denoise)


@pytest.fixture(scope="module")
def of_mini():
    return hs.studies.patch(
        "atlas:mini", clean=CLEAN, corrupt=CORRUPT, answer=" man", wrong=" friend", heads="all",
        edges=3, progress=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def mini(of_mini):
    return Tokens("mini", CLEAN, CORRUPT, of_mini)


def differs(found: pd.Series, expected: list[float]) -> float:
    return float(np.abs(found.to_numpy() - np.array(expected)).max())


def test_every_head_is_what_transformer_lens_tools_patch(of_mini, mini):
    """The oracle is `transformer_lens.patching`, which loops over heads one by one."""
    heads = of_mini.table[of_mini.table["kind"] == "head"]
    assert len(heads) == 48
    assert heads["recovered"].abs().max() > 0.1
    runs = {True: (mini.corrupt, mini.clean_cache), False: (mini.clean, mini.corrupt_cache)}
    tools = {
        "": patching.get_act_patch_attn_head_out_all_pos,
        "attention_": patching.get_act_patch_attn_head_pattern_all_pos,
    }
    for denoise, share in ((True, "recovered"), (False, "lost")):
        for prefix, tool in tools.items():
            with torch.no_grad():
                values = tool(mini.bridge, *runs[denoise], mini.metric)
            expected = [mini.share(value, denoise=denoise) for value in values.flatten()]
            assert differs(heads[prefix + share], expected) < 1e-5


SHARES = [
    (share, part, denoise)
    for share, denoise in (("recovered", True), ("lost", False))
    for part in ("output", "attention")
]


@pytest.mark.parametrize(("share", "part", "denoise"), SHARES)
def test_every_edge_is_what_a_slow_loop_gives(of_mini, mini, share, part, denoise):
    edges = of_mini.table[of_mini.table["kind"] == "edge"]
    assert len(edges) == 30
    column = share if part == "output" else f"attention_{share}"
    expected = [mini.slow(row, part, denoise=denoise) for row in edges.itertuples()]
    assert edges[column].abs().max() > 0.01
    assert differs(edges[column], expected) < 1e-5


@pytest.mark.slow
def test_a_real_model_with_grouped_heads_is_what_a_slow_loop_gives(smollm2):
    found = hs.studies.patch(
        "atlas:smollm2", clean=NAMES, corrupt=OTHER_NAMES, answer=" Mary", wrong=" John",
        heads="L17H4,L29H1", edges=1, source=smollm2, progress=False,
    )  # fmt: skip
    assert found.clean > 1 > -1 > found.corrupt
    tokens = Tokens(smollm2, NAMES, OTHER_NAMES, found)
    assert len(found.table) == 4
    for number, (share, part, denoise) in enumerate(SHARES):
        column = share if part == "output" else f"attention_{share}"
        rows = found.table.iloc[[number, (number + 1) % 4]]  # a forward pass of it takes a second
        expected = [tokens.slow(row, part, denoise=denoise) for row in rows.itertuples()]
        assert differs(rows[column], expected) < 1e-5
    # L17H4 decides by where it looks, L29H1 by what earlier layers left at its own token
    heads = found.table.set_index(["kind", "layer", "head"]).loc["head"]
    assert heads.loc[(17, 4), "attention_recovered"] > 0.2
    assert abs(heads.loc[(29, 1), "attention_recovered"]) < 0.05 < heads.loc[(29, 1), "recovered"]


def test_a_metric_of_ones_own_sees_the_whole_logits(of_mini, mini):
    seen = []

    def metric(logits):
        seen.append(tuple(logits.shape))
        return 3 * mini.metric(logits) + 1

    found = hs.studies.patch(
        "atlas:mini", clean=CLEAN, corrupt=CORRUPT, metric=metric, heads="L5H1", edges=0,
        progress=False,
    )  # fmt: skip
    assert set(seen) == {(1, mini.clean.shape[1], 1024)}
    assert found.clean == pytest.approx(3 * of_mini.clean + 1, abs=1e-4)
    row = of_mini.table[(of_mini.table["layer"] == 5) & (of_mini.table["head"] == 1)].iloc[0]
    assert found.table["recovered"].iloc[0] == pytest.approx(row["recovered"], abs=1e-5)
    assert found.compared == ()


def test_edges_that_carry_the_same_in_both_prompts_are_left_out():
    """Of prompts that differ in the last token alone all other queries carry the same."""
    found = hs.studies.patch(
        "atlas:mini", clean=SHORT, corrupt=OTHER_SHORT, heads="all", edges=4,
        progress=False,
    )  # fmt: skip
    edges = found.table[found.table["kind"] == "edge"]
    assert set(edges["query"]) == {edges["query"].max()}
    assert (edges["query_token"] == " could").all()


def test_edges_name_the_relations_of_their_heads_tags(of_mini):
    edges = of_mini.table[of_mini.table["kind"] == "edge"]
    held = edges[edges["relation"].str.contains("positional/offset-1")]
    assert len(held)
    assert (held["query"] - held["key"] == 1).all()
    assert held["tags"].str.contains("positional").all()


def test_tokens_that_are_not_named_are_the_models_own():
    found = hs.studies.patch(
        "atlas:mini", clean=SHORT, corrupt=OTHER_SHORT, heads="L5H1", edges=0, progress=False
    )
    model = load_model("mini", engine="lens")
    best = []
    for prompt in (SHORT, OTHER_SHORT):
        tokens = torch.from_numpy(text_window(model, prompt).tokens)[None]
        with torch.no_grad():
            best.append(int(model.bridge(tokens)[0, -1].argmax()))
    assert found.compared == tuple(model.tokenizer.spell(best))
    assert found.clean > 0 > found.corrupt


def patch_mini(**changes):
    asked = {"clean": SHORT, "corrupt": OTHER_SHORT, "heads": "L5H1", "edges": 0, "progress": False}
    return hs.studies.patch("atlas:mini", **asked | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corrupt": OTHER_SHORT + " man"}, r"tokens and the corrupt one \d+; .* differ from '"),
        ({"corrupt": SHORT}, "the clean and the corrupt prompt are the same tokens"),
        ({"clean": ""}, "the text is empty"),
        ({"clean": "\udcff"}, "not Unicode"),
        ({"answer": " man saw"}, r"answer ' man saw' is 2 tokens \(' man', ' saw'\)"),
        ({"wrong": ""}, r"wrong '' is 0 tokens \(none\)"),
        ({"answer": " man", "wrong": " man"}, "answer and wrong are both ' man'"),
        ({"metric": lambda logits: 1.0}, "the metric is 1 for the clean prompt and 1 for the"),
        ({"metric": lambda logits: float("nan")}, "the metric is nan for the clean prompt"),
        ({"metric": lambda logits: logits}, r"the metric gave a Tensor of shape \(1, \d+, 1024\)"),
        ({"metric": lambda logits: 1.0, "answer": " man"}, "leave out answer and wrong"),
        ({"metric": "loss"}, "metric is 'loss', expected a function"),
        ({"same_answer": SHORT}, "the clean and the same-answer prompt are the same tokens"),
        ({"same_answer": SHORT + " man"}, r"and the same-answer one \d+; patches go"),
        ({"same_answer": "we saw that they was"}, "the same-answer prompt, .* another prompt with"),
        ({"heads": "L9H9"}, "no head L9H9 in this run; up to L5H7"),
        ({"edges": -1}, "edges is -1, expected a whole number from 0"),
    ],
)
def test_what_cannot_be_patched_is_refused_with_what_would_do(changes, message):
    with pytest.raises(HeadscopeError, match=message):
        patch_mini(**changes)


def test_an_unknown_type_lists_those_of_the_run():
    with pytest.raises(ChoiceError, match=r"'inducton' \(is induction meant\?\)"):
        patch_mini(heads="inducton")
    assert len(patch_mini(heads="induction").table) == 5


def test_the_terminal_shows_the_metric_and_the_largest(of_mini):
    console = Console(width=150, record=True, file=io.StringIO())
    console.print(patch_lines(of_mini))
    shown = console.export_text()
    assert "the logit of ' man' less that of ' friend'" in shown
    assert "12 of 48 heads, the largest" in shown
    largest = of_mini.table[of_mini.table["kind"] == "head"]
    row = largest.loc[largest[["recovered", "lost"]].abs().max(axis=1).idxmax()]
    assert f"L{row['layer']}H{row['head']}" in shown.split("\n")[2]


HEADS, WIDTH, CONTEXT = 6, 8, 32
WORDS = [BOS, UNKNOWN, "say", "go", "a0", "a1", "b0", "A", "B", *(f"w{i}" for i in range(64))]
KEY, IS_BOS, CLASS, SINGLE, ANSWER, CODE = 0, 1, 2, 4, 8, 10
"""Columns of the stream: of a word that is looked at, of the first token, of its answer, of the
single words of the clean and the corrupt prompt, of the two answers, and codes of all words."""
WRITES = {
    "its answer": (CLASS, 2.0),
    "the answer of the clean prompt's own word": (SINGLE, 1.0),
    "against the answer of that word": (SINGLE, -0.4),
}
"""By head what it reads at the word and how much it writes."""


def save_answering(folder: Path) -> Path:
    """One layer: a head that carries the answer, and heads that know the prompts' single words."""
    rng = np.random.default_rng(0)
    half = HEADS * WIDTH // 2
    table = np.zeros((len(WORDS), 2 * half))
    table[:, CODE:half] = rng.choice([-1.0, 1.0], (len(WORDS), half - CODE))
    table[0, IS_BOS] = 1
    for word, (answer, single) in {"a0": (0, 0), "a1": (0, None), "b0": (1, 1)}.items():
        row = WORDS.index(word)
        table[row, KEY] = table[row, CLASS + answer] = 1
        if single is not None:
            table[row, SINGLE + single] = 1
    for answer, word in enumerate("AB"):
        table[WORDS.index(word), ANSWER + answer] = 4
    maps = [HeadMaps(1, HEADS, into=2 * half, out=WIDTH) for _ in "qkv"]
    maps.append(HeadMaps(1, HEADS, into=WIDTH, out=2 * half))
    q, k, v, o = maps
    for head, (read, size) in enumerate(WRITES.values()):
        q.bias[0, head, 0] = 60
        k.weight[0, head, KEY, 0], k.weight[0, head, IS_BOS, 0] = 1, 0.5
        for answer in (0, 1):
            v.weight[0, head, read + answer, answer] = 1
            o.weight[0, head, answer, ANSWER + answer] = size
    o.weight[0, :, :, half:] = -o.weight[0, :, :, :half]
    size = NetworkSize(len(WORDS), 1, HEADS, WIDTH, CONTEXT)
    save_network(
        planted_config("gpt2", size, {}), maps, folder, embedding=mirrored(table, half),
        positions=np.zeros((CONTEXT, 2 * half)), gains=[1.0],
    )  # fmt: skip
    save_tokenizer(WORDS, folder, context=CONTEXT)
    return folder


def test_a_part_that_knows_the_prompt_s_own_words_does_not_carry_the_answer(tmp_path):
    """Both pass denoising and noising between two prompts; the third tells them apart."""
    model = save_answering(tmp_path / "model")
    text = tmp_path / "text.txt"
    text.write_text("say a0 go say b0 go\n" * 40, encoding="utf-8")
    run = hs.classify(
        str(model), text, max_tokens=100, twin=False, examples=False, types=["positional"],
        progress=False,
    )  # fmt: skip
    found = hs.studies.patch(
        run, clean="say a0 go", corrupt="say b0 go", same_answer="say a1 go", answer="A",
        wrong="B", heads="all", edges=4, progress=False,
    )  # fmt: skip
    assert found.corrupt < 0 < found.same_answer < found.clean
    for kind in ("head", "edge"):
        rows = found.table[found.table["kind"] == kind]
        rows = rows[(kind == "head") | (rows["query_token"] == "go")].set_index("head")
        carries, knows, against = (rows.loc[list(WRITES).index(name)] for name in WRITES)
        assert min(carries["recovered"], carries["lost"]) > 0.5
        assert carries["same_recovered"] == pytest.approx(carries["recovered"], rel=0.1)
        assert abs(carries["same_lost"]) < 0.05
        assert carries["carries_answer"] == "yes"
        # silent at a word that it does not know, it gives back what it did for the wrong answer
        assert min(knows["recovered"], knows["lost"]) > 0.25
        assert 0.3 < knows["same_recovered"] / knows["recovered"] < 0.7
        assert knows["carries_answer"] == "no"
        assert max(against["recovered"], against["lost"]) < -0.05
        assert against["carries_answer"] == ""
    console = Console(width=190, record=True, file=io.StringIO())
    console.print(patch_lines(found))
    shown = console.export_text()
    assert f"{found.same_answer:+.3f} after the same-answer one" in shown
    assert re.search(r"L0H0 .*yes", shown)
    assert re.search(r"L0H1 .*no", shown)


def test_without_a_third_prompt_nothing_is_said_of_the_answer(of_mini):
    assert of_mini.table[["same_recovered", "same_lost"]].isna().all(axis=None)
    assert set(of_mini.table["carries_answer"]) == {""}


def test_a_part_of_the_third_prompt_is_what_a_slow_loop_gives():
    """The third prompt as clean one of denoising, and as corrupt one of noising."""
    third = CLEAN.replace("young", "small")
    options = {"answer": " man", "wrong": " friend", "heads": "L5H1,L4H3", "edges": 0}
    found, *others = (
        hs.studies.patch("atlas:mini", **prompts, **options, progress=False)
        for prompts in (
            {"clean": CLEAN, "corrupt": CORRUPT, "same_answer": third},
            {"clean": third, "corrupt": CORRUPT},
            {"clean": CLEAN, "corrupt": third},
        )
    )
    gap = found.clean - found.corrupt
    expected = (others[0].table["denoised"] - found.corrupt) / gap
    assert differs(found.table["same_recovered"], expected.tolist()) < 1e-5
    expected = (found.clean - others[1].table["noised"]) / gap
    assert differs(found.table["same_lost"], expected.tolist()) < 1e-5
