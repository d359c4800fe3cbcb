"""Comparison of a run with published heads and scores."""
