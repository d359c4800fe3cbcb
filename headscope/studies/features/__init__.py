"""What a head's scores are made of: pairs of features of a dictionary, at queries and at keys."""
