"""How long the commands take that load no model: `--help`, `heads RUN`, and the import.

python benchmarks/startup.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

from side_by_side import alternate, save, scratch

import headscope

HEADS = """\
import sys
from headscope.cli import main
try:
    main()
except SystemExit:
    print("torch" in sys.modules)
"""


def main() -> None:
    command = str(Path(sys.executable).parent / "headscope")
    with scratch() as folder:
        run = f"{folder}/run"
        headscope.classify("mini", max_tokens=4_000, out=run)
        seconds = alternate(
            headscope_help=lambda: call(command, "--help"),
            heads=lambda: call(command, "heads", run),
            import_headscope=lambda: call(sys.executable, "-c", "import headscope"),
        )
        script = (
            "import sys; from headscope.cli import main\ntry: main()\nexcept SystemExit: pass\n"
        )
        loaded = call(sys.executable, "-c", script + "print('torch' in sys.modules)", "heads", run)
    rows = {f"seconds of {name}": round(statistics.median(s), 2) for name, s in seconds.items()}
    save("startup", {**rows, "heads RUN imports torch": loaded.split()[-1]})


def call(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
