"""Encoders: a tokenizer with [CLS] and [SEP], tiny random ones, and one that is built by hand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch

SPECIAL = ("[CLS]", "[SEP]", "[PAD]", "[MASK]", "[UNK]")
PAIRS = 32
"""Verbs, each with an object of its own."""
NOUNS, VERBS = ([f"{letter}{i}" for i in range(PAIRS)] for letter in "nv")
WORDS = (*SPECIAL, *NOUNS, *VERBS, "so", ".", *(f"w{i}" for i in range(40)))
HEADS = {
    "positional/offset+1": 0,
    "positional/offset-1": 1,
    "sink/separator": 2,
    "syntactic/obj:dep>head": 3,
    "syntactic/obj:head>dep": 4,
}
"""Relations of the hand-built encoder's heads; the others ask nothing."""
ALL, WIDTH, CONTEXT = 8, 32, 256
D_MODEL = ALL * WIDTH
# rows of half of the residual stream; the other half is the same with the other sign
NOUN, VERB, PLACE, END, FILLER = 0, PAIRS, 2 * PAIRS, 2 * PAIRS + WIDTH, 2 * PAIRS + WIDTH + 1
LENGTH = 10.0
"""Squared length of every word's part, so that norms divide all of them by the same."""
SPREAD = (2 * (LENGTH + WIDTH / 2) / D_MODEL) ** 0.5


def save_tokenizer(words: tuple[str, ...], folder: Path) -> None:
    """One token per word, between blanks and marks."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    numbers = {word: i for i, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = ("cls", "sep", "pad", "mask", "unk")
    special = {f"{n}_token": s for n, s in zip(names, SPECIAL, strict=True)}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)


def corpus(documents: int, seed: int) -> str:
    """Sentences of four verbs and their objects in any order: no baseline tells which is whose.

    No verb is twice in a document.
    """
    rng, lines = random.Random(seed), []
    for document in range(documents):
        lines.append(f"# newdoc id = d{document}")
        order = rng.sample(range(PAIRS), PAIRS)
        for sentence in range(8):
            numbers = order[4 * sentence : 4 * sentence + 4]
            words = [NOUNS[i] for i in numbers] + [VERBS[i] for i in numbers] + ["so"] * 4
            rng.shuffle(words)
            words.append(".")
            root = next(place for place, word in enumerate(words) if word[0] == "v")
            lines.append(f"# sent_id = d{document}-{sentence}")
            lines.append(f"# text = {' '.join(words)}")
            lines += [_row(words, place, root) for place in range(len(words))]
            lines.append("")
    return "\n".join(lines) + "\n"


def _row(words: list[str], place: int, root: int) -> str:
    word = words[place]
    upos = {"n": "NOUN", "v": "VERB", "s": "ADV", ".": "PUNCT"}[word[0]]
    head, deprel = (
        root + 1,
        {"NOUN": "obj", "VERB": "conj", "ADV": "advmod", "PUNCT": "punct"}[upos],
    )
    if upos == "NOUN":
        head = words.index("v" + word[1:]) + 1
    if place == root:
        head, deprel = 0, "root"
    return "\t".join([str(place + 1), word, word, upos, "_", "_", str(head), deprel, "_", "_"])


def hand_built() -> torch.nn.Module:
    """BERT's layout with one layer, whose heads do what `HEADS` says."""
    from transformers import BertConfig, BertForMaskedLM

    model = BertForMaskedLM(
        BertConfig(
            vocab_size=len(WORDS),
            hidden_size=D_MODEL,
            num_hidden_layers=1,
            num_attention_heads=ALL,
            intermediate_size=8,
            max_position_embeddings=CONTEXT,
        )
    )
    state = model.state_dict()
    for name, tensor in state.items():
        if tensor.is_floating_point():
            tensor.fill_(float("LayerNorm.weight" in name))
    turn = np.random.default_rng(0).uniform(0.3, np.pi, WIDTH // 2)
    state["bert.embeddings.word_embeddings.weight"].copy_(_mirrored(_words()))
    places = np.zeros((CONTEXT, D_MODEL // 2))
    angles = np.arange(CONTEXT)[:, None] * turn
    places[:, PLACE : PLACE + WIDTH : 2] = np.cos(angles)
    places[:, PLACE + 1 : PLACE + WIDTH : 2] = np.sin(angles)
    state["bert.embeddings.position_embeddings.weight"].copy_(_mirrored(places))
    at = "bert.encoder.layer.0.attention.self"
    query, key = (
        state[f"{at}.{name}.weight"].view(ALL, WIDTH, D_MODEL) for name in ("query", "key")
    )
    gain = WIDTH**0.5 * SPREAD**2
    for head, step in ((0, 1), (1, -1)):
        query[head, :, PLACE : PLACE + WIDTH] = 3 * gain * _turned(step * turn)
        key[head, :, PLACE : PLACE + WIDTH] = torch.eye(WIDTH)
    query[2, 0, FILLER], key[2, 0, END] = 1.0, 12 * gain / LENGTH**0.5 / 3
    for head, own, other in ((3, NOUN, VERB), (4, VERB, NOUN)):
        query[head, :PAIRS, own : own + PAIRS] = 12 * gain * torch.eye(PAIRS)
        key[head, :PAIRS, other : other + PAIRS] = torch.eye(PAIRS)
    return model


def _words() -> np.ndarray:
    table = np.zeros((len(WORDS), D_MODEL // 2))
    for i, word in enumerate(WORDS):
        if word in NOUNS:
            table[i, NOUN + NOUNS.index(word)] = 1
        if word in VERBS:
            table[i, VERB + VERBS.index(word)] = 1
        if word == "[SEP]":
            table[i, END] = 1
        table[i, FILLER] = (LENGTH - table[i].sum()) ** 0.5
    table[WORDS.index("[SEP]"), [END, FILLER]] = LENGTH**0.5, 0
    return table


def _mirrored(table: np.ndarray) -> torch.Tensor:
    """A table with the other sign behind it, so that every row's mean is 0."""
    return torch.tensor(np.concatenate([table, -table], 1), dtype=torch.float32)


def _turned(angles: np.ndarray) -> torch.Tensor:
    """The matrix that turns each pair of channels by an angle."""
    found = np.zeros((WIDTH, WIDTH))
    for i, angle in enumerate(angles):
        found[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [
            [np.cos(angle), -np.sin(angle)],
            [np.sin(angle), np.cos(angle)],
        ]
    return torch.tensor(found, dtype=torch.float32)


def save_hand_built(folder: Path) -> Path:
    """The hand-built encoder and its tokenizer."""
    hand_built().save_pretrained(folder)
    save_tokenizer(WORDS, folder)
    return folder
