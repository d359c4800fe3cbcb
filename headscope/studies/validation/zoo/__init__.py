"""Heads on natural text whose answer is known: habits, and oracles that read the annotation."""
