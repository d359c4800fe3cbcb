"""A task explained: the heads that matter, from where to where they attend, and their circuit."""
