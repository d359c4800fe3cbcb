"""Update the pages of measured models: `python -m docs.model_pages [RUN…]`.

A page in `docs/results/` has text by hand, and blocks between marks that this module writes. A run
is `atlas:NAME` or a run folder; the default is every atlas that ships. The page has the name of the
folder. A model without a page gets a new one, and each page a picture of the atlas.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable, Hashable, Iterator, Sequence
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import headscope as hs
from docs.generate import between_marks, table, write
from headscope.corpus.shipped import corpus_title, data_folder
from headscope.heads import head_name
from headscope.measure.example import Example
from headscope.models.packaged import PACKAGED
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.atlas import PREFIX, atlas_names
from headscope.runs.write import write_file
from headscope.statistics.general_labels import distinct_tags, shown_relations
from headscope.statistics.in_words import findings
from headscope.statistics.tags import (
    INCONCLUSIVE,
    NO,
    UNIDENTIFIABLE,
)
from headscope.studies.verify import masses_of, published_name, scores_that_ship

PAGES = Path(__file__).parent / "results"
START = Path(__file__).parent / "index.md"
"""The page with the table of all models."""
CLARK = "bert-base"
"""The model of `data/known_heads.csv` whose heads Clark et al. 2019 describe."""
TELLING = 1
NONE = "- none"
REJECTED = "Rejected in every head: "
"""Beginning of the line of types without a tag or an open verdict."""
HALF = 0.5
LIKELY = 0.9
"""Probability from which on a page counts a tag as likely on another text."""
FOLDED = 76
"""Characters of a line of an example."""
_LAST = ("sink", "positional", "lexical")
"""Types whose examples come last, because every model has them."""
_NEW_PAGE = """# {title}

![The atlas: layers × heads, each in the colour of its type]({name}.png)

<!-- generated: facts -->
<!-- end of facts -->

## Tags

<!-- generated: tags -->
<!-- end of tags -->

## Example heads

<!-- generated: telling -->
<!-- end of telling -->
"""
_COMPARISON = """
## Published scores

<!-- generated: published -->
<!-- end of published -->

