package yardstick;

import java.util.Arrays;

/** Writes Avro's binary form, as far as a StateRow needs it. */
final class AvroWriter {
    private byte[] bytes = new byte[256];
    private int end;

    AvroWriter(byte[] header) {
        append(header);
    }

    AvroWriter number(long value) {
        ensure(10);
        long rest = (value << 1) ^ (value >> 63);
        while ((rest & ~0x7FL) != 0) {
            bytes[end++] = (byte) (rest & 0x7F | 0x80);
            rest >>>= 7;
        }
        bytes[end++] = (byte) rest;
        return this;
    }

    AvroWriter text(String value) {
        byte[] encoded = Settings.utf8(value);
        number(encoded.length);
        append(encoded);
        return this;
    }

    AvroWriter numbers(long[] values, int count) {
        if (count > 0) {
            number(count);
            for (int place = 0; place < count; place++) {
                number(values[place]);
            }
        }
        return number(0);
    }

    byte[] bytes() {
        return Arrays.copyOf(bytes, end);
    }

    private void append(byte[] more) {
        ensure(more.length);
        System.arraycopy(more, 0, bytes, end, more.length);
        end += more.length;
    }

    private void ensure(int room) {
        if (end + room > bytes.length) {
            bytes = Arrays.copyOf(bytes, 2 * (end + room));
        }
    }
}
