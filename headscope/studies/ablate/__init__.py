"""Losses of a model when attention heads are silenced."""
