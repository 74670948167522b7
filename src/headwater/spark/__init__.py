"""Everything that talks to Spark: sessions, sources, sinks, runs, replays and Spark's own state reader."""
