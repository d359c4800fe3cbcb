"""Every test of this folder draws the same numbers, whichever others run."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)
