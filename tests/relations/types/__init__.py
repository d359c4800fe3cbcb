"""Examples and heads of single head types: a file each."""
