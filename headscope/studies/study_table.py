"""Table of the studies: a row each, which the command line, the pages and the tests read.

Functions are named here and imported where they are called, so that the table costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any

TOP, DRAW, EXPORT, SWEEP, STUDY, CHECK = "top", "draw", "export", "sweep", "study", "check"
GROUPS: Mapping[str, str] = MappingProxyType(
    {
        TOP: "What a day's work needs.",
        DRAW: "A run as a picture for a paper.",
        EXPORT: "Runs as a site, or as the data of other programs.",
        SWEEP: "Many models, revisions, corpora or languages.",
        STUDY: "One question about a model: its weights, size, likeness, pruning, …",
        CHECK: "Which models load.",
    }
)
"""Groups of commands, and what their commands are for; those of `TOP` stand in none."""


@dataclass(frozen=True, kw_only=True)
class StudyRow:
    """A study of a run or of a model: its function, its command, its tables and its figure."""

    name: str
    """Name of the function in Python, and of the command."""
    module: str = ""
    """Module of the function below `headscope.studies`; by default it has the study's name."""
    group: str = ""
    """Group of the command in `GROUPS`; empty for a study of Python alone, or one whose command has
    more to do than the study."""
    command: str = ""
    """Name of the command within its group, if it differs from the function's."""
    question: str = ""
    """What the command answers, in less than a line."""
    examples: tuple[str, ...] = ()
    """Complete lines that call the command."""
    out: str = "Write the table to this .csv file."
    """Help of `--out`; empty for a command that takes none or its own."""
    figure: str = "Draw it: a .png, .svg or .pdf file."
    """Help of `--figure`; empty for a command that draws nothing."""
    has_format: bool = False
    """True for a command with `--format`, whose result has the methods `csv` and `json`."""

    @property
    def function(self) -> str:
        """The function with the arguments and docstring of the command, as `module:name`."""
        return f"{self.module or self.name}:{self.name}"

    @property
    def words(self) -> str:
        """The words of the command, such as `study weights`."""
        name = self.command or self.name
        return name if self.group == TOP else f"{self.group} {name}"


def imported(path: str) -> Any:
    """What a row names, such as `prune:prune`.

    >>> imported("study_table:StudyRow").__name__
    'StudyRow'
    """
    name, module = home(path)
    return getattr(import_module(module), name)


def home(path: str) -> tuple[str, str]:
    """The name and the module of what a row names.

    >>> home("prune:prune")
    ('prune', 'headscope.studies.prune')
    """
    module, _, name = path.partition(":")
    return name, f"headscope.studies.{module}"


STUDIES: tuple[StudyRow, ...] = (
    StudyRow(
        name="sweep",
        group=SWEEP,
        command="run",
        question="What do heads do across models, revisions and corpora?",
        examples=(
            "headscope sweep run stages.yaml --out runs/stages",
            "headscope sweep run --models checkpoints/ --revisions step128,step1000 "
            "--out runs/stages",
        ),
        out="",
        figure="",
    ),
    StudyRow(
        name="languages",
        group=SWEEP,
        question="Which heads hold a relation in how many languages?",
        examples=(
            "headscope sweep languages bigscience/bloom-560m --corpus pud/",
            "headscope sweep languages model/ --corpus pud/ --languages de,ja,zh "
            "--figure languages.svg",
        ),
        out="",
    ),
    StudyRow(
        name="weights",
        group=STUDY,
        question="What do a head's weights show, without any text?",
        examples=(
            "headscope study weights mini",
            "headscope study weights runs/mini --out weights.csv --figure copying.pdf",
        ),
        has_format=True,
    ),
    StudyRow(
        name="anatomy",
        group=STUDY,
        question="How many parameters, and how large a key/value cache?",
        examples=(
            "headscope study anatomy mini",
            "headscope study anatomy gpt2 --context 4096 --format csv",
        ),
        figure="",
        has_format=True,
    ),
    StudyRow(
        name="headvis",
        group=EXPORT,
        question="What does the HeadVis page show of a run?",
        examples=(
            "headscope export headvis runs/mini --out headvis/data",
            "headscope export headvis runs/mini --heads L1H0,L5H3 --sequences 100 --overwrite",
        ),
        out="",
        figure="",
    ),
    StudyRow(
        name="compare",
        group=TOP,
        question="Which heads differ between runs?",
        examples=(
            "headscope compare runs/one runs/two --out changes.csv",
            "headscope compare runs/base runs/new --fail-on 'lost induction > 0'",
        ),
    ),
    StudyRow(
        name="emergence",
        group=SWEEP,
        question="At which revision do heads of each type appear?",
        examples=(
            "headscope sweep emergence runs/stages --figure stages.pdf",
            "headscope sweep emergence runs/stages --format csv",
        ),
        has_format=True,
    ),
    StudyRow(
        name="redundancy",
        group=STUDY,
        question="How alike are the heads?",
        examples=(
            "headscope study redundancy runs/mini --figure map.png",
            "headscope study redundancy runs/mini --windows 64 --format json",
        ),
        out="Write each head's row to this .csv.",
        figure="Draw the map of heads: a .png, .svg or .pdf file.",
        has_format=True,
    ),
    StudyRow(
        name="verify",
        group=TOP,
        question="Do published scores rank the heads alike?",
        examples=(
            "headscope verify runs/gpt2",
            "headscope verify runs/my-gpt2 --as gpt2 --out ranks.csv",
            "headscope verify runs/gemma --scores gemma-3-270m/scatter_data.json",
        ),
        figure="",
    ),
    StudyRow(
        name="ablate",
        group=TOP,
        question="Does the model need what a tag says?",
        examples=(
            "headscope ablate runs/mini",
            "headscope ablate runs/mini --only edges",
            "headscope ablate runs/mini --heads L4H3,L5H0 --how zero",
        ),
        out="",
        figure="",
    ),
    StudyRow(
        name="prune",
        group=STUDY,
        question="What is the loss as more and more heads are masked?",
        examples=("headscope study prune mini --run runs/mini --figure prune.pdf --out prune.csv",),
        out="Write the curve to this .csv file.",
    ),
    StudyRow(
        name="explain",
        module="explain.explanation",
        group=TOP,
        question="How much of a head does a small feature model explain?",
        examples=(
            "headscope explain mini --out feature_model.csv",
            "headscope explain runs/mini --features 12",
        ),
        figure="",
    ),
    StudyRow(
        name="function_vectors",
        group=STUDY,
        command="function-vectors",
        question="Which heads carry the task of a few examples?",
        examples=(
            "headscope study function-vectors smollm2 --out vectors.csv --figure vectors.pdf",
            "headscope study function-vectors runs/smollm2 --tasks antonym,plural,past "
            "--prompts 20",
        ),
    ),
    StudyRow(
        name="collapse",
        group=STUDY,
        question="What is lost when a layer's heads share one pattern?",
        examples=(
            "headscope study collapse mini --mixing --out collapse.csv",
            "headscope study collapse mini --figure collapse.pdf",
        ),
    ),
    StudyRow(
        name="patch",
        group=STUDY,
        question="Which heads and edges decide between two prompts?",
        examples=(
            "headscope study patch runs/gpt2 --clean 'Mary and John went out. John gave it to' "
            "--corrupt 'Mary and John went out. Mary gave it to'",
            "headscope study patch atlas:smollm2 --clean 'The keys are' --corrupt 'The key is' "
            "--answer ' lost' --wrong ' missing' --heads all --out patches.csv",
        ),
    ),
    StudyRow(
        name="why",
    ),
)
"""Every study, those with a command in the order of `--help`."""
