"""Answers on some heads: of a run as it is, or of a model that is read for them alone."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from headscope.arguments import FLAG, NAME, NAMES, Kind, either, maybe, takes
from headscope.errors import ModelError, RunError
from headscope.heads import parse_head
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.readable import readable
from headscope.paths import exists
from headscope.relations import QUICK, relations_of
from headscope.relations.relation import Relation
from headscope.runs.atlas import atlas_of, is_stored
from headscope.runs.resolve import A_MODEL, A_RUN
from headscope.runs.store import load
from headscope.settings import Settings, settings_of
from headscope.statistics.reasons import head_in
from headscope.statistics.result import Result
from headscope.studies.answers.answers_result import HeadAnswers
from headscope.studies.answers.claim import Claim

Head = tuple[int, int]
"""A layer and the number of a head in it."""


def _head_names(value: Any) -> tuple[str, ...]:
    names = value.replace(",", " ").split() if isinstance(value, str) else value
    return tuple(dict.fromkeys(NAMES.plain(names)))


HEAD_NAMES = Kind("names of heads, such as ['L5H1', 'L6H9'] or 'L5H1,L6H9'", _head_names)


@takes(model=either(A_RUN, A_MODEL), heads=HEAD_NAMES, claim=maybe(NAME), measure=FLAG)
def why(
    model: Any,
    heads: Sequence[str] | str,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    claim: str | None = None,
    measure: bool = False,
    progress: Progress = True,
    **changes: Any,
) -> HeadAnswers:
    """Say in five lines each what some heads do, with one of their best queries.

    A run answers as it is, and so does the name of a model whose atlas ships. Any other model is
    read as `classify` with `quick=True` does, but for the layers of these heads alone, and not
    beyond the last of them. A text or a setting has the model of an atlas read, too.

    Args:
        model: a run or its folder, or a model as for `classify`.
        heads: their names, such as `L5H1`.
        corpus: the text of a model that is read; `gum`, which ships, when None.
        claim: a head type, or `type/relation`, that a list says the heads have: each gets a verdict
            on it.
        measure: read the model, though its atlas ships.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all.
        changes: settings of a model that is read, such as `max_tokens=20_000`; see `hs.Settings`.

    Raises:
        ChoiceError: the claim is no head type, and no relation of one.
        RunError: the model has no such head, the run did not ask for the claim, or a text or a
            setting was given for a run.
        ModelError: it is neither a run nor a model that can be loaded.
        CorpusError: the text cannot be read.

    >>> answers = why("atlas:mini", "L5H3, L4H3", claim="induction")
    >>> answers.table["claim_verdict"].tolist()
    ['holds', 'another type']
    """
    names = _head_names(heads)
    for name in names:
        parse_head(name)
    asked_claim = None if claim is None else Claim(claim)
    if asked_claim is not None:
        asked_claim.check()
    run = stored_run(model, measure=measure, explicit=[*["corpus"][: corpus is not None], *changes])
    is_measured = run is None
    if run is None:
        settings = settings_of(Settings(quick=True), changes)
        reading = _Reading(model, corpus, settings, asked_claim)
        run = reading.run(names, progress=progress)
    if asked_claim is not None:
        asked_claim.check_asked(run)
    places = tuple(dict.fromkeys(head_in(run, name) for name in names))
    return HeadAnswers(run, places, asked_claim, is_measured)


def stored_run(model: Any, *, measure: bool = False, explicit: Sequence[str] = ()) -> Result | None:
    """The run that answers as it is; None for a model that is to be read.

    Args:
        model: a run, a run folder, or what stands for a model.
        measure: read the model, though its atlas ships.
        explicit: names of what was given for a reading.

    Raises:
        RunError: the run cannot be read, or something was given for a reading of it.
    """
    if isinstance(model, Result):
        run: Result | None = model
    elif not isinstance(model, str | Path):
        return None
    else:
        folder = Path(model)
        with suppress(RuntimeError):  # a home that nobody has: the loader says so
            folder = folder.expanduser()
        if is_stored(folder):
            run = load(folder)
        elif atlas_of(model) is not None and not (measure or explicit):
            run = load(model)
        elif exists(folder) and folder.is_dir() and not any(folder.glob("*config.json")):
            run = load(folder)  # which says what is missing there
        else:
            run = None
    for_reading = [*explicit, *["measure"][:measure]]
    if run is not None and for_reading:
        raise RunError(
            f"{', '.join(for_reading)}: a run is read as it is; give the name of its model, "
            f"{run.name}, to read that"
        )
    return run


class _Reading:
    """A model that is to be read for some heads."""

    def __init__(
        self,
        model: Any,
        corpus: str | Path | Sequence[str | Path] | None,
        settings: Settings,
        claim: Claim | None,
    ) -> None:
        self.model, self.settings, self.claim = model, settings, claim
        self.corpus = readable(corpus, seed=settings.seed)

    def run(self, names: Sequence[str], *, progress: Progress) -> Result:
        """The run of these heads' layers.

        Raises:
            RunError: the model has no such head.
        """
        # importing a model library takes seconds: not before it is needed
        from headscope.classification import classify
        from headscope.measure.some_heads import SomeHeads
        from headscope.models.model_kinds import check_head_exists

        backend = SomeHeads()
        try:
            with progress_bar(progress):
                opened = backend.open(self.model, **self.settings.loading())
        except ModelError as error:
            raise self._neither(error) from error
        heads = [parse_head(name) for name in names]
        for head in heads:
            check_head_exists(opened, *head)
        backend.heads = set(heads)
        return classify(
            self.model,
            self.corpus or None,
            settings=self.settings,
            relations=self._relations(opened),
            progress=progress,
            backend=backend,
        )

    def _neither(self, error: ModelError) -> ModelError:
        """The error for what is no model; a path that is not there may have been meant as a run."""
        is_path = isinstance(self.model, str | Path) and not exists(Path(self.model))
        return ModelError(f"{error}; nor is it a run folder") if is_path else error

    def _relations(self, model: Any) -> Sequence[Relation] | None:
        """Those of a quick run and of the claim; None if the settings name all."""
        types, kind = self.settings.types, model.attention_kind
        if self.claim is None:
            return None
        if self.claim.type in (types or QUICK):
            return None
        quick = relations_of(types, kind, quick=True)
        claimed = [r for r in relations_of([self.claim.type], kind) if r not in quick]
        return [*quick, *claimed]
