"""Run folders: written whole, read back checked, gone on with after a stop."""
