"""What the loop needs of the world: Kafka, the live view, and both in memory."""
