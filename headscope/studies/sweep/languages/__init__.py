"""Across languages: which heads hold a relation in how many of them."""
