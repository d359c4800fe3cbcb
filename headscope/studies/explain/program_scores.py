"""Score a user's programs, a function per head, beside feature models and the first token alone."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from headscope.causal.head_set import Head
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, first_line
from headscope.heads import head_name, parse_head
from headscope.measure.batches import give_back
from headscope.options import Device, PathName, Revision, Seed
from headscope.paths import given_file, resolved
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import ModelOrRun
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.content import LayerRows, stream_rows
from headscope.studies.explain.explanation import (
    FEATURES,
    WINDOWS,
    FeatureLimit,
    TextSource,
    WindowLimit,
    model_and_corpora,
    read_split_windows,
)
from headscope.studies.explain.feature_model import explain_layer
from headscope.studies.explain.fit import Selector
from headscope.studies.explain.pattern_scores import SCORES, PatternPair, PatternScores, scores
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_result import StudyResult

_MODULE = "headscope_programs"


@dataclass(frozen=True)
class Program:
    """A function that computes a head's pattern."""

    name: str
    """Name of the head."""
    file: Path
    function: Callable[[list[str]], Any]
    """A function from the tokens of a window, the first one included, to `[query key]` ≥ 0."""

    def pattern(self, window: Window) -> Float[ndarray, "query key"]:
        """The pattern over the keys that each query sees; a row sums to 1, or is 0 throughout.

        Raises:
            HeadscopeError: the function fails, or returns something else than such an array.
        """
        tokens = list(window.strings)
        with _reported(self.file, f"{self.name} fails"):
            result = np.asarray(self.function(tokens), dtype=float)
        size = len(tokens)
        # a row that is negative or not finite would spread to all scores
        is_valid = np.isfinite(result) & (result >= 0)
        if result.shape != (size, size) or not is_valid.all():
            raise HeadscopeError(
                f"{self.file!s:.200}: {self.name} returns an array of shape {result.shape} with "
                f"{(~is_valid).sum()} values that are negative or not finite; it should return "
                f"shape ({size}, {size}), query by key, and values ≥ 0"
            )
        # keys that the model does not see count for nothing
        visible = result * ~window.attention_kind.hidden(size)
        mass = visible.sum(-1, keepdims=True)
        rows: ndarray = np.divide(visible, mass, out=np.zeros_like(visible), where=mass > 0)
        return rows


def read_programs(path: Path) -> dict[Head, Program]:
    """Run a Python file, and return its functions whose names are heads, such as `L5H1`.

    Modules beside the file can be imported by it.

    Raises:
        HeadscopeError: the file cannot be read or run, or has no such function.
    """
    names = _run(path)
    programs: dict[Head, Program] = {}
    for name, value in names.items():
        if not callable(value):
            continue
        try:
            head = parse_head(name)
        except HeadscopeError:
            continue  # a helper of the programs
        programs[head] = Program(name=head_name(*head), file=path, function=value)
    if not programs:
        raise HeadscopeError(
            f"{path!s:.200}: no function for a head; name one as its head, such as L5H1"
        )
    return programs


def _run(path: Path) -> Mapping[str, Any]:
    """The names that a Python file defines."""
    given_file(path, "for programs a Python file with a function per head")  # refuses a pipe
    folder = str(resolved(path).parent)
    sys.path.insert(0, folder)
    try:
        with _reported(path, "this file of programs cannot be run"):
            return run_path(str(path), run_name=_MODULE)
    finally:
        sys.path.remove(folder)


@contextmanager
def _reported(path: Path, what: str) -> Iterator[None]:
    """Turn an error of the user's code into one with its line."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit would end the command as if it had done its work
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(path)]
        line = f", line {lines[-1]}" if lines else ""
        raise HeadscopeError(
            f"{path!s:.200}{line}: {what}: {type(error).__name__}: {first_line(error):.200}"
        ) from error


SMOOTHING = 0.01
"""Share of uniform attention in the patterns whose bits are scored, except for feature models."""

STUDY = Study(
    rows="head and explanation",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        explanation | `program`, `feature model` or `first token` | what gives the pattern
    """)
    + SCORES,
    bad_call={"programs": "no-such-file.py"},
)


