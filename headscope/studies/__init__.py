"""Studies of a run or a model, a file each; the functions are `headscope.prune` and so on."""
