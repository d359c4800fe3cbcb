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
    from headscope.architecture.anatomy import anatomy as anatomy
    from headscope.circuits.weigh import weights as weights
    from headscope.comparison.compare import compare as compare
    from headscope.corpus.read import read_corpus as read_corpus
    from headscope.errors import HeadscopeError as HeadscopeError
    from headscope.head_view import show as show
    from headscope.interventions.collapse import collapse as collapse
    from headscope.interventions.prune import prune as prune
    from headscope.patterns import score_patterns as score_patterns
    from headscope.pipeline import classify as classify
    from headscope.redundant.redundancy import redundancy as redundancy
    from headscope.run import Run as Run
    from headscope.store import load as load

_HOMES = {
    "anatomy": "headscope.architecture.anatomy",
    "classify": "headscope.pipeline",
    "collapse": "headscope.interventions.collapse",
    "compare": "headscope.comparison.compare",
    "load": "headscope.store",
    "prune": "headscope.interventions.prune",
    "read_corpus": "headscope.corpus.read",
    "redundancy": "headscope.redundant.redundancy",
    "score_patterns": "headscope.patterns",
    "show": "headscope.head_view",
    "weights": "headscope.circuits.weigh",
    "HeadscopeError": "headscope.errors",
    "Run": "headscope.run",
}
__all__ = [
    "HeadscopeError", "Run", "anatomy", "classify", "collapse", "compare", "load", "prune",
    "read_corpus", "redundancy", "score_patterns", "show", "weights",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headscope' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
