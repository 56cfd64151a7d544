"""The whole loop on the virtual clock, without Kafka or Spark."""
