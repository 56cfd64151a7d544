package yardstick;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;

/** An entry for each record and second, as received; all of a window are merged when it is closed. */
final class EntryPerRecord extends ClosingProcessor {
    @Override
    int keep(Batch batch, int place) {
        Batch.PackedSecond second = batch.seconds.get(place);
        String name = batch.broker + "\n" + batch.boot + "\n" + batch.sequence + "\n" + second.second();
        store.put(key(second.windowMs(), name), second.raw());
        return second.cellCount();
    }

    @Override
    void write(long startMs, List<KeyValue<Bytes, byte[]>> entries) {
        Map<String, Map<String, Cells>> brokers = new HashMap<>();
        for (KeyValue<Bytes, byte[]> entry : entries) {
            Map<String, Cells> publishers = brokers.computeIfAbsent(names(entry.key)[0], broker -> new HashMap<>());
            long second = Long.parseLong(names(entry.key)[3]);
            new Batch.PackedSecond(second, entry.value).cells((publisher, block, mask, published, local, size) ->
                    publishers.computeIfAbsent(publisher, name -> new Cells())
                            .merge(block, second, mask, published, local, size));
        }
        brokers.forEach((broker, publishers) -> publishers.forEach((publisher, cells) ->
                cells.row(startMs, publisher, broker, this::forward)));
    }
}
