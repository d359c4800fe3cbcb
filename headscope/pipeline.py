"""The main job, from a model's name to tagged heads, on one screen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from headscope.corpus.plan import Plan, plan_repeats, plan_text
from headscope.data import shipped_corpora
from headscope.errors import CorpusError, HeadscopeError
from headscope.evidence import COLUMNS, LEVEL, MIN_BLOCKS, RESAMPLES, weigh
from headscope.profile import describe
from headscope.relations import relations_of
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.run import Run
from headscope.store import check_free
from headscope.tags import MAX_Q, TIMES_CONTROL, head_table, tag
from headscope.tally import BLOCKS, Tally

MAX_TOKENS = 40_000
MAX_LENGTH = 256
"""Longest window in tokens: long enough for sentences and their antecedents, short enough for
the quadratic part of attention to stay small."""
BATCH_TOKENS = 2_048

Progress = Callable[[int, int], None]


def classify(
    model: str,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    types: Sequence[str] | None = None,
    relations: Sequence[Relation] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    max_tokens: int = MAX_TOKENS,
    max_length: int = MAX_LENGTH,
    seed: int = 0,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    bos: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    Args:
        model: a folder in Hugging Face layout, a `.gguf` file, or a hub name such as `gpt2`.
        corpus: files or folders of CoNLL-U or plain text; what ships with headscope when empty.
        types: head types to score, all when None.
        relations: the relations to score instead of the table's, for types of one's own.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already.
        max_tokens: tokens of text to read at most; the synthetic stimulus comes on top.
        max_length: longest window in tokens, at most the model's context.
        seed: seeds the choice of files, the random tokens, control draws and the bootstrap.
        revision: branch, tag or commit on the hub, e.g. Pythia's `step1000`.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.
        dtype: `float32`, `bfloat16` or `float16`.
        bos: the token to put before each document; the tokenizer's own when None.
        progress: called with the tokens done and the tokens in all.

    Raises:
        HeadscopeError: the model, the corpus, the types or the folder are not usable; each kind
            has its own subclass in `headscope.errors`.
    """
    from headscope.lens import measure
    from headscope.models import load_model

    relations = relations_of(types) if relations is None else relations
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus) or shipped_corpora()
    _check_numbers(max_tokens, max_length)
    if out is not None:
        check_free(Path(out), overwrite=overwrite)
    started = time.perf_counter()
    loaded = load_model(model, revision=revision, device=device, dtype=dtype, bos=bos)
    length = min(max_length, loaded.context)
    plan = _plan(loaded, relations, corpora, max_tokens, length, seed)
    ready = time.perf_counter()
    done = 0

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, plan.tokens)

    advance(0)
    tally = measure(
        loaded, plan.windows, relations,
        seed=seed, batch_tokens=BATCH_TOKENS, progress=advance,
    )  # fmt: skip
    measured = time.perf_counter()
    info = {
        "model": {
            name: getattr(loaded, name)
            for name in (
                "name", "revision", "architecture", "layers", "heads", "key_value_heads",
                "context", "device", "dtype", "weights_sha256",
            )
        },
        "corpora": {"asked": [str(path) for path in corpora], "files": plan.files},
        "settings": {
            "types": sorted({r.type for r in relations}), "max_tokens": max_tokens,
            "max_length": length, "seed": seed, "bos": loaded.tokenizer.bos_string,
        },
        "engine": "lens",
        "notes": plan.notes,
    }  # fmt: skip
    run = finish(
        tally, relations, seed=seed, info=info, kv_group_size=loaded.heads // loaded.key_value_heads
    )
    run.info["provenance"]["seconds"] = {
        "load": round(ready - started, 2),
        "measure": round(measured - ready, 2),
        "judge": round(time.perf_counter() - measured, 2),
    }
    run.info["provenance"]["tokens"] = plan.tokens
    if out is not None:
        run.save(out, overwrite=overwrite)
    return run


def finish(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    info: dict[str, Any],
    kv_group_size: int = 1,
) -> Run:
    """From sums to a run: evidence, tags, heads, and the thresholds they were judged by."""
    rules = {relation.id: relation.rule for relation in relations}
    evidence = weigh(tally, relations, seed=seed)
    if evidence.empty:
        raise CorpusError(
            "no relation found a query: the corpus has no annotation that the asked types need"
        )
    evidence["tagged"] = tag(evidence, rules).to_numpy()
    heads = head_table(evidence, rules, describe(tally.profile), kv_group_size)
    thresholds = {
        "min_queries": MIN_QUERIES, "max_q_value": MAX_Q, "times_control": TIMES_CONTROL,
        "blocks": BLOCKS,
        "min_blocks": MIN_BLOCKS, "interval": LEVEL, "resamples": RESAMPLES,
    }  # fmt: skip
    provenance = {
        "versions": {name: version(name) for name in _PACKAGES},
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    info = {**info, "thresholds": thresholds, "provenance": provenance}
    return Run(heads, evidence[COLUMNS], rules, info, tally)


_PACKAGES = ("headscope", "torch", "transformers", "transformer-lens", "numpy", "pandas", "scipy")


def _plan(
    model: Any,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    max_tokens: int,
    max_length: int,
    seed: int,
) -> Plan:
    stimuli = {relation.stimulus for relation in relations}
    plan = Plan([], {}, [])
    if "text" in stimuli:
        plan = plan_text(
            corpora, model.tokenizer, max_tokens=max_tokens, max_length=max_length, seed=seed
        )
    if "repeat" in stimuli:
        vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
        plan.windows.extend(
            plan_repeats(vocabulary, model.tokenizer, max_length=max_length, seed=seed)
        )
    return plan


def _check_numbers(max_tokens: int, max_length: int) -> None:
    if max_tokens < 1:
        raise HeadscopeError(f"max_tokens is {max_tokens}, but a run reads at least 1 token")
    if max_length < 8:
        raise HeadscopeError(f"max_length is {max_length}; a window of 8 tokens is the shortest")
