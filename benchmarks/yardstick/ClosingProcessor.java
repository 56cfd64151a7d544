package yardstick;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Keeps batches in a store and writes the final rows of a window once its grace is over by the time of the partition.
 * Entries of a window are adjacent: their keys begin with its start. The subclasses define what entries contain.
 */
abstract class ClosingProcessor implements Processor<byte[], byte[], byte[], byte[]> {
    static final String STORE = "open";

    KeyValueStore<Bytes, byte[]> store;
    private ProcessorContext<byte[], byte[]> context;
    private final TreeSet<Long> open = new TreeSet<>();
    private long closedMs;
    private long latestMs;

    /** Keeps what a batch reports of one second; returns the number of cells. */
    abstract int keep(Batch batch, int place);

    /** Writes the rows of all entries of a window. */
    abstract void write(long startMs, List<KeyValue<Bytes, byte[]>> entries);

    @Override
    public void init(ProcessorContext<byte[], byte[]> given) {
        context = given;
        store = given.getStateStore(STORE);
    }

    @Override
    public void process(Record<byte[], byte[]> record) {
        Batch batch = new Batch(record.value());
        int cells = 0;
        for (int place = 0; place < batch.seconds.size(); place++) {
            long startMs = batch.seconds.get(place).windowMs();
            if (startMs + Settings.WINDOW_MS <= closedMs) {
                Report.LATE.increment();
                cells += batch.seconds.get(place).cellCount();
                continue;
            }
            open.add(startMs);
            cells += keep(batch, place);
        }
        latestMs = Math.max(latestMs, batch.timeMs);
        while (!open.isEmpty() && open.first() + Settings.WINDOW_MS <= latestMs - Settings.GRACE_MS) {
            close(open.pollFirst());
        }
        Report.CELLS.add(cells);
        Report.RECORDS.increment();
    }

    void forward(byte[] key, byte[] row) {
        context.forward(new Record<>(key, row, latestMs));
    }

    static Bytes key(long startMs, String rest) {
        byte[] encoded = Settings.utf8(rest);
        return Bytes.wrap(ByteBuffer.allocate(Long.BYTES + encoded.length).putLong(startMs).put(encoded).array());
    }

    static String[] names(Bytes key) {
        byte[] all = key.get();
        return new String(all, Long.BYTES, all.length - Long.BYTES, StandardCharsets.UTF_8).split("\n");
    }

    private void close(long startMs) {
        List<KeyValue<Bytes, byte[]>> entries = new ArrayList<>();
        try (var found = store.range(key(startMs, ""), key(startMs + 1, ""))) {
            found.forEachRemaining(entries::add);
        }
        write(startMs, entries);
        entries.forEach(entry -> store.delete(entry.key));
        closedMs = startMs + Settings.WINDOW_MS;
    }
}
