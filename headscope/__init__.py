"""headscope: what does each attention head of a model do, and how sure are we?

    import headscope as hs

    run = hs.classify("gpt2", corpus="en_ewt-ud-dev.conllu")
    run.heads            # a DataFrame with a row per head
    print(run.why("L5H1"))

Names are loaded when they are first used, so that `import headscope` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from headscope.api import Run as Run
    from headscope.api import load as load
    from headscope.api import score_patterns as score_patterns
    from headscope.api import windows as windows
    from headscope.corpus.document import Document as Document
    from headscope.corpus.read import read_corpus as read_corpus
    from headscope.corpus.shipped import data_folder as data_folder
    from headscope.corpus.spelled import window_of_tokens as window_of_tokens
    from headscope.corpus.window import Window as Window
    from headscope.errors import HeadscopeError as HeadscopeError
    from headscope.pipeline import classify as classify
    from headscope.relations import controls as controls
    from headscope.relations import head_types as head_types
    from headscope.relations import register as register
    from headscope.relations.declare import Floor as Floor
    from headscope.relations.declare import relation as relation
    from headscope.relations.pairs import Pairs as Pairs
    from headscope.relations.pairs import pairs as pairs
    from headscope.relations.relation import Relation as Relation
    from headscope.relations.types import HeadType as HeadType
    from headscope.settings import Settings as Settings
    from headscope.studies.ablate.result import Ablation as Ablation
    from headscope.studies.ablate.run import ablate as ablate
    from headscope.studies.ablate.writes import Writes as Writes
    from headscope.studies.ablate.writes import writes as writes
    from headscope.studies.anatomy.published import published_shapes as published_shapes
    from headscope.studies.anatomy.result import Anatomy as Anatomy
    from headscope.studies.anatomy.run import anatomy as anatomy
    from headscope.studies.collapse.result import Collapse as Collapse
    from headscope.studies.collapse.run import collapse as collapse
    from headscope.studies.compare.result import Comparison as Comparison
    from headscope.studies.compare.run import compare as compare
    from headscope.studies.directions.result import Directions as Directions
    from headscope.studies.directions.run import directions as directions
    from headscope.studies.explain.result import Explanation as Explanation
    from headscope.studies.explain.run import explain as explain
    from headscope.studies.headvis.result import HeadVis as HeadVis
    from headscope.studies.headvis.run import headvis as headvis
    from headscope.studies.prune.result import Pruning as Pruning
    from headscope.studies.prune.run import prune as prune
    from headscope.studies.redundancy.result import Redundancy as Redundancy
    from headscope.studies.redundancy.run import redundancy as redundancy
    from headscope.studies.streaming.result import Streaming as Streaming
    from headscope.studies.streaming.run import streaming as streaming
    from headscope.studies.sweep.emergence import emergence as emergence
    from headscope.studies.sweep.languages.result import Languages as Languages
    from headscope.studies.sweep.languages.run import languages as languages
    from headscope.studies.sweep.result import Emergence as Emergence
    from headscope.studies.sweep.result import Sweep as Sweep
    from headscope.studies.sweep.run import sweep as sweep
    from headscope.studies.validation.calibrate import calibrate as calibrate
    from headscope.studies.validation.calibrate_result import Calibration as Calibration
    from headscope.studies.validation.translator import save_translator as save_translator
    from headscope.studies.validation.verify import verify as verify
    from headscope.studies.validation.verify_result import Verification as Verification
    from headscope.studies.validation.zoo.result import Zoo as Zoo
    from headscope.studies.validation.zoo.run import zoo as zoo
    from headscope.studies.weights.result import WeightEvidence as WeightEvidence
    from headscope.studies.weights.run import weights as weights
    from headscope.views.gallery.write import gallery as gallery
    from headscope.views.show import show as show
    from headscope.views.study import Study as Study

_HOMES = {
    "Ablation": "headscope.studies.ablate.result",
    "Anatomy": "headscope.studies.anatomy.result",
    "Calibration": "headscope.studies.validation.calibrate_result",
    "Collapse": "headscope.studies.collapse.result",
    "Comparison": "headscope.studies.compare.result",
    "Directions": "headscope.studies.directions.result",
    "Document": "headscope.corpus.document",
    "Emergence": "headscope.studies.sweep.result",
    "Explanation": "headscope.studies.explain.result",
    "Floor": "headscope.relations.declare",
    "HeadType": "headscope.relations.types",
    "HeadVis": "headscope.studies.headvis.result",
    "HeadscopeError": "headscope.errors",
    "Languages": "headscope.studies.sweep.languages.result",
    "Pairs": "headscope.relations.pairs",
    "Pruning": "headscope.studies.prune.result",
    "Redundancy": "headscope.studies.redundancy.result",
    "Relation": "headscope.relations.relation",
    "Run": "headscope.api",
    "Settings": "headscope.settings",
    "Streaming": "headscope.studies.streaming.result",
    "Study": "headscope.views.study",
    "Sweep": "headscope.studies.sweep.result",
    "Verification": "headscope.studies.validation.verify_result",
    "WeightEvidence": "headscope.studies.weights.result",
    "Window": "headscope.corpus.window",
    "Writes": "headscope.studies.ablate.writes",
    "Zoo": "headscope.studies.validation.zoo.result",
    "ablate": "headscope.studies.ablate.run",
    "anatomy": "headscope.studies.anatomy.run",
    "calibrate": "headscope.studies.validation.calibrate",
    "classify": "headscope.pipeline",
    "collapse": "headscope.studies.collapse.run",
    "compare": "headscope.studies.compare.run",
    "controls": "headscope.relations",
    "data_folder": "headscope.corpus.shipped",
    "directions": "headscope.studies.directions.run",
    "emergence": "headscope.studies.sweep.emergence",
    "explain": "headscope.studies.explain.run",
    "gallery": "headscope.views.gallery.write",
    "head_types": "headscope.relations",
    "headvis": "headscope.studies.headvis.run",
    "languages": "headscope.studies.sweep.languages.run",
    "load": "headscope.api",
    "pairs": "headscope.relations.pairs",
    "prune": "headscope.studies.prune.run",
    "published_shapes": "headscope.studies.anatomy.published",
    "read_corpus": "headscope.corpus.read",
    "redundancy": "headscope.studies.redundancy.run",
    "register": "headscope.relations",
    "relation": "headscope.relations.declare",
    "save_translator": "headscope.studies.validation.translator",
    "score_patterns": "headscope.api",
    "show": "headscope.views.show",
    "streaming": "headscope.studies.streaming.run",
    "sweep": "headscope.studies.sweep.run",
    "verify": "headscope.studies.validation.verify",
    "weights": "headscope.studies.weights.run",
    "window_of_tokens": "headscope.corpus.spelled",
    "windows": "headscope.api",
    "writes": "headscope.studies.ablate.writes",
    "zoo": "headscope.studies.validation.zoo.run",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headscope")
    if name not in _HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, "__version__"])
