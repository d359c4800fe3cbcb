// A button on each block of code; what it copies has no prompts and no outputs.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(typed(block.querySelector("pre").textContent));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
});

function typed(text) {
  const prompt = /^(>>>|\.\.\.|\$) ?/;
  const lines = text.split("\n");
  const prompted = lines.filter((line) => prompt.test(line));
  return (prompted.length ? prompted.map((line) => line.replace(prompt, "")) : lines).join("\n");
}
