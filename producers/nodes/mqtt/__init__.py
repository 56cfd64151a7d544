"""The connector to MQTT brokers."""
