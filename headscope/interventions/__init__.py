"""What breaks without a head: interventions on a model, and what they do to its predictions."""
