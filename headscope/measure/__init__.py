"""Windows of text to sums over attention: the plan, batches, readers of layers, and the tally."""
