"""What is known of a run when it is over, read from Kafka."""
