"""How alike a model's heads are, by the attention that they pay to the same text."""
