"""Windows of text that ships, few enough for a test."""

from __future__ import annotations

from functools import cache

import headscope as hs
from headscope.corpus.shipped import data_folder, mini_folder
from headscope.corpus.window import Window
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations.types.semantic import PAIRS
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.stimulus import MAX_DOCUMENTS, Stimulus, StimulusConfig


@cache
def prose_windows(max_tokens: int) -> list[Window]:
    """Prose that ships, in the tokens of `mini`."""
    backend = load_tokenizer("mini", mini_folder())
    text = data_folder() / "corpora" / "gold.conllu"
    return hs.windows(text, backend, max_length=128, max_tokens=max_tokens)


@cache
def gum_windows(max_tokens: int) -> list[Window]:
    """Text of the treebank that ships, of many kinds, in the tokens of `mini`."""
    backend = load_tokenizer("mini", mini_folder())
    return hs.windows("gum", backend, max_length=128, max_tokens=max_tokens)


@cache
def annotated_prose(kind: str = "causal", max_tokens: int = 16_000) -> tuple[Window, ...]:
    """Text of the treebank that ships in long windows, for a kind of attention."""
    tokenizer = load_tokenizer("mini", mini_folder())
    return tuple(hs.windows(None, tokenizer, max_tokens=max_tokens, attention_kind=kind))


def mini_tokenizer() -> Tokenizer:
    return Tokenizer(load_tokenizer("mini", mini_folder()), name="mini")


@cache
def built_windows_of(
    stimulus: Stimulus, *, max_length: int = 128, documents: int = MAX_DOCUMENTS
) -> list[Window]:
    """Windows of a stimulus in the tokens of `mini`: as many as a run reads, enough for a tag."""
    tokenizer = mini_tokenizer()
    config = StimulusConfig(tokenizer, 4096, max_length, seed=3, documents=documents)
    return stimulus.windows(config)


@cache
def other_windows() -> list[Window]:
    """Repeated random tokens, and sentences of related words."""
    backend = load_tokenizer("mini", mini_folder())
    encoder = Tokenizer(backend, name="mini")
    tokens = encoder.ordinary_tokens(len(backend))
    repeats = repeat_windows(tokens, encoder, max_length=128, seed=0)
    return [*repeats, *PAIRS.windows(StimulusConfig(encoder, 0, 128, 0))]
