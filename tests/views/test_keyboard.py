"""From the atlas to a head's page, through its examples and back, with the keyboard alone."""

from __future__ import annotations


def test_a_walk_from_the_atlas_to_a_head_and_back_needs_no_mouse(browser, page):
    keys = browser.open(page)
    assert keys.read("document.readyState") == "complete"
    keys.tab_to('.filter[data-type="induction"]')
    keys.press("Enter")
    assert keys.read("location.hash") == "#?type=induction"
    assert keys.read("document.activeElement.getAttribute('aria-pressed')") == "true"
    keys.tab_to(".cell")
    assert keys.read("document.activeElement.dataset.head") == "L0H0"
    assert "lift" in keys.read("document.getElementById('tip').textContent")
    assert keys.read("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    keys.press("ArrowRight", 2)
    keys.press("ArrowDown")
    assert keys.read("document.activeElement.dataset.head") == "L1H2"
    keys.press("Enter")
    assert keys.read("location.hash") == "#L1H2"
    assert keys.read("document.querySelector('h2').textContent").startswith("L1H2")
    keys.tab_to(".example .tok")
    said = keys.read("document.querySelector('.message').textContent")
    keys.press("Tab")
    assert keys.read("document.querySelector('.message').textContent") != said
    keys.press("Enter")  # the token is kept
    assert keys.read("document.querySelector('.message').textContent").endswith("(pinned)")
    assert "pin0=" in keys.read("location.hash")
    keys.tab_to(".all-queries > summary")
    keys.press("Enter")
    keys.tab_to("#decile")
    before = keys.read("document.activeElement.getAttribute('aria-valuetext')")
    keys.press("ArrowRight")
    assert keys.read("document.activeElement.value") == "1"
    assert keys.read("document.activeElement.getAttribute('aria-valuetext')") != before
    assert "at=1" in keys.read("location.hash")
    keys.tab_to("nav a")  # round the end of the page to its beginning
    assert keys.read("document.activeElement.textContent") == "Atlas"
    keys.press("Enter")
    assert keys.read("document.querySelectorAll('.cell').length") == 6
    assert keys.errors == []


def test_the_first_stop_of_every_page_skips_to_its_content(browser, page):
    keys = browser.open(page)
    for place in ("", "L1H2"):
        keys.read(f"location.hash = '{place}'")
        keys.page.evaluate("document.activeElement.blur()")
        keys.tab_to("#skip")
        assert keys.read("document.activeElement.getBoundingClientRect().top") >= 0
        keys.press("Enter")
        assert keys.read("document.activeElement.id") == "main"
        assert keys.read("location.hash.slice(1)") == place
