"""Heads on natural text whose answer is known: heuristics, and oracles that read the annotation."""
