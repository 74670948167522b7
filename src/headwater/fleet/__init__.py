"""All checkpoints below some folders or buckets: found, summarized, ordered by trouble, and linked to each other."""
