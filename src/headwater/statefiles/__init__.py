"""Read state files as Arrow tables. Does not import Spark."""
