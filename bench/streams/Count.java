// The peer: Kafka Streams counts the same events, exactly once, as its own documentation writes it.
//
//   java -cp JARS Count.java BROKERS TOPIC EVENTS
//
// The key of a record is its subject, so nothing is repartitioned. Prints the seconds from the first
// record to the last counted one, and the processor seconds of this process.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;

public class Count {
  static final ObjectMapper JSON = new ObjectMapper();

  static long delta(byte[] value) {
    try {
      JsonNode delta = JSON.readTree(value).get("delta");
      return delta == null ? 1 : delta.asLong();
    } catch (java.io.IOException bad) {
      return 0;
    }
  }

  public static void main(String[] args) throws Exception {
    long events = Long.parseLong(args[2]);
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "count-" + args[1]);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 1000); // as Tally flushes
    settings.put(StreamsConfig.STATE_DIR_CONFIG, Files.createTempDirectory("count").toString());
    settings.put("auto.offset.reset", "earliest");

    AtomicLong counted = new AtomicLong();
    AtomicLong started = new AtomicLong();
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .peek((key, value) -> {
          started.compareAndSet(0, System.nanoTime());
          counted.incrementAndGet();
        })
        .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
        .aggregate(() -> 0L, (key, value, total) -> total + delta(value),
            org.apache.kafka.streams.kstream.Materialized.with(Serdes.String(), Serdes.Long()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.start();
    long deadline = System.nanoTime() + 300_000_000_000L;
    while (counted.get() < events && System.nanoTime() < deadline) Thread.sleep(5);
    double seconds = (System.nanoTime() - started.get()) / 1e9;
    var system = (com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    System.out.println(counted.get() + " " + seconds + " " + system.getProcessCpuTime() / 1e9);
    System.exit(0);
  }
}
