"""What people look at: tables, pictures, patterns, the report."""
