"""Local infrastructure: find Java, fetch jars, run Kafka, Valkey and child processes on one machine."""
