"""Generated records for the jobs of the gallery: repeatable by seed, with configurable shares of faults."""
