"""Each head as a small model over named features of the text."""
