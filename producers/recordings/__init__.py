"""Recordings of Kafka topics: format, writing, reading, replaying."""
