"""Many runs from one file: models × revisions × corpora, and what emerges along the revisions."""
