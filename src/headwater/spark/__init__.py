"""The rooms that talk to Spark: session, sources, sinks, runner."""
