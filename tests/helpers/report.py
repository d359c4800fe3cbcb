"""The data inside of a report."""

from __future__ import annotations

import base64
import re
import zlib
from pathlib import Path


def data_of(report: Path) -> str:
    """The JSON that a report's page unpacks."""
    found = re.search(r'id="data">([^<]+)<', report.read_text(encoding="utf-8"))
    assert found
    return zlib.decompress(base64.b64decode(found[1])).decode("ascii")
