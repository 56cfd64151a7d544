"""Put a recording on Kafka again, and decide again on what was recorded."""
