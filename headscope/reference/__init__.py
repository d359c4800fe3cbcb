"""Attention from its parts, one idea per file, to be read and to be checked against."""
