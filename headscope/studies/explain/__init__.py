"""Each head as a small rule over named features of the text, and the model that runs on rules."""
