"""Finds the folder or file that a model's name stands for, and names its run.

Nothing else asks the Hugging Face hub.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils.tqdm import tqdm

from headscope.errors import ModelError
from headscope.models.packaged import (
    PACKAGED,
    is_reserved,
    local_path,
    packaged_path,
    reserved_names,
)
from headscope.models.weight_files import WEIGHTS_SUFFIX, verified_sha256
from headscope.paths import ATLAS_PREFIX, RUN_RECORD, exists, nearest_place, resolved
from headscope.progress import other_bars

FILES = ("*.json", f"*{WEIGHTS_SUFFIX}", "*.model", "*.txt", "*.jinja")
"""Files that a model in Hugging Face layout needs."""
_IGNORED = ("*/*", "consolidated*")
"""Other formats of the same weights, and the weights once more under another name (Mistral)."""
TIMEOUT = 5.0
"""Seconds to wait for the hub's first answer."""
BAR_SECONDS = 2.0
"""Seconds of a download before its bar appears."""
WAYS_ON = (
    "Without the hub, mini, a local folder in Hugging Face layout or a .gguf file works, and "
    "smollm2 and minilm come from the package index"
)
_NO_NAMES = ("", ".", "..")


def locate(name: str, revision: str | None, *, files: Sequence[str] = FILES) -> tuple[Path, str]:
    """The folder or the single file of a model, and the hub's commit; empty for a local one.

    Args:
        name: `mini`, a packaged model, a folder, a `.gguf` or `.json` file, or a hub name.
        revision: branch, tag or commit on the hub.
        files: what to fetch if it is a hub name, as patterns.

    Raises:
        ModelError: nothing is there, it is a run, or a revision is asked of a local model.
    """
    path = local_path(name)
    if name.startswith(ATLAS_PREFIX) or exists(path / RUN_RECORD):
        raise ModelError(f"{name:.200} is a run, expected a model; name the model of that run")
    # what is on this machine comes before the hub, which is asked last
    if is_reserved(name) or exists(path):
        if revision is not None:
            raise ModelError(
                f"{name} is not on the hub, and --revision {revision} chooses among models there"
            )
        return packaged_path(name) if name in PACKAGED else path, ""
    # a misspelt path is no name of the hub
    if _is_path(name) or path.suffix.lower() in (".gguf", ".json"):
        raise ModelError(f"{name:.200}{_suggestion(name)}: no such file or folder")
    return download(name, revision, files)


def download(name: str, revision: str | None, files: Sequence[str]) -> tuple[Path, str]:
    """The local folder of a hub model, and its commit; a model in the cache needs no network.

    Raises:
        ModelError: no such model or revision, no permission, the hub cannot be reached, or a
            file has another checksum than the hub states.
    """
    wanted_model = f"{name} at {revision}" if revision else name
    options: dict[str, Any] = {
        "revision": revision,
        "allow_patterns": list(files),
        "ignore_patterns": list(_IGNORED),
    }
    is_reached = False
    try:
        # snapshot_download waits longer for its first answer
        HfApi().model_info(name, revision=revision, timeout=TIMEOUT)
        is_reached = True
        with other_bars() as are_wanted:
            folder = snapshot_download(
                name, tqdm_class=_LateBar if are_wanted else _NoBar, **options
            )
    except Exception as error:  # the client's HTTP library has errors of its own
        # what was fetched before needs no network
        try:
            folder = snapshot_download(name, local_files_only=True, tqdm_class=_NoBar, **options)
        except (OSError, HFValidationError):
            reason = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            # the system's number of an error means nothing to a user
            reason = re.sub(r"\[Errno -?\d+\] ", "", reason)
            if is_reached or isinstance(error, HfHubHTTPError | HFValidationError):
                fault = f"cannot be fetched from the Hugging Face hub: {reason}"
            else:
                fault = f"the Hugging Face hub cannot be reached ({reason})"
            raise ModelError(
                f"{wanted_model}{_suggestion(name)} is not a local folder, and {fault}. {WAYS_ON}"
            ) from error
    for file in Path(folder).iterdir():
        if file.suffix != WEIGHTS_SUFFIX and file.is_file():  # weights are verified when loaded
            verified_sha256(file)
    return Path(folder), Path(folder).name


class _LateBar(tqdm):
    """The hub's progress bar, if the download takes long enough."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, delay=BAR_SECONDS, **kwargs)  # type: ignore[no-untyped-call]


class _NoBar(tqdm):
    """The hub's progress bar, off."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "disable": True})  # type: ignore[no-untyped-call]


def title_of(model: str) -> str:
    """A model's name for people: the hub's name, or the name of the folder or file, never a path.

    >>> title_of("EleutherAI/pythia-70m"), title_of("../models/tiny.gguf")
    ('EleutherAI/pythia-70m', 'tiny.gguf')
    """
    path = local_path(model)
    if is_reserved(model) or not (_is_path(model) or exists(path)):
        return model
    return path.name if path.name not in _NO_NAMES else resolved(path).name or model


def run_name(model: str) -> str:
    """The name of a model's run folder when no other name is given.

    >>> run_name("EleutherAI/pythia-1.4b"), run_name("../models/tiny.gguf")
    ('pythia-1.4b', 'tiny')

    Raises:
        ModelError: the model's path has no name.
    """
    name = title_of(model).rstrip("/").rsplit("/", 1)[-1]
    stem = name[:-5] if name.lower().endswith(".gguf") else name
    if stem in _NO_NAMES:
        raise ModelError(f"{model!r} cannot name a run folder; choose one with --out")
    return stem


def _suggestion(name: str) -> str:
    """The model, file or folder that a name may mean, to be added to a message."""
    suggestion = nearest_place(name, reserved_names())
    if suggestion:
        return suggestion
    # a packaged model by its name on the hub, or by the beginning of it, such as SmolLM2-135M
    on_hub = name.rpartition("/")[2].casefold()
    for model in PACKAGED.values():
        if f"{model.title.casefold()}-".startswith(f"{on_hub}-"):
            return f" (is {model.name} meant?)"
    return ""


def _is_path(name: str) -> bool:
    return name.startswith((".", "/", "~")) or name.count("/") > 1
