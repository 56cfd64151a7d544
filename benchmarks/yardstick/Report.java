package yardstick;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.producer.ProducerInterceptor;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;

/** Counts what is done, and when Kafka had the last row; reports it on standard output, one line of JSON each time. */
public final class Report implements ProducerInterceptor<byte[], byte[]> {
    static final LongAdder RECORDS = new LongAdder(), CELLS = new LongAdder(), LATE = new LongAdder();
    private static final LongAdder ROWS = new LongAdder();
    private static volatile long lastRowMs;

    static void print(String what) throws IOException {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        String peak = Files.readString(Path.of("/proc/self/status")).split("VmHWM:")[1].trim().split("\\s+")[0];
        System.out.printf(
                "{\"what\": \"%s\", \"at_ms\": %d, \"records\": %d, \"cells\": %d, \"late\": %d, \"rows\": %d,"
                        + " \"last_row_ms\": %d, \"cpu_ms\": %d, \"peak_kb\": %s}%n",
                what, System.currentTimeMillis(), RECORDS.sum(), CELLS.sum(), LATE.sum(), ROWS.sum(), lastRowMs,
                system.getProcessCpuTime() / 1_000_000, peak);
        System.out.flush();
    }

    @Override
    public ProducerRecord<byte[], byte[]> onSend(ProducerRecord<byte[], byte[]> record) {
        return record;
    }

    @Override
    public void onAcknowledgement(RecordMetadata metadata, Exception error) {
        if (error == null && metadata.topic().equals(Settings.stateTopic)) {
            ROWS.increment();
            lastRowMs = System.currentTimeMillis();
        }
    }

    @Override
    public void close() {}

    @Override
    public void configure(Map<String, ?> settings) {}
}
