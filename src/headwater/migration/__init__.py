"""Changes to a stream's code and state: whether new code can resume from a checkpoint, and what it would change."""
