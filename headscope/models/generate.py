"""Text that a causal model generates greedily after a window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.text import read_text
from headscope.corpus.window import Window
from headscope.models.engines.attention import NAME
from headscope.models.engines.fused import EAGER, attend_by
from headscope.models.families import refuse_encoder
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of


def continue_window(model: Model, window: Window, count: int) -> Window:
    """The window and at most `count` tokens that a causal model generates greedily after it.

    An end-of-text token ends the generation, and is left out. Words are those of plain text: an
    annotation of the window is lost.

    Raises:
        ModelError: the model is an encoder, or runs under another engine than the fused one.
    """
    refuse_encoder(model, "generation")
    network, tokenizer = plain_network_of(model), model.tokenizer
    prompt = torch.from_numpy(window.tokens)[None].to(network.device)
    attend_by(network, EAGER)  # the fused engine reads whole texts, without a cache of keys
    try:
        output = network.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=count,
            do_sample=False,
            repetition_penalty=1.0,
            pad_token_id=tokenizer.bos,
        )
    finally:
        attend_by(network, NAME)
    # the end-of-text token is not part of the text
    ended = output[0, -1].item() in np.atleast_1d(network.generation_config.eos_token_id)
    tokens = output[0, 1 : -1 if ended else None].tolist()
    texts = [tokenizer.decode(tokens[:end]) for end in range(len(tokens) + 1)]
    # bytes of a part of a character may take more room than the character
    offsets = np.maximum.accumulate([len(text) for text in texts]).clip(max=len(texts[-1]))
    tokenized = TokenizedDocument(
        read_text(window.name, texts[-1]),
        np.array(tokens, np.int64),
        tokenizer.spell(tokens),
        np.stack([offsets[:-1], offsets[1:]], 1),
    )
    # the window is cut again, so that the new words are annotated alike
    (longer,) = cut_windows(
        tokenized if tokenizer.plain_prompts else tokenizer.without_special_words(tokenized),
        tokenizer.bos,
        tokenizer.bos_string,
        max_length=len(tokens) + 1,
        cuts=Cuts(),
        number=window.document,
    )
    return replace(longer, name=window.name)
