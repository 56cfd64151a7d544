package yardstick;

import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;

/** An entry for each (window, broker, publisher), merged with each cell that comes. */
final class EntryPerPublisher extends ClosingProcessor {
    @Override
    int keep(Batch batch, int place) {
        Batch.PackedSecond second = batch.seconds.get(place);
        long startMs = second.windowMs();
        int[] count = {0};
        second.cells((publisher, block, mask, published, local, size) -> {
            Bytes key = key(startMs, batch.broker + "\n" + publisher);
            Cells cells = Cells.of(store.get(key));
            store.put(key, cells.merge(block, second.second(), mask, published, local, size).stored());
            count[0]++;
        });
        return count[0];
    }

    @Override
    void write(long startMs, List<KeyValue<Bytes, byte[]>> entries) {
        for (KeyValue<Bytes, byte[]> entry : entries) {
            String[] names = names(entry.key);
            Cells.of(entry.value).row(startMs, names[1], names[0], this::forward);
        }
    }
}
