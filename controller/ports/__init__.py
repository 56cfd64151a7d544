"""The ports of the loop: Kafka, the live view, and both in memory."""
