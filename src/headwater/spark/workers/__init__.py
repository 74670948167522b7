"""Spark's Python workers, where custom state is read and written: what runs in their processes and not in the job's."""
