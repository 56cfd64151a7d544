"""The records of a finished run, read from Kafka."""
