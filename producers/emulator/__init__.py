"""The emulated overlay around the brokers' cores: links, queues, clients, ledger, telemetry."""
