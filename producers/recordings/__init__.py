"""Recordings of Kafka topics: form, writing, reading, replaying."""
