"""What a model loses when attention heads are silenced."""
