package yardstick;

import java.time.Duration;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;

/**
 * What most would write by the DSL: split batches into cells at their own times, group by (publisher, broker), window,
 * aggregate, write. A cell's time is its second, which flatMap cannot say, so process() splits.
 *
 * Partitions of the topic between both halves are filled unevenly in a backlog, so a window that waits for a grace
 * loses much: here every update is written, and the newest row of a key is the final one.
 */
final class NaturalQuery {
    private static final Duration GRACE = Duration.ofDays(1);

    private NaturalQuery() {}

    static void build(StreamsBuilder builder) {
        Duration window = Duration.ofMillis(Settings.WINDOW_MS);
        builder.stream(Settings.telemetryTopic, Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
                .process(Split::new)
                .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
                .windowedBy(TimeWindows.ofSizeAndGrace(window, GRACE))
                .aggregate(
                        () -> new byte[0],
                        (name, cell, all) -> {
                            Report.CELLS.increment();
                            return Cells.of(all).merge(Cells.of(cell)).stored();
                        },
                        Materialized.<String, byte[]>as(
                                        Stores.inMemoryWindowStore("windows", GRACE.plus(window), window, false))
                                .withKeySerde(Serdes.String())
                                .withValueSerde(Serdes.ByteArray())
                                .withCachingEnabled())
                .toStream()
                .map((name, cells) -> {
                    String[] names = name.key().split("\\|");
                    Row row = new Row();
                    Cells.of(cells).row(name.window().start(), names[0], names[1], row::set);
                    return KeyValue.pair(row.key, row.value);
                })
                .to(Settings.stateTopic, Produced.with(Serdes.ByteArray(), Serdes.ByteArray()));
    }

    private static final class Row {
        byte[] key, value;

        void set(byte[] givenKey, byte[] givenValue) {
            key = givenKey;
            value = givenValue;
        }
    }

    private static final class Split extends ContextualProcessor<byte[], byte[], String, byte[]> {
        @Override
        public void process(Record<byte[], byte[]> record) {
            Batch batch = new Batch(record.value());
            for (Batch.PackedSecond second : batch.seconds) {
                long timeMs = second.second() * 1000;
                second.cells((publisher, block, mask, published, local, size) -> {
                    Cells cell = new Cells().merge(block, second.second(), mask, published, local, size);
                    context().forward(new Record<>(publisher + "|" + batch.broker, cell.stored(), timeMs));
                });
            }
            Report.RECORDS.increment();
        }
    }
}
