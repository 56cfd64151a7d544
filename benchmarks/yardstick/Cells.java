package yardstick;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.function.BiConsumer;

/**
 * What one broker reports of one publisher in one window: a cell for each (block, second), merged so that a cell that
 * comes early, again or twice changes nothing. As bytes, for a store: six longs a cell.
 */
final class Cells {
    private static final int BLOCK = 0, SECOND = 1, MASK = 2, PUBLISHED = 3, LOCAL = 4, SIZE = 5, WIDTH = 6;

    private long[] values = new long[8 * WIDTH];
    private int used;

    static Cells of(byte[] stored) {
        Cells cells = new Cells();
        if (stored != null) {
            cells.used = stored.length / Long.BYTES;
            cells.values = new long[cells.used + 4 * WIDTH];
            ByteBuffer.wrap(stored).asLongBuffer().get(cells.values, 0, cells.used);
        }
        return cells;
    }

    byte[] stored() {
        ByteBuffer buffer = ByteBuffer.allocate(used * Long.BYTES);
        buffer.asLongBuffer().put(values, 0, used);
        return buffer.array();
    }

    Cells merge(Cells other) {
        for (int at = 0; at < other.used; at += WIDTH) {
            long[] from = other.values;
            merge(from[at], from[at + SECOND], from[at + MASK], from[at + PUBLISHED], from[at + LOCAL], from[at + SIZE]);
        }
        return this;
    }

    Cells merge(long block, long second, long mask, long published, long local, long size) {
        int at = 0;
        while (at < used && (values[at + BLOCK] != block || values[at + SECOND] != second)) {
            at += WIDTH;
        }
        if (at == used) {
            used += WIDTH;
            if (used > values.length) {
                values = Arrays.copyOf(values, 2 * values.length);
            }
            values[at + BLOCK] = block;
            values[at + SECOND] = second;
        }
        values[at + MASK] |= mask;
        values[at + PUBLISHED] |= published;
        values[at + LOCAL] = Math.max(values[at + LOCAL], local);
        values[at + SIZE] = Math.max(values[at + SIZE], size);
        return this;
    }

    /** Hands over the key and the bytes of the final row: a single StateRow of kind delivery. */
    void row(long startMs, String publisher, String broker, BiConsumer<byte[], byte[]> sink) {
        long[] blocks = new long[used / WIDTH], masks = new long[used / WIDTH], published = new long[used / WIDTH];
        long local = 0, size = 0, notifications = 0;
        int count = 0;
        for (int at = 0; at < used; at += WIDTH) {
            local += values[at + LOCAL];
            size += values[at + SIZE];
            int place = 0;
            while (place < count && blocks[place] < values[at + BLOCK]) {
                place++;
            }
            if (place == count || blocks[place] != values[at + BLOCK]) {
                for (long[] column : new long[][] {blocks, masks, published}) {
                    System.arraycopy(column, place, column, place + 1, count - place);
                    column[place] = 0;
                }
                blocks[place] = values[at + BLOCK];
                count++;
            }
            masks[place] |= values[at + MASK];
            published[place] |= values[at + PUBLISHED];
        }
        for (int place = 0; place < count; place++) {
            notifications += Long.bitCount(masks[place] | published[place]);
        }
        AvroWriter row = new AvroWriter(Settings.stateHeader);
        row.number(startMs).number(startMs + Settings.WINDOW_MS).text("delivery").text(publisher + "|" + broker);
        row.number(0).number(1); // No interest; the second branch of the union is the delivery.
        row.text(publisher).text(broker).number(notifications).number(local).number(size);
        row.numbers(blocks, count).numbers(masks, count).numbers(published, count);
        row.number(0).number(0).number(0).number(0); // No queue, round trip, churn, packed deliveries.
        sink.accept(Settings.utf8(startMs + "/delivery/" + publisher + "|" + broker), row.bytes());
    }
}
