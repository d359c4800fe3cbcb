"""Which key/value heads may keep the first tokens and a recent window only, and what that costs."""
