"""From windows of text to sums over attention: what is read, when, and how it adds up."""
