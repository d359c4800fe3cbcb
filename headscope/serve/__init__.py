"""A model on a page of this machine: any sentence, every head's pattern on it, heads ablated."""
