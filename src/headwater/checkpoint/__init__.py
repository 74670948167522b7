"""Checkpoints as Spark writes them: text logs, the names of state files, and the checks on them. No Spark required."""
