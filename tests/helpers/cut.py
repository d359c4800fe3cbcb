"""Parts of a page that are not shown whole at a width: past the screen's edge, or cut by a box.

Every element is asked. What is wider than its box must be scrolled in a box that can be reached by
keyboard and whose edge shows that there is more; tables fit, and so do maps wherever there is room.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tests.browser import Page

CUT = """
  const cut = (() => {
    const near = 1.5; // pixels: rounding, and outlines
    const nameOf = (n) => `${n.tagName.toLowerCase()}${n.id ? "#" + n.id : ""}${typeof n.className === "string" && n.className ? "." + n.className.trim().replaceAll(/\\s+/g, ".") : ""} “${(n.textContent || n.getAttribute("aria-label") || "").trim().replaceAll(/\\s+/g, " ").slice(0, 40)}”`;
    const styleOf = (n) => getComputedStyle(n);
    const scrolls = (n) => ["auto", "scroll"].includes(styleOf(n).overflowX);
    const clips = (n, side) => ["hidden", "clip"].includes(side === "X" ? styleOf(n).overflowX : styleOf(n).overflowY);
    const above = (n, test) => { for (let at = n.parentElement; at; at = at.parentElement) if (test(at)) return at; return null; };
    // words for screen readers alone, and what lies outside the picture on purpose
    const clipped = (n) => styleOf(n).clipPath !== "none" || styleOf(n).clip.startsWith("rect(0px");
    const unseen = (n) => !n.checkVisibility({ visibilityProperty: true, opacityProperty: true, contentVisibilityAuto: true }) || clipped(n) || Boolean(above(n, clipped));
    const shows = (n) => { const s = styleOf(n); return s.maskImage !== "none" || s.backgroundImage !== "none" || n.offsetHeight - n.clientHeight - parseFloat(s.borderTopWidth) - parseFloat(s.borderBottomWidth) > 1; };
    const reachable = (n) => n.tabIndex >= 0 || n.querySelector("a, button, [tabindex]");
    const roomOf = (n) => { const home = n.closest("main, article, body") || document.body, s = styleOf(home); return home.clientWidth - parseFloat(s.paddingLeft) - parseFloat(s.paddingRight); };
    return () => {
      const faults = [], wide = document.documentElement.clientWidth;
      if (document.documentElement.scrollWidth > wide + near) faults.push(`the page is ${document.documentElement.scrollWidth} wide on a screen of ${wide}`);
      for (const n of document.body.querySelectorAll("*")) {
        if (["SCRIPT", "STYLE", "OPTION", "IFRAME", "NOSCRIPT"].includes(n.tagName) || n.id === "__result" || n.closest("#__result") || unseen(n)) continue;
        const box = n.getBoundingClientRect(), within = above(n, scrolls);
        if (!box.width || !box.height) continue;
        const picture = n.closest("svg");
        if (picture) {
          const frame = picture.getBoundingClientRect();
          if (n.tagName === "text" && styleOf(picture).overflow !== "visible" && (box.left < frame.left - near || box.right > frame.right + near || box.top < frame.top - 4 || box.bottom > frame.bottom + 4)) faults.push(`label cut by its picture: ${nameOf(n)}`);
          if (n !== picture) continue;
        }
        if (!within && (box.right > wide + near || box.left < -near)) faults.push(`past the screen's edge (${Math.round(box.left)} to ${Math.round(box.right)} of ${wide}): ${nameOf(n)}`);
        const over = n.scrollWidth - n.clientWidth, field = ["INPUT", "SELECT", "TEXTAREA"].includes(n.tagName);
        if (n.clientWidth && over > near && clips(n, "X") && !field) faults.push(`cut ${over} pixels short: ${nameOf(n)}`);
        if (n.clientHeight && n.scrollHeight - n.clientHeight > 3 && clips(n, "Y") && !field) faults.push(`cut ${n.scrollHeight - n.clientHeight} pixels low: ${nameOf(n)}`);
        if (scrolls(n) && over > near && !field) {
          const tables = [...n.querySelectorAll("table")].filter((t) => t.getBoundingClientRect().width > n.clientWidth + near);
          if (tables.some((t) => !t.classList.contains("grid"))) faults.push(`a table ${n.scrollWidth} wide in a box of ${n.clientWidth}: ${nameOf(n)}`);
          else if (tables.length && n.scrollWidth <= roomOf(n)) faults.push(`a map ${n.scrollWidth} wide in a box of ${n.clientWidth} beside free space: ${nameOf(n)}`);
          else if (tables.some((t) => [...t.querySelectorAll(".cell, .share")].some((own) => own.getBoundingClientRect().width > 32))) faults.push(`a map ${n.scrollWidth} wide in a box of ${n.clientWidth}, whose cells could be smaller: ${nameOf(n)}`);
          else if (!tables.length && n.querySelector(".grid") && n.scrollWidth <= roomOf(n)) faults.push(`hidden words widen a map: ${nameOf(n)}`);
          if (!shows(n) || !reachable(n)) faults.push(`scrolls, which nothing shows: ${nameOf(n)}`);
        }
        // words that leave their own box and run over what stands next to it
        if (n.clientWidth && over > 3 && styleOf(n).overflowX === "visible" && [...n.childNodes].some((own) => own.nodeType === 3 && own.textContent.trim()) && ["block", "table-cell", "list-item", "flex", "inline-block"].includes(styleOf(n).display)) {
          const range = document.createRange();
          const words = [...n.childNodes].filter((own) => own.nodeType === 3).flatMap((own) => { range.selectNodeContents(own); return [...range.getClientRects()]; });
          if (words.some((own) => own.right > box.right + 3)) faults.push(`words leave their box: ${nameOf(n)}`);
        }
      }
      return [...new Set(faults)];
    };
  })();
"""


def cut_on(keys: Page, places: Iterable[str] = ("",)) -> dict[str, list[str]]:
    """Parts not shown whole at each place of a page (its address after `#`), all folds opened."""
    faults = {}
    for place in places:
        found = keys.read(f"""(async () => {{
          const wait = (ms) => new Promise((go) => setTimeout(go, ms));
          location.hash = {json.dumps(place)};
          await wait(100);
          document.querySelectorAll("details").forEach((own) => {{ own.open = true; }});
          await wait(50);
          {CUT}
          return cut();
        }})()""")
        if found:
            faults[place] = found
    return faults
