"""The jars that Spark and the broker need, cached with checksums, and the Java that runs them."""
