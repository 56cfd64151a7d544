"""What stages exchange: records, their Avro schemas, topics and the codec.

The table of topics, with record, writers and readers, is in :mod:`schemas.topics`. This package imports no stage and
reads no clock; only :mod:`schemas.remote_registry` opens connections.
"""
