"""Where the time of `fused` goes: the operations of one measuring, by torch's profiler.

python benchmarks/profile_ops.py CORPUS …
"""

from __future__ import annotations

from forward import classify
from side_by_side import corpora, gpt2_shape, save, scratch, text_windows
from torch.profiler import ProfilerActivity, profile

from headscope.models.load import load_model

SHOWN = 8


def main() -> None:
    rows: dict[str, object] = {}
    with scratch() as folder:
        model = load_model(gpt2_shape(folder), engine="fused", device="cpu")
        for length, tokens in ((256, 8_192), (1_024, 8_192)):
            windows = text_windows(model, corpora(), tokens=tokens, length=length)
            classify(model, windows[:2])
            with profile(activities=[ProfilerActivity.CPU]) as seen:
                classify(model, windows)
            found = sorted(seen.key_averages(), key=lambda each: -each.self_cpu_time_total)
            total = sum(each.self_cpu_time_total for each in found)
            rows[f"share of torch's time at {length}"] = {
                each.key: round(each.self_cpu_time_total / total, 3) for each in found[:SHOWN]
            }
    save("profile_ops", rows)


if __name__ == "__main__":
    main()