![A point per head: the published score and ours, a panel for each metric]({name}-published.png)
"""


def facts(run: hs.Run) -> str:
    """A sentence on the model and what was read."""
    model, read = run.info["model"], run.info["text_read"]
    corpora = ", ".join(corpus_title(str(corpus)) for corpus in run.info["corpora"]["asked"])
    decidable = run.info["decidable"]
    return (
        f"{model['layers']} layers × {model['heads']} heads, {model['architecture']}. Measured on "
        f"{read['tokens']:,} tokens of {corpora} and on synthetic stimuli. The text can decide "
        f"{decidable['relations']} of {decidable['of']} relations."
    )


def tags(run: hs.Run) -> str:
    """A line per head type with a tag or an open verdict, and one that names the other types."""
    evidence = run.evidence_with_thresholds
    asked = evidence[evidence["taggable"].astype(bool) & (evidence["n"] >= MIN_QUERIES)]
    rows = []
    rejected = []
    for name, members in asked.groupby("type", sort=False):
        if (members["verdict"] == NO).all():
            rejected.append(str(name))
            continue
        tagged = members[members["tagged"].astype(bool)]
        likely = str((tagged["replicates"] >= LIKELY).sum())
        rows.append(
            (
                str(name),
                str(len(tagged.drop_duplicates(["layer", "head"]))),
                str(len(tagged)),
                likely if len(tagged) else "–",
                str((members["verdict"] == INCONCLUSIVE).sum()),
                str((members["verdict"] == UNIDENTIFIABLE).sum()),
            )
        )
    titles = (
        "type",
        "heads",
        "tags",
        f"replicates ≥ {LIKELY:g}",
        "inconclusive",
        "not identifiable",
    )
    lines = table(titles, rows)
    if rejected:
        lines += ["", f"{REJECTED}{', '.join(rejected)}."]
    return "\n".join(lines)


def telling(run: hs.Run) -> str:
    """Heads that prefer targets most at hard queries, each of another type."""
    evidence = run.evidence_with_thresholds
    held = distinct_tags(evidence)
    pictured = {(each.layer, each.head, each.relation) for each in run.examples}
    is_shown = [(row.layer, row.head, row.id) in pictured for row in held.itertuples()]
    held = held[np.array(is_shown, bool)].assign(  # a plain empty list would select columns
        plain=held["type"].isin(_LAST), hard_rate=held["hard_rate"].fillna(-1)
    )
    order = ["plain", "hard_rate", "lift"]
    held = held.sort_values(order, ascending=[True, False, False], kind="stable")
    held = held.drop_duplicates("type").drop_duplicates(["layer", "head"]).head(TELLING)
    return "\n\n".join(_head(run, row) for _, row in held.iterrows()) or NONE


def clark(run: hs.Run) -> str:
    """Heads of BERT-base (Clark et al. 2019) and the best heads of this model, by arg-max."""
    known = pd.read_csv(data_folder() / "known_heads.csv")
    rows = []
    for published in known[known["model"] == CLARK].itertuples():
        kind, relation = published.relation.split("/")
        own = run.evidence[(run.evidence["type"] == kind) & (run.evidence["relation"] == relation)]
        if own.empty or pd.isna(own["hit_rate"]).all():
            continue
        best = own.loc[own["hit_rate"].idxmax()]
        offset = re.search(r"offset (0\.[0-9]{3})", published.source)
        rows.append(
            (
                published.type,
                f"{published.layer + 1}-{published.head + 1}: {float(published.score):.3f}",
                offset[1] if offset else "–",
                f"`{relation}`, {best['n']:,.0f}",
                f"{head_name(int(best['layer']), int(best['head']))}: {best['hit_rate']:.2f}",
                f"{best['baseline_rate']:.2f}",
            )
        )
    titles = (
        "Clark et al.",
        "their head",
        "their offset",
        "our relation, queries",
        "best head",
        "baseline",
    )
    return "\n".join(table(titles, rows))


def clark_places(run: hs.Run) -> str:
    """Findings of Clark et al. 2019 on positions (3.1, 3.2), and the same masses of this model."""
    evidence = run.evidence.set_index(["type", "relation"]).sort_index()

    def over_half(relation: str) -> str:
        mass = evidence.loc[("positional", relation)].set_index(["layer", "head"])["mass"]
        heads = [f"{head_name(*key)} {value:.2f}" for key, value in mass.items() if value > HALF]
        return f"{len(heads)} of {len(mass)}: {', '.join(heads) or 'none'}"

    def by_layer(relation: str) -> str:
        mass = evidence.loc[("sink", relation)].groupby("layer")["mass"].mean()
        return f"at most {mass.max():.2f} (layer {mass.idxmax()}, mean of its heads)"

    rows = [
        ("previous token, over half of the attention", "4 of 144", over_half("offset-1")),
        ("next token, over half of the attention", "5 of 144", over_half("offset+1")),
        ("[SEP]", "over half in layers 6 to 10", by_layer("separator")),
        ("[CLS]", "early heads", by_layer("first-token")),
    ]
    return "\n".join(table(("attention on", "BERT-base", "here"), rows))


def published(run: hs.Run) -> str:
    """A line per published metric and relation, with their agreement."""
    rows = []
    for row in hs.verify(run).table.to_dict("records"):
        rows.append(
            (
                f"`{row['metric']}`",
                f"`{row['relation']}`",
                _correlation(row, "spearman"),
                _correlation(row, "within_layers"),
                f"{row['spearman_control']:.2f}",
                f"{row['shared']} of {row['top']} ({row['shared_control']:.1f})",
            )
        )
    titles = (
        "published",
        "ours",
        "ρ over heads",
        "mean ρ within layers",
        "ρ if permuted",
        "first heads shared (if permuted)",
    )
    return "\n".join(table(titles, rows))


def _correlation(row: dict[Hashable, Any], name: str) -> str:
    """A rank correlation with its 95 % interval."""
    return f"{row[name]:.3f} ({row[f'{name}_low']:.2f} … {row[f'{name}_high']:.2f})"


def published_picture(run: hs.Run) -> Figure:
    """A panel per published metric and relation, with a point for each head."""
    ranks = hs.verify(run).table.to_dict("records")
    scores = scores_that_ship()
    model = published_name(str(run.info["model"]["name"]), sorted(set(scores["model"])))
    scores = scores[scores["model"] == model].sort_values(["layer", "head"])
    columns = 3
    lines = ceil(len(ranks) / columns)
    figure = Figure(figsize=(7.2, 2.4 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, row in zip(panels, ranks, strict=False):
        is_row = (scores["metric"] == row["metric"]) & (scores["revision"] == row["revision"])
        masses = masses_of(run, row["relation"])
        assert masses is not None  # verify has compared them
        axes.plot(scores[is_row]["value"], masses.ravel(), "o", ms=3, alpha=0.6)
        axes.set_title(f"{row['metric']}, ρ = {row['spearman']:.2f}", fontsize=8)
        axes.set_xlabel("published", fontsize=7)
        axes.set_ylabel(row["relation"], fontsize=7)
        axes.tick_params(labelsize=6)
    for axes in panels[len(ranks) :]:
        axes.set_axis_off()
    return figure


BLOCKS: dict[str, Callable[[hs.Run], str]] = {
    "facts": facts,
    "tags": tags,
    "telling": telling,
    "clark": clark,
    "places": clark_places,
    "published": published,
}
"""Functions that write the blocks of a page, by the name between the marks."""


def with_blocks(text: str, run: hs.Run, *, file: str) -> str:
    """A page with its blocks written from the run."""
    for name, make in BLOCKS.items():
        if f"generated: {name}" in text:
            text = between_marks(text, name, make(run), file=file)
    return text


def overview() -> str:
    """Tags of each type on all pages, and how many of them another text likely gives too."""
    listed = (PAGES / "index.md").read_text("utf-8")
    names = re.findall(r"^\| \[.+?\]\((.+?)\.md\)", listed, flags=re.MULTILINE)
    pages = {name: _tag_counts((PAGES / f"{name}.md").read_text("utf-8")) for name in names}
    types = dict.fromkeys(kind for counts in pages.values() for kind in counts)
    rows = []
    untagged = []
    for kind in types:
        counts = [pages[name].get(kind, "not measured") for name in names]
        if set(counts) <= {"0", "not measured"}:
            untagged.append(kind)
        else:
            rows.append((kind, *counts))
    links = [f"[{name}](results/{name}.md)" for name in names]
    lines = table((f"tags, replicates ≥ {LIKELY:g}", *links), rows)
    if untagged:
        lines += ["", f"No head of these models has a tag of: {', '.join(untagged)}."]
    return "\n".join(lines)


def _tag_counts(page: str) -> dict[str, str]:
    """Head type to its number of tags on a page, and of those that another text likely gives."""
    block = re.search(r"generated: tags.*?end of tags", page, flags=re.DOTALL)
    counts: dict[str, str] = {}
    for line in block[0].splitlines() if block else []:
        if line.startswith(REJECTED):
            rejected = line.removeprefix(REJECTED).rstrip(".").split(", ")
            counts |= dict.fromkeys(rejected, "0")
        elif line.startswith("| ") and not line.startswith("| type "):
            kind, _, tagged, likely, *_ = line.strip("| ").split(" | ")
            counts[kind] = "0" if tagged == "0" else f"{tagged}, {likely}"
    return counts


def page_name(run: str) -> str:
    """The name of a run's page: that of the atlas, or of the folder.

    >>> page_name("atlas:mini"), page_name("runs/gemma-3-270m")
    ('mini', 'gemma-3-270m')
    """
    return run.removeprefix(PREFIX) if run.startswith(PREFIX) else Path(run).resolve().name


def write_page(run: hs.Run, file: Path, *, is_compared: bool = False) -> None:
    """Update the page of a run, or write a new one, and its pictures.

    A new page compares the model with published scores if `is_compared`.
    """
    text = file.read_text("utf-8") if file.is_file() else new_page(run, file.stem)
    if is_compared and not file.is_file():
        text += _COMPARISON.format(name=file.stem)
    run.figure().savefig(file.with_suffix(".png"), dpi=110)
    if "generated: published" in text:
        picture = file.with_name(f"{file.stem}-published.png")
        published_picture(run).savefig(picture, dpi=100)
    # whole or not at all: docs/published.py takes a page for the end of its model's work
    write_file(file, with_blocks(text, run, file=str(file)), overwrite=True)


def new_page(run: hs.Run, name: str) -> str:
    """A page without results, whose pictures have this name."""
    title = PACKAGED[run.name].title if run.name in PACKAGED else run.name
    return _NEW_PAGE.format(title=title, name=name)


def _head(run: hs.Run, row: pd.Series) -> str:
    name = head_name(int(row["layer"]), int(row["head"]))
    said = findings(pd.DataFrame([row]), run.thresholds)[0].partition(": ")[2]
    label = f"{row['type']}/{shown_relations(pd.DataFrame([row])).iloc[0]}"
    example = next(
        each
        for each in run.examples
        if (each.layer, each.head, each.relation) == (row["layer"], row["head"], row["id"])
    )
    return f"**{name}**, `{label}`: {said}\n\n```text\n{excerpt(example)}\n```"


def excerpt(example: Example) -> str:
    """An example: `[[query]]`, `«target»`, and the attention on the targets; lines are folded."""
    line = f"{''.join(_marked(example)).strip()}   ({example.mass:.2f} on «…»)"
    return textwrap.fill(line, FOLDED, break_long_words=False, break_on_hyphens=False)


def _marked(example: Example) -> Iterator[str]:
    stretches = {index for index, _, _ in example.gaps}
    for index in range(len(example.tokens)):
        if index in stretches:
            yield " … "
        yield example.marked(index)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", help="run folders or atlas:NAME; all that ship if none")
    runs = parser.parse_args(words).runs or [f"{PREFIX}{name}" for name in atlas_names()]
    for name in runs:
        run = hs.load(name)
        file = PAGES / f"{page_name(name)}.md"
        write_page(run, file)
        print(f"written to {file}")
    text = START.read_text("utf-8")
    write(START, between_marks(text, "overview", overview(), file=str(START)))


if __name__ == "__main__":
    main()
