"""Heads planted by hand that make words of words, over the writers that calibration plants."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.forms import word_relations
from tests.oracles.words import vocabulary
from tests.oracles.writers import CODE, D_MODEL, HALF, WIDTH, save_writers

LAYER = 1
"""Where heads are planted, in place of those that are there."""


def save_word_heads(
    layout: str,
    folder: Path,
    heads: Sequence[Sequence[tuple[str, str, float]]],
    *,
    noise: float,
    alike: Sequence[tuple[str, str]] = (),
) -> Path:
    """A planted model in which head k of layer 1 makes of words what `heads[k]` says.

    Each entry is a word, a word that it becomes, and with which weight. Of the pairs in
    `alike` the second word gets the code of the first, but for an eighth of its signs.
    """
    lists = ["It is the"]
    lists += [
        " ".join((each.word, *each.right, *each.rivals))
        for relation in word_relations().values()
        for each in relation.words
    ]
    lists += [
        " ".join(word for form in entry.split("/")[:2] for word in form.split())
        for entry in lexicon.ON_THINGS
    ]
    save_writers(layout, vocabulary(lists), ["the"], folder, noise=noise)
    rng = np.random.default_rng(0)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        table, numbers = model.get_input_embeddings().weight, tokenizer.get_vocab()
        for word, other in alike:
            code = table[numbers[word], :CODE].clone()
            code[torch.from_numpy(rng.permutation(CODE)[: CODE // 8])] *= -1
            table[numbers[other], :CODE], table[numbers[other], HALF : HALF + CODE] = code, -code
    codes = model.get_input_embeddings().weight.detach().double().numpy()[:, :CODE]
    for place, pairs in enumerate(heads):
        left, right = _factors(codes, tokenizer.get_vocab(), pairs)
        v, o = np.zeros((2, D_MODEL, WIDTH))
        v[:CODE], o[:CODE] = left, right
        o[HALF:] = -o[:HALF]
        v, o = (x + rng.normal(0, noise * np.sqrt((x**2).mean()), x.shape) for x in (v, o))
        _put(model, layout, place, *(torch.from_numpy(part).float() for part in (v, o)))
    model.save_pretrained(folder)
    return folder


def _factors(codes, numbers, pairs) -> tuple[np.ndarray, np.ndarray]:
    table = np.zeros((CODE, CODE))
    for word, becomes, weight in pairs:
        table += weight * np.outer(codes[numbers[word]], codes[numbers[becomes]]) / CODE
    left, sizes, right = np.linalg.svd(table)
    root = np.sqrt(sizes[:WIDTH])
    return left[:, :WIDTH] * root, right[:WIDTH].T * root


def _put(model, layout: str, place: int, v: torch.Tensor, o: torch.Tensor) -> None:
    own = slice(place * WIDTH, (place + 1) * WIDTH)
    with torch.no_grad():
        if layout == "gpt2":
            attention = model.transformer.h[LAYER].attn
            attention.c_attn.weight[:, 2 * D_MODEL :][:, own] = v
            attention.c_proj.weight[own] = o.T
        else:
            attention = model.model.layers[LAYER].self_attn
            attention.v_proj.weight[own] = v.T
            attention.o_proj.weight[:, own] = o
