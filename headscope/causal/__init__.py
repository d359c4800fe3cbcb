"""Running a model again with a change: interventions, reruns, direct paths, loss."""
