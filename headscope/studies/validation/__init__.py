"""Published heads and scores of a run's model.

The attributes of this package are functions, as those of `headscope.studies` are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.function_package import offer_functions

if TYPE_CHECKING:
    from headscope.studies.validation.verify import verify as verify

__all__ = offer_functions(
    __name__,
    {
        "verify": "headscope.studies.validation.verify",
    },
)
