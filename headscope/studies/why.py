"""Short answers on single heads: of a run, or of a model whose layers are read for these heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from headscope.errors import RunError
from headscope.heads import head_name, layer_name, parse_head
from headscope.measure.example import Example
from headscope.options import Corpus, Head, HeadNames, Name, checked, several_heads
from headscope.printing import one_line
from headscope.progress import Progress, progress_bar
from headscope.resolve import ModelOrRun, load, run_named
from headscope.runs.atlas import atlas_of
from headscope.runs.recorded_paths import name_of
from headscope.runs.task_results import task_circuits
from headscope.settings import Settings, settings_of
from headscope.statistics.columns import PRELIMINARY, rows_of_head
from headscope.statistics.condition import Row
from headscope.statistics.general_labels import distinct_tags, tag_names
from headscope.statistics.in_words import findings, marked_names, numbers_of_head, title_of_head
from headscope.statistics.reasons import head_in
from headscope.statistics.result import Result, by_name
from headscope.statistics.tags import evidence_order
from headscope.stimuli.natural_text import readable
from headscope.studies.study import Study, study, table_columns
from headscope.views.head_account import account
from headscope.views.study_result import StudyResult

NUMBERS = (
    *("mass", "control", "lift", "ci_low", "ci_high", "q_value", "n", "hit_rate"),
    *("baseline", "baseline_rate", "hard_n", "hard_rate"),
)
"""Columns of the evidence that the table has."""
MARKS_MEAN = "best query: its mass, [[query]], «target»; …: omitted tokens"
WIDTH = 68
"""Characters of an example, if the query and one target fit."""
TARGETS, CONTEXT = 2, 6


STUDY = Study(
    rows="head",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        tags | `type/relation`, joined by `;` | the head's tags, the primary one first
        preliminary | `type/relation`, joined by `;` | those that rest on little text
        relation | `type/relation` | the relation that the columns below are about
        verdict | as in `evidence.csv` | verdict on this relation
        mass | [0, 1] | mean attention on the targets
        control | ≥ 0 | mean attention on the control keys
        lift | at most 1 | mass − control
        ci_low, ci_high | at most 1 | ends of the lift's 95 % interval
        q_value | [0, 1] | one-sided test of a lift above 0, Benjamini–Hochberg over measured heads
        n | count, ≥ 1 | queries
        hit_rate | [0, 1] | share of queries whose strongest key is a target
        baseline | a baseline's name | the best baseline; empty if none is to be beaten
        baseline_rate | [0, 1] | share of queries that it gets right
        hard_n | count, ≥ 0 | compared queries where it is wrong
        hard_rate | [0, 1] | mean preference for the target at these
        example | text | mass and text of one of the head's best queries: `[[query]]`, `«target»`
    """),
    bad_call={"heads": ""},
)


@study(STUDY)
def why(
    model: ModelOrRun,
    heads: Annotated[HeadNames, Field(description="Heads such as L5H1, 5.1 or (5, 1).")],
    corpus: Corpus = None,
    *,
    progress: Progress = True,
    **changes: Any,
) -> HeadAnswers:
    """Describe heads in a few lines each: tags, evidence, near misses and an example.

    A run, and a model whose atlas ships, are read. Any other model is measured as
    `classify` with `quick=True` does, but only the layers of these heads and those before them.

    Raises:
        RunError: the model has no such head, or a text or a setting was given for a run.
        ModelError: neither a run nor a model that can be loaded.
        CorpusError: the text cannot be read.

    >>> answers = why("atlas:mini", "L5H3, L4H3")
    >>> answers.table["tags"].str.split(";").str[0].tolist()
    ['induction/repeat', 'positional/offset-1-random']
    """
    names = several_heads(heads)
    explicit = list(changes) if corpus is None else ["corpus", *changes]
    # a stored run answers as it is; it is not measured again with another text or setting
    run = run_named(model, revision=None)
    if run is None and not explicit and isinstance(model, str | Path):
        run = load(model) if atlas_of(model) is not None else None
    if run is not None and explicit:
        raise RunError(
            f"{', '.join(explicit)}: a run is not measured again; name its model, "
            f"{run.name}, to measure it"
        )
    # a model without a run is read quickly, and only for these heads
    is_measured = run is None
    if run is None:
        settings = settings_of(Settings(quick=True), changes)
        run = _read(model, corpus, settings, names, progress)
    # one answer per head, in the order asked
    positions = tuple(dict.fromkeys(head_in(run, name) for name in names))
    evidence = run.evidence_with_thresholds
    circuits = task_circuits(model, name_of(run.name))
    answers = [_answer(run, evidence, at, circuits) for at in positions]
    notes = list(_notes(run, positions if is_measured else ()))
    if any(answer.row["example"] for answer in answers):
        notes.append(MARKS_MEAN)
    texts = [answer.text for answer in answers]
    title = ", ".join(head_name(*at) for at in positions)
    return HeadAnswers(
        title=f"{name_of(run.name)}: {title}",
        table=by_name(pd.DataFrame([answer.row for answer in answers])),
        notes=notes,
        run=run,
        is_measured=is_measured,
        text="\n\n".join([*texts, "\n".join(notes)]),
    )


@dataclass(frozen=True)
class _Answer:
    """The row of a head, and its lines."""

    row: dict[str, object]
    text: str


