"""Loading a model, and reading its attention by one of two engines."""
