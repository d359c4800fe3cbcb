"""A model with an encoder and a decoder as three that are read one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, CROSS
from headscope.corpus.aligned import BOTH, SOURCE, TARGET
from headscope.corpus.window import NOTHING, Frame
from headscope.errors import ModelError
from headscope.models.engines.one_stack import OneStack
from headscope.models.engines.stacks import EncoderDecoder
from headscope.models.tokenizer import Tokenizer

M = TypeVar("M")
NO_TOKEN = "∅"
"""What position 0 is shown as where no token stands."""


def decoder_start(name: str, network: Any, backend: Any, bos: str | None) -> str:
    """The token that a model's decoder begins with, as text.

    Args:
        name: of the model, for messages.
        network: the model.
        backend: its tokenizer, as transformers loads it.
        bos: text of the token that was named by the user, if any.

    Raises:
        ModelError: its configuration names none.
    """
    if bos is not None:
        return bos
    config, generation = network.config, getattr(network, "generation_config", None)
    for key in ("decoder_start_token_id", "pad_token_id"):  # T5's decoder begins with its padding
        for source in (config, generation):
            token = getattr(source, key, None)
            if isinstance(token, int):
                return str(backend.convert_ids_to_tokens(token))
    raise ModelError(
        f"{name}: its configuration does not say with which token its decoder begins; add "
        "decoder_start_token_id, or name the token with --bos"
    )


def with_stacks(model: M, backend: Any) -> M:
    """The model, with its encoder, decoder and cross-attention each as a model of its own.

    Args:
        model: a `headscope.models.load.Model` whose engine reads stacks.
        backend: its tokenizer, as transformers loads it.

    Raises:
        ModelError: its texts end with no token.
    """
    loaded: Any = model
    shared: EncoderDecoder = loaded.engine
    tokenizer: Tokenizer = loaded.tokenizer
    opens, end = _specials(loaded.name, shared.network, backend)
    text = str(backend.convert_ids_to_tokens(end))
    source = tokenizer.framed(
        NOTHING if opens is None else opens,
        NO_TOKEN if opens is None else str(backend.convert_ids_to_tokens(opens)),
        Frame(end, text, BIDIRECTIONAL),
    )
    parts = []
    for kind, side in ((BIDIRECTIONAL, SOURCE), (CAUSAL, TARGET), (CROSS, BOTH)):
        engine = OneStack(shared, kind, start=tokenizer.bos, end=end)
        parts.append(
            replace(
                loaded,
                engine=engine,
                tokenizer=tokenizer if kind == CAUSAL else source,
                layers=engine.layers,
                attention_kind=kind,
                side=side,
                target=tokenizer if kind == CROSS else None,
            )
        )
    complete: M = replace(loaded, parts=tuple(parts))
    return complete


def _specials(name: str, network: Any, backend: Any) -> tuple[int | None, int]:
    """The token that a source begins with, if any, and the one that closes it.

    As the tokenizer frames a text; one that puts nothing around it closes with its end of text.
    """
    plain = backend("a", add_special_tokens=False)["input_ids"]
    encoded = backend("a")["input_ids"]
    opens = encoded[0] if encoded[:1] != plain[:1] else None
    end = encoded[-1] if encoded[-1:] != plain[-1:] else None
    for source in (network.config, backend):
        if end is None:
            end = getattr(source, "eos_token_id", None)
    if not isinstance(end, int):
        raise ModelError(
            f"{name}: neither its tokenizer nor its configuration says which token closes a text "
            "(eos_token_id)"
        )
    return opens, end
