/* Where the scripts draw in a notebook: a tree of its own, so that neither's sheet reaches the other's elements. */

const host = document.createElement("div"), sheet = document.createElement("style"), PAGE = document.createElement("div");
sheet.textContent = STYLE;
PAGE.className = "page";
host.attachShadow({ mode: "open" }).append(sheet, PAGE);
home.replaceChildren(host);
const DATA = traits.get("_data");
