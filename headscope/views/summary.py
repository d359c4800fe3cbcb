"""Summaries that `classify` and `heads` print: counts by type, and the strongest heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import pandas as pd
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.heads import head_name, layer_name
from headscope.printing import one_line
from headscope.runs.recorded_paths import name_of
from headscope.settings import not_default
from headscope.statistics.columns import PRELIMINARY
from headscope.statistics.general_labels import shown_relations
from headscope.statistics.head_lists import partial_sinks, strongest, undecided
from headscope.statistics.in_words import CAUTIONS, marked_tag
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TAG, NO_TYPE, UNIDENTIFIABLE
from headscope.stimuli.natural_text import few_documents
from headscope.views.atlas_cells import STAR, atlas_cells, caution_legend, meanings
from headscope.views.colours import colour, is_sink_type, legend_groups, letter
from headscope.views.terminal_tables import plain_table

STRONGEST = 3
FIRST_TAG_MEANS = "The first tag is the primary one; relation and numbers are its own."
CLOSEST_MEANS = (
    "the head has no tag, and this relation comes closest; headscope why names the conditions that "
    "fail"
)
NUMBERS_MEAN = (
    "mass is the share of attention on the relation's targets, control the share on control keys, "
    "lift the difference of the two with its 95 % interval over n queries; hits are the share of "
    "queries whose largest attention is on a target, beside that of the baseline, in per cent"
)
EITHER_MEANS = (
    "either …: every other condition of a tag holds, but the relation and the baseline differ at "
    "too few queries of this text, or its queries lie in too few documents"
)
BELOW_SIGN = "<"
"""Sign after the letter of a head below its baseline."""
COLUMNS = 80
NAMES = 4
"""Columns of the layers' names."""


def summary(run: Result) -> RenderableType:
    """Atlas with the heads of each type, and for each type its strongest heads."""
    blocks: list[RenderableType] = [Text(_title(run), style="bold")]
    blocks += _about_run(run)
    blocks += [atlas_grid(run), legend(run)]
    best = strongest(run.evidence)
    if len(best):
        blocks += [Text(), Text(NUMBERS_MEAN, style="dim"), *_strongest_tables(best)]
    undecided_heads = undecided(run.heads, run.evidence_with_thresholds)
    if len(undecided_heads):
        # of undecided heads the two explanations, and the queries at which they differ
        table = plain_table(
            UNIDENTIFIABLE, "heads", "head", "hard queries", right=("hard queries",)
        )
        for sentence, rows in undecided_heads.groupby("description", sort=False):
            names = ", ".join(rows.index[:STRONGEST])
            if len(rows) > STRONGEST:
                names += ", …"
            hard_queries = rows["hard_queries"].iloc[0]
            table.add_row(str(sentence), str(len(rows)), names, str(hard_queries))
        blocks += [Text(), table]
    for note in _notes(run):
        # notes in capitals make a run worthless
        style = "bold red" if note[:12].isupper() else "yellow"
        blocks.append(Text(f"note: {one_line(note)}", style=style))
    return Group(*blocks)


def _notes(run: Result) -> Iterator[str]:
    """The notes of a run, and a null model."""
    in_first_lines = _few_documents(run)
    yield from (note for note in run.info.get("notes", ()) if note not in in_first_lines)
    if run.info.get("settings", {}).get("null_model"):
        yield "NULL MODEL: attention weights are shuffled, so that every tag is false"


def _few_documents(run: Result) -> list[str]:
    """The note on too little text for intervals, which stands in the first lines."""
    read = run.info.get("text_read", {})
    return few_documents(read["documents"], read["blocks"]) if "blocks" in read else []


def _title(run: Result) -> str:
    """The model with its layers, and for a hybrid the number of layers with heads."""
    model = run.info["model"]
    name = one_line(name_of(run.name))
    if "layers" not in model:
        return name
    layers = str(model["layers"])
    attention_layers = model.get("attention_layers")
    if attention_layers is not None:
        layers = f"{len(attention_layers)} of {layers}"
    return f"{name}: {layers} layers × {model['heads']} heads"


