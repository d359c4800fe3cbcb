"""Source code as a corpus: what its own grammar says of it."""
