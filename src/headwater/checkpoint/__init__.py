"""A checkpoint as Spark writes it: folders of small text logs. Nothing here imports Spark."""
