"""Places where the layouts of transformers keep the parts of attention: `table` has a row each."""
