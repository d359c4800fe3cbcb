"""Many runs as one site of pages that ask no network."""
