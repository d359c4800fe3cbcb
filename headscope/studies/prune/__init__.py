"""How much of a model's attention is needed, and a model with less of it."""
