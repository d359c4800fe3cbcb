"""Known answers: models whose heads are built by hand, and how often headscope finds them.

The attributes of this package are functions, as those of `headscope.studies` are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.function_package import offer_functions

if TYPE_CHECKING:
    from headscope.studies.validation.calibrate import calibrate as calibrate
    from headscope.studies.validation.heuristic_benchmark.benchmark import zoo as zoo
    from headscope.studies.validation.translator import save_translator as save_translator
    from headscope.studies.validation.verify import verify as verify

__all__ = offer_functions(
    __name__,
    {
        "calibrate": "headscope.studies.validation.calibrate",
        "save_translator": "headscope.studies.validation.translator",
        "verify": "headscope.studies.validation.verify",
        "zoo": "headscope.studies.validation.heuristic_benchmark.benchmark",
    },
)
