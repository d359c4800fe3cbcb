"""What it is worth that heads attend differently: all heads of a layer get one pattern.

Each head keeps its own values and its own output matrix; only where it looks is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from headscope.arguments import either, kinds_of, takes
from headscope.measure.text_loss import MAX_LENGTH, MAX_TOKENS
from headscope.runs.named import A_MODEL, A_RUN, Named
from headscope.runs.reload import model_or_run
from headscope.studies.collapse.layer_losses import Change, layer_losses
from headscope.studies.collapse.mixing import NO_MIXING, without_mixing
from headscope.studies.collapse.one_pattern import WAYS, collapsed
from headscope.studies.collapse.result import Collapse


@takes(model=either(A_RUN, A_MODEL), **kinds_of(Named))
def collapse(
    model: Any,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    mixing: bool = False,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **named: Unpack[Named],
) -> Collapse:
    """The loss of a model whose heads share one pattern, layer by layer and in all layers.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when empty.
        mixing: also put an identity in W_O's place, as the way `no W_O`; see
            `headscope.studies.collapse.mixing`.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files and the bootstrap.
        progress: called with the tokens done and the tokens in all passes.
        named: `revision`, a branch, tag or commit on the hub, for a name; `device`, `cpu`, `cuda`,
            …, where `auto`, the default, takes a GPU when there is one.

    Returns:
        A table as of `layer_losses`, with a row per layer × way in `WAYS`. A rise of 0 says that
        the heads of the layer might as well have had one pattern.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine, or its
            heads together are not as wide as the residual stream and W_O is to be an identity.
        CorpusError: the text cannot be read.
    """
    loaded, _ = model_or_run(model, longest=MAX_LENGTH, **named)
    ways: dict[str, Change] = {how: partial(collapsed, how=how) for how in WAYS}
    if mixing:
        ways[NO_MIXING] = partial(without_mixing, loaded.name)
    losses = layer_losses(loaded, ways, corpus, max_tokens=max_tokens, seed=seed, progress=progress)
    return Collapse(loaded.name, losses)
