"""What the weights alone say about heads: copying, composition and writes; no text is read."""
