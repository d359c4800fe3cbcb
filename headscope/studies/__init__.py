"""What is asked of a finished run or a model, a folder for each question."""
