"""From a model's name to the folder or file that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headscope.corpus.shipped import MINI, mini_folder
from headscope.errors import ModelError
from headscope.models.hub import FILES, download
from headscope.models.package_index import packaged_path
from headscope.models.packaged import PACKAGED


def locate(name: str, revision: str | None, *, files: Sequence[str] = FILES) -> tuple[Path, str]:
    """The folder or the single file of a model, and the hub's commit; empty for a local one.

    Args:
        name: `mini`, a packaged model, a folder, a `.gguf` or `.json` file, or a hub name.
        revision: branch, tag or commit on the hub.
        files: what to fetch if it is a hub name, as patterns.

    Raises:
        ModelError: nothing is there, or a revision is asked of a local model.
    """
    if name in PACKAGED:
        if revision is not None:
            package = PACKAGED[name].requirement
            raise ModelError(
                f"{name} is {package} of the package index, and --revision {revision} chooses "
                f"among models on the hub; ./{name} is a folder"
            )
        return packaged_path(name), ""
    try:
        path = mini_folder() if name == MINI else Path(name).expanduser()
        local = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ModelError(f"{name:.200}: no such folder or file: {reason}") from error
    if revision is not None and local:
        raise ModelError(
            f"{name} is a local model, and --revision {revision} chooses among those on the hub"
        )
    if local and not (path.is_file() or path.is_dir()):
        # a pipe or a device may never end
        raise ModelError(f"{name}: neither a file nor a folder")
    if local:
        return path, ""
    if path.suffix.lower() in (".gguf", ".json"):
        raise ModelError(f"{name}: no such file")
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(f"{name}: no such folder")
    return download(name, revision, files)
