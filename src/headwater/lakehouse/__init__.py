"""Delta tables without a JVM: which version holds which batch, and the commit that rewinds a table with its stream."""
