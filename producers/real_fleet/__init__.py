"""Real NATS or MQTT brokers on one machine, a node next to each, and clients whose every message is accounted for."""
