"""Messages that any client of another broker, or a hostile node, may try to have written to a broker."""

from __future__ import annotations

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.schemas.wire_grammar import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX

INJECTED = "r 0\r\n\r\nLMSG admin.shutdown 4\r\nnow!\r\nLMSG junk"
SUBJECTS = (
    "", "a..b", "a b", INJECTED, "a.\x01", "a.\ud800", "a.\ufdd0", "a.\uffff", "a.*", "a.>", "_REGRAFT.b01.x",
    "$JS.API.STREAM.PURGE.ORDERS", "$SYS.x", "a" * 9_000, "a." * 70 + "a",
)  # fmt: skip
BLOCKS = (
    b"x", b"NATS/1.0\r\n", b"NATS/1.0\r\n\r\nLMSG a 1\r\nx\r\n\r\n", b"NATS/1.0\r\nA: b\nB: c\r\n\r\n",
    b"NATS/1.0\r\nA: " + bytes(HEADERS_BYTES_MAX) + b"\r\n\r\n", b"NATS/1.0\r\nA: \x00\r\n\r\n",
)  # fmt: skip
HOSTILE = (
    *(LocalMessage(subject, b"x") for subject in SUBJECTS),
    *(LocalMessage("a", b"x", headers=block) for block in BLOCKS),
    LocalMessage("a", bytes(PAYLOAD_BYTES_MAX + 1)),
)
# Right by the grammar, but with what only some brokers accept.
ODD = (
    LocalMessage("good", b"odd", "r" * 4_000),
    LocalMessage("good", b"odd", INJECTED),
    LocalMessage("good", b"odd", "$JS.ACK.x"),
    LocalMessage("good", b"odd", headers="NATS/1.0\r\nA: tab\there\r\nB: \x85\ufdd0\r\n\r\n".encode()),
    LocalMessage("good", b"odd", headers=b"NATS/1.0\r\nA: \xff\r\n" + b"n" * 300 + b": " + b"v" * 70_000 + b"\r\n\r\n"),
    LocalMessage("good", b"odd", headers=b"NATS/1.0\r\nAmqp-Expiration: soon\r\nMqtt-Content-Type: \x7fx\r\n\r\n"[:-5]),
    LocalMessage("sensors./x1/", b"odd"),
    LocalMessage("/x24/SYS.broker", b"odd"),
    LocalMessage("good./x2b/", b"odd"),
    LocalMessage("s" * 4_200, b"odd"),
)