def _about_run(run: Result) -> Iterator[Text]:
    """Lines on the run as a whole: its text, its settings, its loss and its precision."""
    info = run.info
    # what limits every tag of the run comes first
    if run.preliminary:
        yield Text(f"all tags are {PRELIMINARY}: a quick run", style="bold yellow")
    for note in _few_documents(run):
        yield Text(note, style="bold yellow")
    read = info.get("text_read", {})
    if read.get("expected_changes") is not None:
        count = round(read["expected_changes"])
        yield Text(
            f"read {read['tokens']:,} of {read['of']:,} tokens: the rest (--all) would change "
            f"about {count} tag{'s' * (count != 1)}"
        )
    # a type without tags may be one that this text cannot decide
    if decidable := info.get("decidable"):
        yield Text(
            f"this text can decide {decidable['relations']} of {decidable['of']} relations that "
            "can give tags: those with at least 50 queries in enough documents, and enough hard "
            "queries"
        )
    # what another run may differ in
    if settings := not_default(dict(info.get("settings", {}))):
        yield Text(f"not the default: {settings}")
    # a model that knows less than token frequencies was loaded wrong, or reads another language
    if loss := info.get("text_loss"):
        model = loss["model"]
        unigram = loss["unigram"]
        model_loss = "no number" if model is None else f"{model:.2f}"
        sentence = (
            f"loss of the model on this text: {model_loss} nats "
            f"per token; of token frequencies alone: {unigram:.2f} ({loss['tokens']:,} tokens; "
            f"the model is better in {loss['better']:,} of {loss['windows']:,} windows)"
        )
        is_sound = model is not None and model < unigram
        yield Text(sentence, style="" if is_sound else "bold red")
    # half precision moves masses a little, and the run says how far
    precision = info.get("precision") or {}
    if "tokens" in precision:
        line = f"precision: {precision['dtype']}, because {precision['reason']}"
        if "mean_difference" in precision:
            line += (
                f": masses of the first {precision['tokens']:,} tokens differ from single "
                f"precision by {precision['mean_difference']:.4f} on average, "
                f"{precision['largest_difference']:.3f} at most"
            )
        yield Text(line)


def atlas_grid(run: Result) -> Text:
    """Layers × heads as coloured letters, a row per layer; readable without colours."""
    heads = int(run.heads["head"].max()) + 1
    cells = []
    for cell in atlas_cells(run):
        sign = BELOW_SIGN if cell.is_below_baseline else ""
        cells.append(replace(cell, letter=cell.letter + sign))
    # signs without room are cut off
    with_blank = max(len(cell.letter) for cell in cells) + 1
    available = (COLUMNS - NAMES) // heads
    width = max(1, min(with_blank, available))
    grid = Text(no_wrap=True)
    for layer, of_layer in groupby(cells, key=lambda cell: cell.layer):
        grid.append(layer_name(layer).ljust(NAMES), "dim")
        for cell in of_layer:
            grid.append(cell.letter.ljust(width)[:width], _style(cell.type))
        grid.append("\n")
    grid.rstrip()
    return grid


def legend(run: Result) -> Text:
    """The letters of the grid with their types and numbers, at most 80 columns wide."""
    counts = run.heads["primary"].value_counts()
    names = [name for group in legend_groups(counts.index).values() for name in group]
    lines = Text()
    column = 0
    for name in names:
        entry = f"{letter(name)} {name} {counts[name]}  "
        if column + len(entry) > COLUMNS:
            lines.append("\n")
            column = 0
        lines.append(entry[0], _style(name))
        lines.append(entry[1:])
        column += len(entry)
    partial = partial_sinks(run.evidence_with_thresholds)
    if len(partial):
        lines.append(f"\npartial sinks: {len(partial)}")
    for line in caution_legend(run.heads, BELOW_SIGN):
        lines.append(f"\n{line}")
    return lines


def _style(type_name: str) -> str:
    """Style of a type: dim for attention sinks and no type."""
    faint = type_name in NO_TYPE or is_sink_type(type_name)
    return "dim" if faint else f"bold {colour(type_name)}"


