"""The attention that a model needs, and a model with less of it."""
