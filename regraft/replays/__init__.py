"""Play a recording back to Kafka, and decide again on it."""
