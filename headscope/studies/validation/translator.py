"""A model in Marian's layout that is built by hand, weight by weight, for the aligned sentences.

It translates nothing: its heads look at what `ACROSS` says, and hand on nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headscope.arguments import takes
from headscope.corpus.aligned import aligned_files, read_translations
from headscope.corpus.shipped import data_folder
from headscope.models.weights import quiet_logging

ALIGNED = data_folder() / "aligned"
ACROSS = {
    "translation": 0,
    "same place": 1,
    "end of the source": 2,
    "word class": 3,
    "most frequent word": 4,
    "word before": 5,
}
"""What each head across does; the last two ask nothing."""
HEADS, WIDTH, CONTEXT = 8, 64, 64
D_MODEL = HEADS * WIDTH
SPECIAL = ("<pad>", "</s>", "<unk>")
UNTOLD = ("DET", "PART", "PRON")
"""Classes of words that stand for many others."""
CLASSES = ("NOUN", "VERB", "DET", "ADJ", "ADV", "AUX", "SCONJ", "PRON", "PART", "ADP", "PUNCT")
# Marian adds sines (first half of the residual stream) and cosines (second half) of the position,
# those that turn fast in the first rows; words have rows of their own, where these hardly turn,
# with the other sign in the second half, and are so much longer that positions hardly disturb them
FAST = 32
MEANING, CLASS = FAST, FAST + WIDTH
END, OFTEN, ANY, FILLER = range(FAST + 2 * WIDTH, FAST + 2 * WIDTH + 4)
LENGTH, SCALE = 4.0, 30.0
"""Of every word's part before scaling, squared, so that norms divide all of them by the same."""
SPREAD = ((2 * SCALE**2 * LENGTH + D_MODEL / 2) / D_MODEL) ** 0.5
STEPS = {"same place": 0.0, "word before": -1.0, "word after": 1.0}
"""How far from its own place a head looks."""
NATS, PLACE_NATS = 14.0, 40.0
TURN = 10_000 ** (-2 * np.arange(FAST) / D_MODEL)
"""Radians that the fast rows turn by from one position to the next."""


def dictionary() -> tuple[dict[str, int], dict[str, str]]:
    """The number of each word's meaning, by the links of the aligned sentences, and its class."""
    meaning: dict[str, int] = {}
    classes: dict[str, str] = {}
    for pair in read_translations(aligned_files(ALIGNED)[0]):
        sides = pair.source.words, pair.target.words
        for side in sides:
            classes |= {word.form: word.upos for word in side}
        for one, other in pair.links.tolist():
            source, target = sides[0][one].form, sides[1][other].form
            if classes[source] == classes[target] and classes[source] not in UNTOLD:
                meaning.setdefault(source, len(set(meaning.values())))
                meaning.setdefault(target, meaning[source])
    return meaning, classes


def translator() -> tuple[nn.Module, list[str]]:
    """The model, and the words of its vocabulary in order."""
    from transformers import MarianConfig, MarianMTModel

    meaning, classes = dictionary()
    words = [*SPECIAL, *sorted(classes)]
    config = MarianConfig(
        vocab_size=len(words),
        d_model=D_MODEL,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        max_position_embeddings=CONTEXT,
        pad_token_id=0,
        eos_token_id=1,
        decoder_start_token_id=0,
        scale_embedding=False,
    )
    model = MarianMTModel(config)
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.fill_(float("layer_norm.weight" in name))
    state["model.shared.weight"].copy_(_words(words, meaning, classes))
    for at, heads in (
        ("decoder.layers.0.encoder_attn", ACROSS),
        ("encoder.layers.0.self_attn", {"word before": 0, "word after": 1}),
        ("decoder.layers.0.self_attn", {"word before": 0}),
    ):
        query, key = (
            state[f"model.{at}.{name}_proj.weight"].view(HEADS, WIDTH, D_MODEL) for name in "qk"
        )
        # before the first norm the residual stream is as it was embedded
        _plant(query, key, heads, SPREAD if at.endswith("encoder_attn") else 1.0)
    return model, words


def _plant(query: torch.Tensor, key: torch.Tensor, heads: dict[str, int], spread: float) -> None:
    """Rows of Q and K: what a query asks for, and what a key has."""
    by_word = NATS * WIDTH**0.5 * spread**2 / SCALE**2
    for does, head in heads.items():
        if does in ("translation", "word class"):
            start = MEANING if does == "translation" else CLASS
            query[head, :, start : start + WIDTH] = by_word * torch.eye(WIDTH)
            key[head, :, start : start + WIDTH] = torch.eye(WIDTH)
        elif does in STEPS:
            by_place = PLACE_NATS * WIDTH**0.5 * spread**2 / FAST
            step = STEPS[does]
            sine, cosine = (torch.tensor(np.diag(f(step * TURN))).float() for f in (np.sin, np.cos))
            fast, half = slice(0, FAST), slice(D_MODEL // 2, D_MODEL // 2 + FAST)
            # the sine and the cosine of the place that is asked for
            query[head, :FAST, fast], query[head, :FAST, half] = by_place * cosine, by_place * sine
            query[head, FAST:, fast], query[head, FAST:, half] = -by_place * sine, by_place * cosine
            key[head, :FAST, fast], key[head, FAST:, half] = torch.eye(FAST), torch.eye(FAST)
        else:
            query[head, 0, ANY] = by_word
            key[head, 0, END if does == "end of the source" else OFTEN] = 1.0


def _words(words: list[str], meaning: dict[str, int], classes: dict[str, str]) -> torch.Tensor:
    table = np.zeros((len(words), D_MODEL // 2))
    for i, word in enumerate(words):
        if word in meaning:
            table[i, MEANING + meaning[word]] = 1
        if word in classes:
            table[i, CLASS + CLASSES.index(classes[word])] = 1
        table[i, END] = word == "</s>"
        table[i, OFTEN] = word == "the"
        table[i, ANY] = 1
        table[i, FILLER] = (LENGTH - table[i].sum()) ** 0.5
    return SCALE * torch.tensor(np.concatenate([table, -table], 1), dtype=torch.float32)


@takes()
def save_translator(folder: str | Path) -> Path:
    """Write a small model in Marian's layout whose heads are built by hand, and its tokenizer.

    It translates nothing: no head hands anything on. Across, head 0 looks at the English words that
    a German word of `aligned` translates, head 1 at the same place, head 2 at the source's end,
    head 3 at words of the same class, head 4 at "the", head 5 at the place before; 6 and 7 ask
    nothing. In the encoder head 0 looks at the token before and head 1 at the one after.

    Args:
        folder: where to write, in Hugging Face layout; about 10 MB.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    with quiet_logging():
        model, words = translator()
        network: Any = model
        network.save_pretrained(folder)
    backend = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=backend, **special).save_pretrained(folder)
    return Path(folder)
