"""Files that commands write: checked before the work, drawn after it, and named at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli.shell_options import Format
from headscope.cli.terminal import print_rich, print_text, put, warn
from headscope.packages import optional_package
from headscope.printing import one_line
from headscope.runs.write import check_suffix, check_target, write_files

if TYPE_CHECKING:
    from headscope.views.study_result import StudyResult

CSV, HTML, PICTURES = (".csv",), (".html",), (".png", ".svg", ".pdf")


def check_targets(*, overwrite: bool, **targets: tuple[Path | None, Sequence[str]]) -> None:
    """Check that the targets can be written, and pictures drawn, before minutes of work.

    Args:
        overwrite: replace what is there; a file that belongs to a run is not replaced even so.
        targets: each file that a command was asked to write, or None, with the suffixes that the
            command knows; by the name of its option, such as `out`.
    """
    from headscope.runs.folder import check_foreign

    for option, (path, suffixes) in targets.items():
        if path is None:
            continue
        check_suffix(path, *suffixes)
        check_foreign(path)
        check_target(path, overwrite=overwrite, chosen_by=f"--{option}")
        if path.suffix.lower() in PICTURES:
            optional_package("a picture", "matplotlib")


def draw(figure: Any, path: Path) -> bytes:
    """A figure as the bytes of a picture."""
    from headscope.views.figures import picture

    return picture(figure, path.suffix)


def write_study(
    study: StudyResult,
    out: Path | None,
    figure: Path | None,
    *,
    overwrite: bool,
) -> list[Path]:
    """Write the table and the figure of a study, each whole.

    Returns:
        The files, to be named at the end.

    Raises:
        WriteError: they cannot be written.
    """
    # both are made before either is written
    files: dict[Path, bytes | str] = {} if out is None else {out: study.csv()}
    if figure is not None:
        files[figure] = draw(study.figure(), figure)
    write_files(files, overwrite=overwrite)
    return list(files)


def print_study(study: StudyResult, files: Sequence[Path], format: Format) -> None:
    """Print a study in a format, and name the files that were written.

    Standard output of another format than a table is for programs: standard error names the files.
    """
    if format == "table":
        print_rich(study.lines())
        print_written(files)
        return
    put(study.csv() if format == "csv" else study.json())
    for path in files:
        warn(f"written to {one_line(path)}")


def print_written(files: Iterable[Path]) -> None:
    """Name the files that were written; before anything is printed, because a pipe may close."""
    for path in files:
        print_text(f"written to {one_line(path)}")