def head_lines(
    heads: pd.DataFrame,
    undecided_heads: pd.Series | None = None,
    partial: pd.Series | None = None,
) -> RenderableType:
    """A table of heads, one row each, as `headscope heads` prints it, and what its words mean.

    A head without a tag has a row of the relation that it comes closest to.

    Args:
        heads: a row per head, as in `heads.csv`.
        undecided_heads: the two that the text does not separate, by the heads' names; see
            `headscope.statistics.head_lists.undecided`.
        partial: mass of heads that are partial sinks, by their names.
    """
    sinks = (
        {} if partial is None else {name: f"partial sink {m:.2f}" for name, m in partial.items()}
    )
    table = plain_table("head", "tags", "relation", "mass", "control", "lift", "95 %", "replicates")
    # a row per head: its tags, or what it comes closest to
    for row in heads.itertuples():
        name = head_name(row.layer, row.head)
        reason = None if undecided_heads is None else undecided_heads.get(name)
        types = row.tags.split(";") if row.tags else []
        marked = [marked_tag(row._asdict(), tag) for tag in types]
        tags = marked or [_untagged(row.primary, reason)]
        table.add_row(
            name,
            ", ".join(
                filter(None, [*tags, sinks.get(name)] if row.tags else [sinks.get(name), *tags])
            ),
            reason or row.relation,
            *_numbers(row.mass, row.control, row.lift),
            _interval(row.ci_low, row.ci_high),
            *_numbers(row.replicates),
        )
    # only what stands in the table is explained below it
    is_open = [
        undecided_heads is not None and name in undecided_heads.index
        for name in table.columns[0].cells
    ]
    is_closest = (heads["tags"] == "") & ~pd.Series(is_open, heads.index, dtype=bool)
    captions = [
        (FIRST_TAG_MEANS, (heads["tags"] != "").any()),
        (f"{NO_TAG} …: {CLOSEST_MEANS}", is_closest.any()),
        (EITHER_MEANS, any(is_open)),
    ]
    lines = [caption for caption, applies in captions if applies]
    lines += meanings(heads)
    return Group(table, *(Text(line, style="dim italic") for line in lines))


def _untagged(primary: str, reason: str | None) -> str:
    """Words before the relation of a head without a tag, or before two that it may follow."""
    if reason is not None:
        return f"{UNIDENTIFIABLE}: no tag, either"
    return f"{UNIDENTIFIABLE}: {NO_TAG}" if primary == UNIDENTIFIABLE else NO_TAG


def _strongest_tables(best: pd.DataFrame) -> list[RenderableType]:
    """A line and a table of the strongest heads for each type, with the same widths of columns.

    A star marks preliminary tags, and a last line states what it means.
    """
    rows = best.groupby("type", sort=False).head(STRONGEST)
    rows = rows.assign(relation=shown_relations(rows))
    # tables of all types have the same columns, so that one heading serves all
    width_of_column = {
        "head": 6,
        "relation": max(len(name) for name in [*rows["relation"], "relation"]),
        "mass": 5,
        "control": len("control"),
        "lift": 5,
        "95 %": len("0.00 … 0.00"),
        "hits": len("55 < 97"),
        "n": max(len(str(queries)) for queries in rows["n"]),
    }
    blocks: list[RenderableType] = []
    for name, of_the_type in rows.groupby("type", sort=False):
        table = plain_table(*width_of_column)
        table.pad_edge = True
        table.show_header = not blocks
        for column, width in zip(table.columns, width_of_column.values(), strict=True):
            column.min_width = width
        for row in of_the_type.itertuples():
            table.add_row(
                head_name(row.layer, row.head),
                f"{row.relation} {STAR}" if row.preliminary else row.relation,
                *_numbers(row.mass, row.control, row.lift),
                _interval(row.ci_low, row.ci_high),
                _hits(row.hit_rate, row.baseline_rate),
                str(row.n),
            )
        blocks += [Text(f"strongest {name} heads", style=_style(str(name))), table]
    # the word itself would widen every table of a short run
    if rows["preliminary"].any():
        word, meaning = CAUTIONS[PRELIMINARY]
        blocks.append(Text(f"{STAR}: {word}: {meaning}", style="dim"))
    return blocks


def _hits(hit_rate: float, baseline_rate: float) -> str:
    """Hit rates of a head and of its baseline in per cent; empty if there is no baseline.

    >>> _hits(0.554, 0.97), _hits(0.5, 0.5)
    ('55 < 97', '50 ≥ 50')
    """
    if pd.isna(hit_rate) or pd.isna(baseline_rate):
        return ""
    sign = "<" if hit_rate < baseline_rate else "≥"
    return f"{100 * hit_rate:.0f} {sign} {100 * baseline_rate:.0f}"


def _numbers(*values: float) -> list[str]:
    return [f"{value:.2f}" for value in values]


def _interval(low: float, high: float) -> str:
    return f"{low:.2f} … {high:.2f}"
