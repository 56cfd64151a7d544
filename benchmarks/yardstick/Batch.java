package yardstick;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/** A TelemetryBatch of version 3, read by hand from Avro's binary form; of queues, probes and clients only the length. */
final class Batch {
    final String broker;
    final long boot, sequence, timeMs;
    final List<PackedSecond> seconds = new ArrayList<>(2);

    /** Packed cells of one second; {@code raw} is all of it as received. */
    record PackedSecond(long second, byte[] raw) {
        interface Taker {
            void take(String publisher, long block, long mask, long published, long local, long size);
        }

        int cellCount() {
            Reader reader = new Reader(raw, 0);
            reader.number();
            reader.skipBinary();
            reader.skipBinary();
            return (int) reader.number() / 8; // Masks.
        }

        long windowMs() {
            long ms = second * 1000;
            return ms - ms % Settings.WINDOW_MS;
        }

        void cells(Taker taker) {
            Reader reader = new Reader(raw, 0);
            reader.number();
            String[] publishers = reader.text().split("\n");
            ByteBuffer blocks = reader.binary(), masks = reader.binary(), published = reader.binary();
            ByteBuffer local = reader.binary(), size = reader.binary();
            for (int cell = 0; cell < publishers.length; cell++) {
                long own = published.limit() == 0 ? 0 : published.getLong(8 * cell);
                taker.take(publishers[cell], uint56(blocks, cell), masks.getLong(8 * cell), own, uint56(local, cell),
                        uint56(size, cell));
            }
        }

        private static long uint56(ByteBuffer column, int cell) {
            int at = 7 * cell;
            return (column.getInt(at) & 0xFFFFFFFFL) | (column.getShort(at + 4) & 0xFFFFL) << 32
                    | (column.get(at + 6) & 0xFFL) << 48;
        }
    }

    Batch(byte[] value) {
        byte[] header = Settings.telemetryHeader;
        if (!Arrays.equals(value, 0, header.length, header, 0, header.length)) {
            throw new IllegalArgumentException("the record is no TelemetryBatch of the newest version");
        }
        Reader reader = new Reader(value, header.length);
        broker = reader.text();
        boot = reader.number();
        sequence = reader.number();
        timeMs = reader.number();
        reader.number(); // Epoch.
        if (reader.number() != 0) {
            throw new IllegalArgumentException("the batch has single deliveries, the yardstick reads packed ones");
        }
        reader.items(() -> { // Queues.
            reader.skipBinary();
            reader.skipNumbers(9);
        });
        reader.items(() -> { // Probes.
            reader.skipBinary();
            reader.at += 8;
        });
        reader.items(() -> { // Clients.
            reader.skipBinary();
            reader.skipNumbers(1);
            reader.skipBinary();
        });
        reader.items(() -> {
            int begin = reader.at;
            long second = reader.number();
            for (int column = 0; column < 6; column++) {
                reader.skipBinary();
            }
            seconds.add(new PackedSecond(second, Arrays.copyOfRange(value, begin, reader.at)));
        });
    }

    private static final class Reader {
        final byte[] bytes;
        int at;

        Reader(byte[] bytes, int at) {
            this.bytes = bytes;
            this.at = at;
        }

        long number() {
            long value = 0;
            int shift = 0;
            byte next;
            do {
                next = bytes[at++];
                value |= (next & 0x7FL) << shift;
                shift += 7;
            } while (next < 0);
            return (value >>> 1) ^ -(value & 1);
        }

        void skipNumbers(int count) {
            for (int left = count; left > 0; at++) {
                left -= bytes[at] < 0 ? 0 : 1;
            }
        }

        void skipBinary() {
            int length = (int) number();
            at += length;
        }

        String text() {
            int length = (int) number();
            at += length;
            return new String(bytes, at - length, length, StandardCharsets.UTF_8);
        }

        ByteBuffer binary() {
            int length = (int) number();
            at += length;
            return ByteBuffer.wrap(bytes, at - length, length).slice().order(ByteOrder.LITTLE_ENDIAN);
        }

        void items(Runnable item) {
            for (long count = number(); count != 0; count = number()) {
                if (count < 0) {
                    count = -count;
                    number(); // Bytes of this part of the array.
                }
                for (long left = count; left > 0; left--) {
                    item.run();
                }
            }
        }
    }
}
