"""Writes the built Markdown beside this file, and the checksums of its documents.

Run as `python data/structure/make.py data/structure`.
"""

import hashlib
import sys
from pathlib import Path

from headscope.corpus.structure.built import structure_corpus

folder = Path(sys.argv[1])
rows = ["document,sha256"]
for name, text in structure_corpus():
    (folder / name).write_text(text, encoding="utf-8")
    rows.append(f"{name},{hashlib.sha256(text.encode()).hexdigest()}")
(folder / "documents.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
