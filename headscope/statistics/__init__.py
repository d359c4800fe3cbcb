"""Statistics of a run: sums to evidence, and evidence to tags.

`estimates` makes the evidence, a row per head and relation. `conditions` lists what decides a tag,
each a `condition`; `tags` applies the conditions to the evidence. `judge_heads` runs these steps.
"""
