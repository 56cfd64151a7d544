"""Play recordings back to Kafka, and let the control loop decide on them again."""
