"""What a model loses when its attention heads are silenced, made alike or taken away."""
