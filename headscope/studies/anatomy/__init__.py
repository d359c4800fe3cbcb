"""What a model is made of: dimensions, parameters by formula and as counted, key/value cache."""
