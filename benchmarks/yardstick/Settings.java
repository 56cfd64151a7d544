package yardstick;

import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.streams.StreamsConfig;

/** The settings of the program, given by name=value, and those of Kafka Streams for a job that reads a backlog. */
final class Settings {
    static long WINDOW_MS;
    static long GRACE_MS;
    static byte[] telemetryHeader, stateHeader;
    static String telemetryTopic, stateTopic;

    private Settings() {}

    static void take(Map<String, String> given) {
        WINDOW_MS = Long.parseLong(given.get("window_ms"));
        GRACE_MS = Long.parseLong(given.get("grace_ms"));
        telemetryHeader = HexFormat.of().parseHex(given.get("telemetry_header"));
        stateHeader = HexFormat.of().parseHex(given.get("state_header"));
        telemetryTopic = given.get("telemetry_topic");
        stateTopic = given.get("state_topic");
    }

    static Properties streams(Map<String, String> given) {
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "yardstick-" + given.get("program"));
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given.get("bootstrap"));
        properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, given.get("threads"));
        properties.put(StreamsConfig.STATE_DIR_CONFIG, given.get("state_directory"));
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 64L << 20);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_POLL_RECORDS_CONFIG), 5000);
        properties.put(StreamsConfig.consumerPrefix(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG), 8 << 20);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 50);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BATCH_SIZE_CONFIG), 1 << 18);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.BUFFER_MEMORY_CONFIG), 64L << 20);
        properties.put(StreamsConfig.producerPrefix(ProducerConfig.INTERCEPTOR_CLASSES_CONFIG), Report.class.getName());
        return properties;
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
