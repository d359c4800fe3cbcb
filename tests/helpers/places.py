"""Where data lies that does not come with the repository."""

from __future__ import annotations

import os
from pathlib import Path

SHARED = Path(__file__).parents[3] / "shared" / "data"
SMOLLM2 = Path(
    os.environ.get("HEADSCOPE_MODELS", Path.home() / ".cache" / "headscope")
) / "SmolLM2-135M-Instruct.Q4_1.gguf"  # fmt: skip
