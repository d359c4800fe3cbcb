"""Three ways to run a model and look at its attention: they give the same sums."""
