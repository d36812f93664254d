"""What runs inside a training process: it measures, stamps and appends to its ring; nothing else."""
