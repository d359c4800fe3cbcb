/* The full view: circuitsvis, unpacked when it is first opened, in a frame of its own that takes the page's colours. */

const CIRCUITSVIS = document.getElementById("circuitsvis");
let library = null;

function circuitsvisText() {
  if (library === null) library = textOf(CIRCUITSVIS.textContent);
  return library;
}

/* circuitsvis draws on white alone: in the dark its picture is turned over, and keeps its hues. The background is what becomes the page's. */
const INVERTED = "#view{background:#e4e4e8;color:#101013;filter:invert(1) hue-rotate(180deg)}";

/* circuitsvis opens on the first of its heads and takes no other by its props: a click on a head's name chooses it. */
const chooseHead = (name) => {
  const own = [...document.querySelectorAll("#view h4")].find((title) => title.textContent === name);
  if (own) own.click();
  else setTimeout(() => chooseHead(name), 30);
};

/* The page inside the frame, open on the head `first` where there are several. Tokens go in as data, with nothing in them that HTML could read. */
function framePage(view, props, first) {
  const style = getComputedStyle(document.body);
  const data = JSON.stringify(props).replace(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`);
  return `<!doctype html><html lang="en" style="color-scheme:${dark.matches ? "dark" : "light"}"><meta charset="utf-8"><title>circuitsvis</title>
<style>body{margin:0;padding:8px;background:${style.backgroundColor};color:${style.color};font:14px/1.4 system-ui,sans-serif} #view *{white-space:nowrap;overflow:visible;text-overflow:clip}
#view select,#view input,#view button{color:inherit;background:transparent} ${dark.matches ? INVERTED : ""}</style>
<div id="view"></div><script>${circuitsvisText()}</${"script"}><script>CircuitsVis.render("view",CircuitsVis.${view},${data})${first ? `;const chooseHead=${chooseHead};chooseHead("${first}")` : ""}</${"script"}></html>`;
}

function circuitFrame(label, view, props, first) {
  const frame = el("iframe", { class: "circuit", title: label, srcdoc: framePage(view, props, first) });
  frame.addEventListener("load", () => {
    const fit = () => { frame.style.height = `${Math.min(900, frame.contentDocument.documentElement.scrollHeight + 12)}px`; };
    setTimeout(fit, 300);
  });
  return frame;
}

/* A part that draws the full view when it is opened, and nothing where the page was made without circuitsvis. */
function circuitDetails(said, label, view, props, first = null) {
  if (!CIRCUITSVIS) return null;
  const details = el("details", { class: "pattern" }, el("summary", {}, said));
  details.addEventListener("toggle", () => {
    if (details.open && !details.querySelector("iframe")) details.append(circuitFrame(label, view, props(), first));
  });
  return details;
}
