"""Runs side by side: which heads changed, and what share of each depth does what."""
