"""Accept TLS connections for a server on a Unix socket that does not support TLS, such as the packaged Valkey.

``python relay_tls.py PORT CERTIFICATE SOCKET``; the certificate's file also holds its key. Bytes pass unchanged, at the
pace of the slower side. It needs only the standard library, and serves this machine only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys

CHUNK_BYTES = 1 << 16
CONNECTIONS_MAX = 256
HANDSHAKE_S_MAX = 5.0


async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until the reader ends."""
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, socket: str) -> None:
    """Connect one client to the server until either side ends it; close it at once if the server is unavailable."""
    with contextlib.suppress(OSError):
        server_reader, server_writer = await asyncio.open_unix_connection(socket)
        ways = [asyncio.ensure_future(pass_on(reader, server_writer))]
        ways += [asyncio.ensure_future(pass_on(server_reader, writer))]
        _, left = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in left:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        server_writer.close()
    writer.close()


async def serve(port: int, certificate_file: str, socket: str) -> None:
    """Serve until the process is stopped; close connections above the limit at once."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate_file)
    places = asyncio.Semaphore(CONNECTIONS_MAX)

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if places.locked():
            writer.close()
            return
        async with places:
            await relay(reader, writer, socket)

    server = await asyncio.start_server(
        take, "127.0.0.1", port, ssl=context, ssl_handshake_timeout=HANDSHAKE_S_MAX, limit=CHUNK_BYTES
    )
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    try:
        asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))
    except OSError as error:
        sys.exit(f"Port {sys.argv[1]} cannot be served: {os.strerror(error.errno or 0)}.")
