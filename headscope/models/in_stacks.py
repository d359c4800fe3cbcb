"""A model with an encoder and a decoder as three that are read one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from headscope.corpus.window import NOTHING, Frame
from headscope.errors import ModelError
from headscope.heads import CROSS, DECODER, ENCODER
from headscope.models.engines.one_stack import OneStack
from headscope.models.engines.stacks import EncoderDecoder
from headscope.models.tokenizer import Tokenizer

M = TypeVar("M")
NO_TOKEN = "∅"
"""What position 0 is shown as where no token stands."""


def start_of(name: str, network: Any, backend: Any, asked: str | None) -> str:
    """The token that a model's decoder begins with, as text.

    Args:
        name: of the model, for messages.
        network: the model.
        backend: its tokenizer, as transformers loads it.
        asked: the token that was asked for, if any.

    Raises:
        ModelError: its configuration names none.
    """
    if asked is not None:
        return asked
    config, stated = network.config, getattr(network, "generation_config", None)
    for key in ("decoder_start_token_id", "pad_token_id"):  # T5's decoder begins with its padding
        for place in (config, stated):
            token = getattr(place, key, None)
            if isinstance(token, int):
                return str(backend.convert_ids_to_tokens(token))
    raise ModelError(
        f"{name}: its configuration does not say with which token its decoder begins; add "
        "decoder_start_token_id, or name the token with --bos"
    )


def in_stacks(model: M, backend: Any) -> M:
    """The model, with each of its stacks as a model of its own.

    Args:
        model: a `headscope.models.load.Model` whose engine reads stacks.
        backend: its tokenizer, as transformers loads it.

    Raises:
        ModelError: its texts end with no token.
    """
    whole: Any = model
    shared: EncoderDecoder = whole.engine
    tokenizer: Tokenizer = whole.tokenizer
    opens, end = _specials(whole.name, shared.network, backend)
    text = str(backend.convert_ids_to_tokens(end))
    source = tokenizer.framed(
        NOTHING if opens is None else opens,
        NO_TOKEN if opens is None else str(backend.convert_ids_to_tokens(opens)),
        Frame(end, text, both_ways=True),
    )
    stacks = []
    for letter in (ENCODER, DECODER, CROSS):
        engine = OneStack(shared, letter, start=tokenizer.bos, end=end)
        stacks.append(
            replace(
                whole,
                engine=engine,
                tokenizer=tokenizer if letter == DECODER else source,
                layers=engine.layers,
                both_ways=engine.both_ways,
                stack=letter,
                target=tokenizer if letter == CROSS else None,
            )
        )
    found: M = replace(whole, stacks=tuple(stacks))
    return found


def _specials(name: str, network: Any, backend: Any) -> tuple[int | None, int]:
    """The token that a source begins with, if any, and the one that closes it.

    As the tokenizer frames a text; one that puts nothing around it closes with its end of text.
    """
    plain = backend("a", add_special_tokens=False)["input_ids"]
    framed = backend("a")["input_ids"]
    opens = framed[0] if framed[:1] != plain[:1] else None
    end = framed[-1] if framed[-1:] != plain[-1:] else None
    for place in (network.config, backend):
        if end is None:
            end = getattr(place, "eos_token_id", None)
    if not isinstance(end, int):
        raise ModelError(
            f"{name}: neither its tokenizer nor its configuration says which token closes a text "
            "(eos_token_id)"
        )
    return opens, end
