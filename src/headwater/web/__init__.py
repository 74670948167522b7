"""The live page: batches, watermark and state of a checkpoint in a browser."""
