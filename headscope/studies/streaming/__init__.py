"""Key/value heads that may keep the first tokens and a recent window only, and the cost."""
