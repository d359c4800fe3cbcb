"""Heads that carry the task of a few examples to the place where the answer is due."""
