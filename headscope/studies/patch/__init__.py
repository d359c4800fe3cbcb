"""Effects of single heads and edges on one prompt, by activations from another."""
