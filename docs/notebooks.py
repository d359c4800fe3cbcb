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
                cell.outputs = [output for output in map(stored, cell.outputs) if output]
        nbformat.write(notebook, path)
        print(f"written to {path}")


def stored(output: nbformat.NotebookNode) -> nbformat.NotebookNode | None:
    """An output as it is seen without a kernel; None for what is left of a progress bar.

    A widget is stored as its picture.
    """
    data = output.get("data")
    if data is None:
        return output
    is_widget = data.pop("application/vnd.jupyter.widget-view+json", None) is not None
    if is_widget and "image/svg+xml" not in data:
        return None
    # a finished bar is an empty text
    return None if data.get("text/plain") == "" else output


if __name__ == "__main__":
    main()