def _answer(
    run: Result,
    evidence: pd.DataFrame,
    at: tuple[int, int],
    circuits: Sequence[Mapping[str, Any]],
) -> _Answer:
    # the strongest evidence first
    of_head = rows_of_head(evidence, *at)
    ordered = of_head.loc[evidence_order(of_head)]
    first: Row = {str(name): value for name, value in ordered.iloc[0].items()}
    shown_tags = distinct_tags(ordered)
    # several relations with one general label are one tag
    names = tag_names(shown_tags)
    tags = marked_names(shown_tags, names)
    best = _best(run, at, first)
    # what was found, numbers, tasks, and an example if there is one
    lines = [f"{head_name(*at)}: {title_of_head(ordered, tags)}"]
    lines += findings(ordered, run.thresholds)
    lines += numbers_of_head(ordered)
    lines += _tasks(circuits, head_name(*at))
    if best:
        lines.append(f"best query: {best}")
    row = {
        "layer": at[0],
        "head": at[1],
        "tags": ";".join(names),
        PRELIMINARY: ";".join(names[shown_tags[PRELIMINARY]]),
        "relation": first["id"],
    }
    for name in ("verdict", *NUMBERS):
        row[name] = first[name]
    row["example"] = best
    return _Answer(row=row, text="\n  ".join(lines))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class HeadAnswers(StudyResult):
    """Answers on some heads of a model; printed, a few lines on each head."""

    run: Result
    """The run with the evidence. If a model was read for these heads, it has all heads of their
    layers, and its verdicts are preliminary."""
    is_measured: bool
    """True if the model was read for these heads alone."""
    text: str
    """Lines on each head, then the notes."""

    @checked
    def why(self, head: Head, relation: Name | None = None) -> str:
        """Every condition of a head's tags with its number; see `headscope.Run.why`."""
        return account(self.run, head, relation)

    def __str__(self) -> str:
        return self.text


def _read(
    model: Any,
    corpus: Any,
    settings: Settings,
    names: Sequence[str],
    progress: Progress,
) -> Result:
    """Classify the heads of these heads' layers."""
    # importing a model library takes seconds
    from headscope.models.last_model import LastModel
    from headscope.run import classify

    heads = [parse_head(name) for name in names]
    corpus = readable(corpus, seed=settings.seed)
    backend = LastModel()
    with progress_bar(progress):
        opened = backend.open(model, **settings.loading())
    for head in heads:
        opened.check_head(*head)
    backend.heads = set(heads)
    return classify(model, corpus or None, settings=settings, progress=progress, backend=backend)


def _tasks(circuits: Sequence[Mapping[str, Any]], name: str) -> Iterator[str]:
    """A line on each task whose circuit has the head."""
    for circuit in circuits:
        for head in circuit["heads"]:
            if head["name"] == name and head["in_circuit"]:
                effect = head["effect"]["mean"]
                first = next(iter(head["sentences"]), f"{name}: no edge was described")
                task = circuit["task"]
                yield (
                    f"in the circuit of the task {task['name']} ({effect:+.2f} {task['unit']} "
                    f"without it): {first.partition(': ')[2]}"
                )


def _notes(run: Result, measured: Sequence[tuple[int, int]]) -> Iterator[str]:
    """The text that was read, and the relations that it cannot decide."""
    info = run.info
    corpora = info.get("corpora", {})
    text = ", ".join(corpora.get("asked", ())) or "synthetic stimuli"
    read = info.get("text_read") or {}
    if read.get("tokens"):
        text = f"{read['tokens']:,} tokens of {text}"

    # a model that was read for some heads alone has other q values than a run
    scope = ""
    if measured:
        numbers = sorted({layer for layer, _ in measured})
        layers = ", ".join(layer_name(layer) for layer in numbers)
        scope = f"; {layers} only: q values correct for their heads"
    yield f"read: {one_line(name_of(run.name))}, {one_line(text)}{scope}"
    # a quick run leaves tests out, so that its verdicts are preliminary
    added = info.get(PRELIMINARY, ())
    if added:
        yield f"{PRELIMINARY}, not measured: {'; '.join(added)}"
    decidable = info.get("decidable")
    if decidable:
        yield (
            f"this text can decide {decidable['relations']} of {decidable['of']} relations that "
            "can give tags"
        )
    # warnings alone: they begin in capitals
    for note in info.get("notes", ()):
        if note[:12].isupper():
            yield f"note: {note}"


def _best(run: Result, at: tuple[int, int], row: Row) -> str:
    """One of the head's best queries in a line, with its mass; empty if no example was read."""
    examples = []
    for example in run.examples:
        if (example.layer, example.head) == at and example.kind == "best":
            examples.append(example)
    if not examples:
        return ""
    of_relation = [example for example in examples if example.relation == row["id"]]
    best = max(of_relation or examples, key=lambda example: example.mass)
    about = "" if of_relation else f" ({best.relation})"
    return f"{best.mass:.2f}{about} {short_example(best)}"


def short_example(example: Example, width: int = WIDTH) -> str:
    """The query in [[ ]], its targets in « », and as much context as fits; … marks a gap."""
    # shorter context first, then fewer targets, until the line fits
    row = example.pattern[example.query]
    targets = sorted(example.targets, key=lambda at: -row[at])[:TARGETS]
    line = ""
    for count in range(len(targets), 0, -1):
        for context in range(CONTEXT, -1, -1):
            parts = []
            before = -1
            # tokens up to `context` before or after the query and its targets, in order
            last = len(example.tokens) - 1
            indices: set[int] = set()
            for centre in (example.query, *targets[:count]):
                first = max(0, centre - context)
                end = min(last, centre + context) + 1
                indices.update(range(first, end))
            for index in sorted(indices):
                token = example.marked(index)
                if example.positions[index] != before + 1:
                    token = f" … {token.lstrip(' ')}"
                parts.append(token)
                before = example.positions[index]
            if before + 1 != example.length:
                parts.append(" …")
            line = "".join(parts).strip()
            if len(line) <= width:
                return line
    return line
