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
        TOP: "Classify and explain heads.",
        DRAW: "Draw figures for papers.",
        EXPORT: "Export runs as a site or for other programs.",
        SWEEP: "Classify many models, revisions, corpora or languages.",
        STUDY: "Study a model: weights, size, redundancy, pruning, patching.",
        CHECK: "List or download models.",
    }
)
"""Groups of commands, and what their commands are for; those of `TOP` have no group name."""


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
    summary: str = ""
    """The command's effect in the imperative, in less than a line."""
    examples: tuple[str, ...] = ()
    """Complete lines that call the command."""
    out: str = "Write the table to this .csv file."
    """Help of `--out`; empty for a command that takes none or its own."""
    figure: str = "Draw it: a .png, .svg or .pdf file."
    """Help of `--figure`; empty for a command that draws nothing."""

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
    """Object that a row names, such as `prune:prune`.

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
        summary="Classify models × revisions × corpora.",
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
        summary="Count the languages in which each head has a tag.",
        examples=(
            "headscope sweep languages model/ --corpus pud/ --languages de,ja,zh "
            "--figure languages.svg",
        ),
        out="",
    ),
    StudyRow(
        name="weights",
        group=STUDY,
        summary="Analyse the OV and QK circuits of heads, without text.",
        examples=("headscope study weights runs/mini --out weights.csv --figure copying.pdf",),
    ),
    StudyRow(
        name="anatomy",
        group=STUDY,
        summary="Count parameters and the size of the key/value cache.",
        examples=(
            "headscope study anatomy gpt2 --context 4096 --out anatomy.csv",
            "headscope study anatomy smollm2 --batch 16",
        ),
        figure="",
    ),
    StudyRow(
        name="shapes",
        module="anatomy_shapes",
        group=STUDY,
        summary="List heads and cache sizes of well-known models.",
        examples=("headscope study shapes --context 8192 --batch 4",),
        figure="",
    ),
    StudyRow(
        name="headvis",
        group=EXPORT,
        summary="Write the data for HeadVis and Neuronpedia.",
        examples=(
            "headscope export headvis runs/mini --heads L1H0,L5H3 --sequences 100 --overwrite",
        ),
        out="",
        figure="",
    ),
    StudyRow(
        name="compare",
        group=TOP,
        summary="Compare the heads of two or more runs.",
        examples=("headscope compare runs/base runs/new --fail-on 'lost induction > 0'",),
    ),
    StudyRow(
        name="emergence",
        group=SWEEP,
        summary="Find the revision at which each head type appears.",
        examples=("headscope sweep emergence runs/stages --figure stages.pdf",),
    ),
    StudyRow(
        name="redundancy",
        group=STUDY,
        summary="Measure how similar the heads are.",
        examples=("headscope study redundancy runs/mini --figure map.png",),
    ),
    StudyRow(
        name="verify",
        group=TOP,
        summary="Compare a run with published scores of its heads.",
        examples=(
            "headscope verify runs/my-gpt2 --as gpt2 --out ranks.csv",
            "headscope verify runs/gemma --scores gemma-3-270m/scatter_data.json",
        ),
        figure="",
    ),
    StudyRow(
        name="ablate",
        group=TOP,
        summary="Measure what breaks without heads, or on your own task.",
        examples=(
            "headscope ablate runs/mini --only edges",
            "headscope ablate smollm2 --task prompts.csv --out task.csv --figure task.png",
            "headscope ablate smollm2 --task ioi --heads L17H4,L20H0",
        ),
        out="Write the table to this .csv file, too or instead if the run cannot be written.",
        figure="With --task: draw the effects: a .png, .svg or .pdf file.",
    ),
    StudyRow(
        name="prune",
        group=STUDY,
        summary="Measure the loss as more and more heads are masked.",
        examples=(
            "headscope study prune runs/mini --figure prune.pdf --out prune.csv",
            "headscope study prune mini --save mini-pruned --share 0.3",
        ),
    ),
    StudyRow(
        name="explain",
        module="explain.explanation",
        group=TOP,
        summary="Fit a small feature model to each head.",
        examples=("headscope explain mini --out feature_model.csv",),
        figure="",
    ),
    StudyRow(
        name="function_vectors",
        group=STUDY,
        command="function-vectors",
        summary="Find heads that carry the task of in-context examples.",
        examples=(
            "headscope study function-vectors smollm2 --out vectors.csv --figure vectors.pdf",
        ),
    ),
    StudyRow(
        name="collapse",
        group=STUDY,
        summary="Measure the loss if the heads of a layer share one pattern.",
        examples=("headscope study collapse mini --weights --mixing --out collapse.csv",),
    ),
    StudyRow(
        name="patch",
        group=STUDY,
        summary="Find heads and edges that decide between two prompts.",
        examples=(
            "headscope study patch runs/gpt2 --clean 'Mary and John went out. John gave it to' "
            "--corrupt 'Mary and John went out. Mary gave it to'",
            "headscope study patch atlas:smollm2 --task person --heads all --out person.csv",
            "headscope study patch atlas:smollm2 --clean 'The keys are' --corrupt 'The key is' "
            "--answer ' lost' --wrong ' missing' --heads all --out patches.csv",
        ),
    ),
    StudyRow(
        name="ablate_task",
    ),
    StudyRow(
        name="match_heads",
        module="match",
    ),
    StudyRow(
        name="why",
    ),
)
"""Every study, those with a command in the order of `--help`."""
