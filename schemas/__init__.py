"""What crosses a border between stages: records, their Avro schemas, topics and the codec.

The table topic -> record -> who writes -> who reads is in :mod:`schemas.topics`. This package imports no stage,
opens no connection and reads no clock.
"""
