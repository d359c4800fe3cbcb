"""Pages are complete on GitHub: no placeholders, links to tracked files."""

from __future__ import annotations

import re

import pytest

from tests.helpers.pages import PAGES, PROJECT, TRACKED

LINK = re.compile(
    r"\]\(([^)#\s]+)[^)]*\)|^```\{\w*include\} (\S+)|<img[^>]* src=\"([^\"]+)", re.MULTILINE
)


@pytest.mark.parametrize("name", PAGES)
def test_no_placeholder_is_left_and_links_images_and_includes_are_tracked_files(name):
    page = PROJECT / name
    text = page.read_text(encoding="utf-8")
    assert "{{ " not in text
    for found in LINK.findall(text):
        target = next(filter(None, found))
        if not re.match(r"[a-z]+:", target):
            path = (page.parent / target).resolve().relative_to(PROJECT).as_posix()
            assert path in TRACKED or any(file.startswith(f"{path}/") for file in TRACKED), target
