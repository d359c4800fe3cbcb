"""classify beside TransformerLens' `detect_head` over the same documents, per type and token.

    python benchmarks/detect_head.py CORPUS …

`detect_head` knows three types and runs the model once for each; classify scores six in one run.
"""

from __future__ import annotations

from forward import classify
from side_by_side import alternate, corpora, gpt2_shape, ratio, save, scratch, text_windows
from transformer_lens.head_detector import HEAD_NAMES, detect_head

from headscope.models.load import load_model
from headscope.relations import head_types


def main() -> None:
    with scratch() as folder:
        name = gpt2_shape(folder, vocabulary=50_257)  # it unembeds
        model, lens = load_model(name, device="cpu"), load_model(name, engine="lens", device="cpu")
        windows = text_windows(model, corpora(), tokens=4_096, length=256)
        texts = ["".join(window.strings[1:]) for window in windows]
        bridge = lens.bridge

        def detect() -> None:
            for kind in HEAD_NAMES:
                for text in texts:
                    detect_head(bridge, text, kind)

        seconds = alternate(2, headscope=lambda: classify(model, windows), detect_head=detect)
    whole = ratio(seconds, "detect_head", "headscope")
    per_type = whole / len(HEAD_NAMES) * len(head_types())
    save("detect_head", {"detect_head ÷ headscope, per type and token": round(per_type, 2),
                         "detect_head (3 types) ÷ headscope (6 types)": whole})  # fmt: skip


if __name__ == "__main__":
    main()
