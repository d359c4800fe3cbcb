"""Runs split among processes, on this machine or a Ray cluster."""
