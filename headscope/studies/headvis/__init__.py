"""Export of a run for HeadVis and Neuronpedia."""
