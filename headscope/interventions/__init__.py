"""What a model loses when its attention heads are changed or taken away."""
