"""From sums to evidence, and from evidence to tags."""
