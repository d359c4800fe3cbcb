"""Each head as a small rule over named features of the text."""
