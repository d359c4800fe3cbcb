"""Evidence on heads from the weights alone: copying, composition and writes; no text is read."""
