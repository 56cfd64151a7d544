"""Nodes: the protocol core of a broker next to a real broker, with links to other nodes over TCP.

``BUILT_IN`` lists the files of the built-in connectors, each of which ends with its ``SPEC``;
:mod:`producers.nodes.connectors.find_connectors` loads them.
"""

BUILT_IN = (
    "regraft.producers.nodes.nats.connect_nats",
    "regraft.producers.nodes.mqtt.connect_mqtt",
    "regraft.producers.nodes.amqp.connect_amqp",
)
