"""Kafka as every stage uses it: access, clients, topics, reading, writing, dead letters."""
