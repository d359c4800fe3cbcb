"""Structure of text: what its brackets, quotes, lists and tables say that a word points back to."""
