"""The bare client of NATS that measures agents, beside a server that says more than it was asked."""

import socket
from threading import Thread

from benchmarks.bench_agent import NatsClient, round_trip_ms

MESSAGE, PING, PONG = b"MSG echo 9 5\r\nhello\r\n", b"PING\r\n", b"PONG\r\n"


def _serve(listening: socket.socket, asked: list[bytes]) -> None:
    connection, _ = listening.accept()
    connection.sendall(b'INFO {"headers":true}\r\n')
    for awaited, answer in ((PING, PONG), (b"hello\r\n", MESSAGE + PING), (PONG, b""), (b"hello\r\n", MESSAGE)):
        while awaited not in b"".join(asked):
            asked.append(connection.recv(65_536))
        asked[:] = [b"".join(asked).partition(awaited)[2]]
        connection.sendall(answer)
    connection.close()


def test_a_ping_behind_a_message_does_not_hide_it_and_is_answered() -> None:
    """A server's first PING comes 2 s after CONNECT, about half of the time in one piece with a message."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = Thread(target=_serve, args=(listening, asked), daemon=True)
        server.start()
        client = NatsClient(listening.getsockname()[1])
        client.socket.settimeout(5.0)
        for _ in range(2):
            assert round_trip_ms(client, b"echo") > 0
        client.socket.close()
        server.join(5.0)
        assert not server.is_alive()
