"""Questions about a finished run or a model: `hs.studies.prune("mini")`, a folder for each.

The attributes of this package are functions; the folders that they lie in are imported by
`from headscope.studies.prune.prune_result import Pruning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.function_package import offer_functions
from headscope.studies.study_table import function_homes

if TYPE_CHECKING:
    from headscope.studies.anatomy.published import published_shapes as published_shapes
    from headscope.studies.sweep.head_callback import HeadCallback as HeadCallback
    from headscope.views.gallery import gallery as gallery
if TYPE_CHECKING:
    # generated: functions
    from headscope.studies.ablate.causal_table import ablate as ablate
    from headscope.studies.ablate.head_writes import writes as writes
    from headscope.studies.anatomy.parameter_count import anatomy as anatomy
    from headscope.studies.answers.head_answers import why as why
    from headscope.studies.collapse import collapse as collapse
    from headscope.studies.compare.side_by_side import compare as compare
    from headscope.studies.explain.explanation import explain as explain
    from headscope.studies.function_vectors import function_vectors as function_vectors
    from headscope.studies.headvis.headvis_folder import headvis as headvis
    from headscope.studies.patch import patch as patch
    from headscope.studies.prune import prune as prune
    from headscope.studies.redundancy import redundancy as redundancy
    from headscope.studies.sweep.languages.classify_languages import languages as languages
    from headscope.studies.sweep.run_cells import sweep as sweep
    from headscope.studies.sweep.sweep_result import emergence as emergence
    from headscope.studies.weights import weights as weights
    # end of functions

__all__ = offer_functions(
    __name__,
    {
        **function_homes(),
        "HeadCallback": "headscope.studies.sweep.head_callback",
        "gallery": "headscope.views.gallery",
        "published_shapes": "headscope.studies.anatomy.published",
    },
)
