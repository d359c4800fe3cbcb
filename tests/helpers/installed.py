"""headscope as it is published: sdist, wheel, and an environment that never saw the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def call(*command: object, cwd: Path, code: int = 0) -> str:
    """Output of a command that ends with this code; its stderr if that is not 0."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env=environment | {"HF_HUB_OFFLINE": "1", "COLUMNS": "100"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stderr if code else done.stdout


@pytest.fixture(scope="session")
def sdist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (path,) = folder.glob("*.tar.gz")
    return path


@pytest.fixture(scope="session")
def wheel(sdist, tmp_path_factory) -> Path:
    """Built from the sdist, as pip does where no wheel is published."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-index", "--no-build-isolation")
    call(*pip, "--quiet", "--wheel-dir", folder, sdist, cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The programs of an environment that has the wheel, and borrows what it depends on.

    A `.pth` file inside a borrowed folder is not read, so that the editable install of this
    checkout stays out.
    """
    home = tmp_path_factory.mktemp("empty") / "env"
    call(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    pip = (sys.executable, "-m", "pip", "--python", home / "bin" / "python", "install", "--quiet")
    call(*pip, "--no-deps", "--no-index", wheel, cwd=home.parent)
    (packages,) = (home / "lib").glob("python*/site-packages")
    borrowed = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "borrowed.pth").write_text("\n".join(borrowed))
    return home / "bin"