@study(STUDY)
def score_programs(
    model: ModelOrRun,
    programs: Annotated[
        PathName,
        Field(
            description="A Python file of your own, which is run: a function per head, named such "
            "as L5H1, from a list of tokens to a pattern, query by key."
        ),
    ],
    corpus: TextSource = None,
    *,
    features: FeatureLimit = FEATURES,
    windows: WindowLimit = WINDOWS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Score programs of heads beside their feature models, with and without the first token.

    The file is run as Python code: use only files that you trust. Its functions are called with the
    tokens of a window as text, of which the first is usually the beginning-of-text token. They
    return an array `[query key]` ≥ 0. Later keys than the query are ignored and rows are
    normalised; a row of zeros counts as uniform in `explained`, and has no attention in the other
    scores. Other functions of the file are helpers.

    For `explained`, programs and the first token are mixed with 1 % of uniform attention, because
    the divergence is infinite where an explanation has no attention and the head has.

    Raises:
        HeadscopeError: the file cannot be run, has no function for a head, or a function returns no
            such array.
        RunError: the model has no such head.
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or is too short.
    """
    # programs are read first, as they may be wrong
    program_of_head = read_programs(Path(programs))
    loaded, corpora = model_and_corpora(model, corpus, revision=revision, device=device, seed=seed)
    for head in program_of_head:
        loaded.check_head(*head)
    split, notes = read_split_windows(loaded, corpora, windows=windows, seed=seed)
    texts = Texts.of(split, relations_of([ALL], loaded.attention_kind))
    # a layer at a time, as its patterns are large
    scorer = _Scorer(texts, Selector(texts), program_of_head, features)
    rows: list[dict[str, object]] = []
    with progress_bar(progress, "scoring programs", unit="layers") as bar:
        steps = Steps(bar, len(loaded.attention_layers))

        def score(layer: LayerRows) -> None:
            rows.extend(scorer.rows(layer))
            give_back()
            steps.advance()

        stream_rows(loaded, texts, score)
    table = pd.DataFrame(rows, columns=STUDY.names)
    of_programs = table[table["explanation"] == "program"]
    mean = of_programs[["iou", "iou_rest"]].mean()
    return StudyResult(
        title=f"{loaded.name}: programs have an intersection over union of {mean['iou']:.2f}, and "
        f"of {mean['iou_rest']:.2f} without the first token, mean over {len(of_programs)} heads",
        table=table,
        notes=notes,
        values=mean.to_dict(),
    )


@dataclass(frozen=True, eq=False)
class _Scorer:
    """Explanations of the heads that have a program, scored layer by layer."""

    texts: Texts
    selector: Selector
    programs: Mapping[Head, Program]
    features: int

    def rows(self, all_heads: LayerRows) -> list[dict[str, object]]:
        """The rows of the heads of a layer that have programs."""
        layer = all_heads.layer
        heads = sorted(head for of_layer, head in self.programs if of_layer == layer)
        if not heads:
            return []
        of_heads = all_heads.of(heads)
        # a feature model of each head with a program, on the same rows
        models = explain_layer(self.texts, self.selector, of_heads, features=self.features)
        rows = []
        for head, attention_of_head, fitted in zip(heads, of_heads.attention, models, strict=True):
            judged = attention_of_head[self.texts.judged]
            # the first token alone is what most heads attend to, so that any program must explain
            # more than this
            pattern = torch.zeros_like(judged)
            pattern[:, 0] = 1
            by_explanation = {
                "program": self._scores(judged, self._by_program((layer, head))),
                "feature model": fitted.scores,
                "first token": self._scores(judged, pattern),
            }
            for explanation, agreement in by_explanation.items():
                names = {"layer": layer, "head": head, "explanation": explanation}
                rows.append(names | agreement.columns())
        return rows

    def _scores(self, attention: Tensor, pattern: Tensor) -> PatternScores:
        seen = self.texts.seen[self.texts.judged]
        return scores(PatternPair(attention, pattern, seen), smoothing=SMOOTHING)

    def _by_program(self, head: Head) -> Float[Tensor, "row key"]:
        """The program's pattern on the rows that judge."""
        texts = self.texts
        window_of_row = texts.window[texts.judged].numpy()
        query_of_row = texts.query[texts.judged].numpy()
        pattern = np.zeros((len(window_of_row), texts.width))
        for index in np.unique(window_of_row):
            window = texts.windows[index]
            is_here = window_of_row == index
            of_window = self.programs[head].pattern(window)
            pattern[is_here, : len(window)] = of_window[query_of_row[is_here]]
        return torch.from_numpy(pattern).float()
