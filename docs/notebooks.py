"""Run the notebooks and store their outputs, which GitHub shows: `make notebooks`.

Progress bars and times of the cells are removed: the outputs of two runs are the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbclient
import nbformat

FOLDER = Path(__file__).parents[1] / "notebooks"


def main() -> None:
    for name in sys.argv[1:] or [path.stem for path in sorted(FOLDER.glob("*.ipynb"))]:
        path = FOLDER / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        client = nbclient.NotebookClient(notebook, timeout=900, record_timing=False)
        client.execute(cwd=FOLDER)
        notebook.metadata.pop("widgets", None)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs = [output for output in cell.outputs if not is_progress(output)]
        nbformat.write(notebook, path)
        print(f"written to {path}")


def is_progress(output: nbformat.NotebookNode) -> bool:
    """True for a progress bar."""
    return "application/vnd.jupyter.widget-view+json" in output.get("data", {})


if __name__ == "__main__":
    main()
