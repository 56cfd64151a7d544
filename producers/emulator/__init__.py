"""The emulated overlay around the cores: links, queues, clients, ledger, telemetry."""
