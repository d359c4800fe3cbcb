"""Why a head looks: the directions of queries and keys that tell targets from controls."""
