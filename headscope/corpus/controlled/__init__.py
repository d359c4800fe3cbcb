"""Word lists and prompts of controlled English."""
