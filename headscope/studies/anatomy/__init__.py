"""A model's parts: dimensions, parameters by formula and as counted, key/value cache."""
