"""Known answers: models whose heads are built by hand, and how often headscope finds them."""
