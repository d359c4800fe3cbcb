"""Effects of ablating heads and knocking out edges."""
