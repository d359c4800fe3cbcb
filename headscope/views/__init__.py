"""Output for readers: tables, pictures, patterns, the report."""
