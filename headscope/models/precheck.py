"""Checks of a model's files without torch or transformers, which take seconds to import."""

from __future__ import annotations

from contextlib import suppress

from headscope.models.checkpoint import CONFIG, find_checkpoint, read_entries, safetensors_shapes
from headscope.models.families import check_family
from headscope.models.gguf_files import check_magic
from headscope.models.packaged import local_path
from headscope.paths import exists


def check_local_model(name: str) -> None:
    """Check the files of a model on this disk; a name on the hub passes.

    Raises:
        ModelError: the files cannot be a model that headscope reads.
    """
    with suppress(RuntimeError):  # a home that nobody has: `locate` says so
        path = local_path(name)
        if path is None or not exists(path) or not (path.is_dir() or path.is_file()):
            return
        checkpoint = find_checkpoint(name, path)
        if checkpoint.is_gguf:
            check_magic(path)
            return
        check_family(name, read_entries(name, path / CONFIG))
        safetensors_shapes(checkpoint.files)
