"""A checkpoint as bytes: state files to Arrow tables. Nothing here imports Spark."""
