"""The worth of the heads of a layer attending differently."""
