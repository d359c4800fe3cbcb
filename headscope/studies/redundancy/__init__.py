"""Likeness of a model's heads, by the attention that they pay to the same text."""
