"""Short answers on single heads: of a run, or of a model that is read for them alone."""
