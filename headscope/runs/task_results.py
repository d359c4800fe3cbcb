"""Results of tasks that lie beside a run."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from headscope.runs.folder import is_run

TASKS = "tasks"
"""Folder of the tasks' results, beside those of runs."""
CIRCUIT = "circuit.json"


def task_circuits(run: Any, model: str) -> list[dict[str, Any]]:
    """Results of tasks on a model, by name; files of another form are passed over.

    Args:
        run: a run's folder, beside which `tasks` is looked for; otherwise it is `runs/tasks`.
        model: name of the model.
    """
    is_folder = isinstance(run, str | Path) and is_run(Path(run))
    home = Path(run).parent if is_folder else Path("runs")
    circuits = []
    for path in sorted(home.glob(f"{TASKS}/*/{CIRCUIT}")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = json.loads(path.read_text("utf-8"))
            if content["model"]["name"] == model and content["circuit"]["heads"]:
                circuits.append(content)
    return circuits
