"""The heads of a run in the data format that the HeadVis frontend reads."""
