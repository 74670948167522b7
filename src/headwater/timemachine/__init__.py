"""Plan changes to a checkpoint, apply and undo them, and compare its state between batches. Does not import Spark."""
