"""Tag the attention heads of a transformer, and test each tag against baselines.

    import headscope as hs

    run = hs.classify("gpt2", corpus="en_ewt-ud-dev.conllu")
    run.heads            # a DataFrame with a row per head
    print(run.why("L5H1"))

Every study is a function of this module, such as `hs.prune`. Names are loaded when they are first
used, so that `import headscope` stays fast.

`headscope.classification` contains a whole run. `headscope.relations` lists the head types with
their relations and stimuli, and `headscope.statistics.conditions` the conditions of a tag.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headscope.studies.study_table import STUDIES, home

if TYPE_CHECKING:
    __version__: str
    from headscope.corpus.align import window_of_tokens as window_of_tokens
    from headscope.corpus.document import Document as Document
    from headscope.corpus.read import read_corpus as read_corpus
    from headscope.corpus.shipped import data_folder as data_folder
    from headscope.corpus.window import Window as Window
    from headscope.errors import HeadscopeError as HeadscopeError
    from headscope.models.reference_attention import reference_attention as reference_attention
    from headscope.relations import controls as controls
    from headscope.relations import head_types as head_types
    from headscope.relations import register as register
    from headscope.relations.head_type import HeadType as HeadType
    from headscope.relations.head_type import relation as relation
    from headscope.relations.pairs import Pairs as Pairs
    from headscope.relations.pairs import pairs as pairs
    from headscope.relations.relation import Relation as Relation
    from headscope.relations.relation import Threshold as Threshold
    from headscope.run import Run as Run
    from headscope.run import classify as classify
    from headscope.run import load as load
    from headscope.run import load_model as load_model
    from headscope.run import score_patterns as score_patterns
    from headscope.run import windows as windows
    from headscope.serve.widget import widget as widget
    from headscope.settings import Settings as Settings
    from headscope.stimuli.stimulus import Stimulus as Stimulus
    from headscope.studies.emergence import HeadCallback as HeadCallback
    from headscope.text_patterns import Patterns as Patterns
    from headscope.text_patterns import patterns as patterns
    from headscope.views.gallery import gallery as gallery
    from headscope.views.show import show as show
    from headscope.views.study_result import StudyResult as StudyResult
if TYPE_CHECKING:
    # generated: studies
    from headscope.studies.ablate import ablate as ablate
    from headscope.studies.anatomy import anatomy as anatomy
    from headscope.studies.anatomy_shapes import shapes as shapes
    from headscope.studies.collapse import collapse as collapse
    from headscope.studies.compare import compare as compare
    from headscope.studies.emergence import emergence as emergence
    from headscope.studies.explain.explanation import explain as explain
    from headscope.studies.explain.one_query import explain_at as explain_at
    from headscope.studies.explain.program_scores import score_programs as score_programs
    from headscope.studies.explain.replace_heads import replace_heads as replace_heads
    from headscope.studies.find_heads import find_heads as find_heads
    from headscope.studies.function_vectors import function_vectors as function_vectors
    from headscope.studies.haystacks import haystacks as haystacks
    from headscope.studies.headvis import headvis as headvis
    from headscope.studies.languages import languages as languages
    from headscope.studies.match import match_heads as match_heads
    from headscope.studies.patch import patch as patch
    from headscope.studies.prune import prune as prune
    from headscope.studies.ranges import ranges as ranges
    from headscope.studies.redundancy import redundancy as redundancy
    from headscope.studies.sweep import sweep as sweep
    from headscope.studies.task.task import task as task
    from headscope.studies.verify import verify as verify
    from headscope.studies.verify_labels import judge_labels as judge_labels
    from headscope.studies.weights import weights as weights
    from headscope.studies.why import why as why
    # end of studies

_HOMES = {
    "Document": "headscope.corpus.document",
    "Threshold": "headscope.relations.relation",
    "HeadCallback": "headscope.studies.emergence",
    "HeadType": "headscope.relations.head_type",
    "HeadscopeError": "headscope.errors",
    "Pairs": "headscope.relations.pairs",
    "Patterns": "headscope.text_patterns",
    "Relation": "headscope.relations.relation",
    "Run": "headscope.run",
    "Settings": "headscope.settings",
    "Stimulus": "headscope.stimuli.stimulus",
    "StudyResult": "headscope.views.study_result",
    "Window": "headscope.corpus.window",
    "classify": "headscope.run",
    "controls": "headscope.relations",
    "data_folder": "headscope.corpus.shipped",
    "gallery": "headscope.views.gallery",
    "head_types": "headscope.relations",
    "load": "headscope.run",
    "load_model": "headscope.run",
    "pairs": "headscope.relations.pairs",
    "patterns": "headscope.text_patterns",
    "read_corpus": "headscope.corpus.read",
    "reference_attention": "headscope.models.reference_attention",
    "register": "headscope.relations",
    "relation": "headscope.relations.head_type",
    "score_patterns": "headscope.run",
    "show": "headscope.views.show",
    "widget": "headscope.serve.widget",
    "window_of_tokens": "headscope.corpus.align",
    "windows": "headscope.run",
} | dict(home(study.function) for study in STUDIES)
"""The module of each name."""
__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headscope")
    if name not in _HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
