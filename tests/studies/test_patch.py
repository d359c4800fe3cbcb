"""Patching between two prompts: exactly what a slow loop and TransformerLens' own tools give."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from transformer_lens import patching

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.models.load import load_model
from headscope.models.text_window import text_window
from headscope.stimuli.tasks import read_task

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
            int(text_window(model, word).tokens[1]) for word in found.values["compared"]
        )
        assert self.metric(self.clean_logits) == pytest.approx(found.values["clean"], abs=1e-4)
        assert self.metric(self.corrupt_logits) == pytest.approx(found.values["corrupt"], abs=1e-4)

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
    return hs.patch(
        "atlas:mini",
        clean=CLEAN,
        corrupt=CORRUPT,
        answer=" man",
        wrong=" friend",
        heads="all",
        edges=3,
        progress=False,
    )


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
    found = hs.patch(
        "atlas:smollm2",
        clean=NAMES,
        corrupt=OTHER_NAMES,
        answer=" Mary",
        wrong=" John",
        heads="L17H4,L29H1",
        edges=1,
        source=smollm2,
        progress=False,
    )
    assert found.values["clean"] > 1 > -1 > found.values["corrupt"]
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


def test_edges_name_the_relations_of_their_heads_tags(of_mini):
    edges = of_mini.table[of_mini.table["kind"] == "edge"]
    held = edges[edges["relation"].str.contains("positional/offset-1")]
    assert len(held)
    assert (held["query"] - held["key"] == 1).all()
    assert held["tags"].str.contains("positional").all()


def test_tokens_that_are_not_named_are_the_models_own():
    found = hs.patch(
        "atlas:mini", clean=SHORT, corrupt=OTHER_SHORT, heads="L5H1", edges=0, progress=False
    )
    model = load_model("mini", engine="lens")
    best = []
    for prompt in (SHORT, OTHER_SHORT):
        tokens = torch.from_numpy(text_window(model, prompt).tokens)[None]
        with torch.no_grad():
            best.append(int(model.bridge(tokens)[0, -1].argmax()))
    assert found.values["compared"] == model.tokenizer.spell(best)
    assert found.values["clean"] > 0 > found.values["corrupt"]


def patch_mini(**changes):
    asked = {"clean": SHORT, "corrupt": OTHER_SHORT, "heads": "L5H1", "edges": 0, "progress": False}
    return hs.patch("atlas:mini", **asked | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corrupt": SHORT}, "both prompts"),
        ({"answer": " man saw"}, r"\(' man', ' saw'\)"),
        ({"wrong": ""}, "wrong is ''"),
        ({"answer": " man", "wrong": " man"}, "' man'.*' man'"),
    ],
)
def test_what_cannot_be_patched_is_refused_with_what_would_do(changes, message):
    with pytest.raises(HeadscopeError, match=message):
        patch_mini(**changes)


LONGER = "they saw the very old man and he and the young friend before the young"


def counterparts(length: int, other_length: int) -> dict[int, int]:
    """Positions of a prompt, and those of the other one that correspond: from the ends, and 0."""
    shift = other_length - length
    from_end = {at: at + shift for at in range(1, length) if at + shift > 0}
    return {0: 0} | from_end


def patched_z(here, there, row, other_at, *, is_attention: bool):
    """A function that changes a head's output cell by cell, as a row of the table says."""
    attention, head = f"blocks.{row.layer}.attn", row.head

    def change(z, hook):
        pattern, other_pattern = (
            cache[f"{attention}.hook_pattern"][0, head] for cache in (here, there)
        )
        group = head * here[f"{attention}.hook_v"].shape[2] // z.shape[2]
        value, other_value = (cache[f"{attention}.hook_v"][0, :, group] for cache in (here, there))
        if row.kind == "head" and not is_attention:
            for at, other in other_at.items():
                z[0, at, head] = there[f"{attention}.hook_z"][0, other, head]
            return z
        for query, other_query in other_at.items():
            for key, other_key in other_at.items():
                if row.kind == "edge" and (query, key) != (row.query, row.key):
                    continue
                read = value[key] if is_attention else other_value[other_key]
                z[0, query, head] += other_pattern[other_query, other_key] * read
                z[0, query, head] -= pattern[query, key] * value[key]
        return z

    return f"{attention}.hook_z", change


@pytest.mark.parametrize("is_clean_longer", [False, True])
def test_prompts_of_unequal_length_are_aligned_at_their_ends(is_clean_longer):
    clean, corrupt = (LONGER, CLEAN) if is_clean_longer else (CLEAN, LONGER)
    options = {"answer": " man", "wrong": " friend", "heads": "L5H1,L4H3,L2H0"}
    found = hs.patch("atlas:mini", clean=clean, corrupt=corrupt, **options, edges=3, progress=False)
    assert any("[[" in note for note in found.notes)
    tokens = Tokens("mini", clean, corrupt, found)
    lengths = tokens.clean.shape[1], tokens.corrupt.shape[1]
    assert lengths[0] != lengths[1]
    other_at = counterparts(*lengths)
    assert len(found.table) == 12
    for row in found.table.itertuples():
        for share, part, denoise in SHARES:
            is_attention = part == "attention"
            here, there = tokens.clean_cache, tokens.corrupt_cache
            change_at, of_row = other_at, row
            if denoise:
                here, there = there, here
                change_at = {other: at for at, other in other_at.items()}
            if denoise and row.kind == "edge":
                cell = {"query": other_at[row.query], "key": other_at[row.key]}
                of_row = row._replace(**cell)
            hook = patched_z(here, there, of_row, change_at, is_attention=is_attention)
            column = f"attention_{share}" if is_attention else share
            expected = tokens.rerun(*hook, denoise=denoise)
            assert getattr(row, column) == pytest.approx(expected, abs=1e-5)


def test_the_pairs_of_person_differ_in_the_last_pronoun_alone():
    rows = read_task("person").rows
    assert len({row.answer for row in rows}) == len(rows) >= 20
    for row in rows:
        clean, corrupt = row.prompt.split(), row.corrupt.split()
        assert clean[:-1] == corrupt[:-1]
        assert clean[-1] in ("he", "she")
        assert corrupt[-1] in ("they", "we")
        assert row.answer == f"{row.wrong}s"
        assert clean.count(f"{row.wrong.strip()},") == 2
