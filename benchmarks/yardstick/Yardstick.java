package yardstick;

import java.time.Duration;
import java.util.Arrays;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.state.Stores;

/**
 * Telemetry to delivery rows by Kafka Streams, until a number of records and cells is done. In: name=value arguments
 * (see Settings). Out: rows in Kafka, and lines of JSON (see Report). Ended by {@code benchmarks/streams_yardstick.py}.
 */
public final class Yardstick {
    private static final Duration CLOSE = Duration.ofSeconds(60);
    private static final long PAUSE_MS = 100;

    private Yardstick() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = Arrays.stream(arguments)
                .map(argument -> argument.split("=", 2))
                .collect(Collectors.toMap(pair -> pair[0], pair -> pair[1]));
        Settings.take(given);
        long records = Long.parseLong(given.get("records")), cells = Long.parseLong(given.get("cells"));
        KafkaStreams streams = new KafkaStreams(topology(given.get("program")), Settings.streams(given));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        boolean isReady = false;
        while (Report.RECORDS.sum() < records || Report.CELLS.sum() < cells) {
            KafkaStreams.State state = streams.state();
            if (state == KafkaStreams.State.ERROR || state == KafkaStreams.State.NOT_RUNNING) {
                System.exit(1);
            }
            if (isReady || state == KafkaStreams.State.RUNNING) {
                Report.print(isReady ? "progress" : "ready");
                isReady = true;
            }
            Thread.sleep(isReady ? PAUSE_MS : 5);
        }
        streams.close(CLOSE); // Writes what is cached, and waits until Kafka has all rows.
        Report.print("ended");
    }

    private static Topology topology(String program) {
        if (program.equals("dsl")) {
            StreamsBuilder builder = new StreamsBuilder();
            NaturalQuery.build(builder);
            return builder.build();
        }
        ProcessorSupplier<byte[], byte[], byte[], byte[]> processor = switch (program) {
            case "entries" -> EntryPerPublisher::new;
            case "records" -> EntryPerRecord::new;
            default -> throw new IllegalArgumentException(program + " is none of entries, records, dsl");
        };
        var bytes = Serdes.ByteArray();
        var store = Stores.keyValueStoreBuilder(
                Stores.inMemoryKeyValueStore(ClosingProcessor.STORE), Serdes.Bytes(), Serdes.ByteArray());
        return new Topology()
                .addSource("telemetry", bytes.deserializer(), bytes.deserializer(), Settings.telemetryTopic)
                .addProcessor("close", processor, "telemetry")
                .addStateStore(store, "close")
                .addSink("rows", Settings.stateTopic, bytes.serializer(), bytes.serializer(), "close");
    }
}
