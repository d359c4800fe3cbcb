"""What it is worth that the heads of a layer attend differently."""
