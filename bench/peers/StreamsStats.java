import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Browser statistics in Kafka Streams, with its default state: RocksDB and changelog topics.
 *
 * <p>Arguments: bootstrap, topic, output topic, state folder, threads, records to expect (0: run until stopped).
 * A run without an end measures latency, so its cache is off and every update is sent at once.
 */
public final class StreamsStats {
  public record Visit(int userId, String page, String eventTime, String browser) {
    long eventMs() {
      return Instant.parse(eventTime).toEpochMilli();
    }
  }

  /** A visit with its time parsed once for both the timestamp extractor and the aggregation. */
  record Timed(String browser, long eventMs) {}

  record Count(long visits, long lastMs) {}

  private static final ObjectReader VISITS =
      new ObjectMapper()
          .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
          .readerFor(Visit.class);

  private static Timed parse(byte[] value) {
    try {
      Visit visit = VISITS.readValue(value);
      return new Timed(visit.browser(), visit.eventMs());
    } catch (java.io.IOException failure) {
      throw new IllegalStateException(failure);
    }
  }

  public static void main(String[] arguments) throws InterruptedException {
    String out = arguments[2];
    long expected = Long.parseLong(arguments[5]);
    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, out);
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[3]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4]);
    settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
    if (expected == 0) {
      settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
    }

    Serializer<Timed> unused = (topic, value) -> new byte[0];
    Deserializer<Timed> reading = (topic, value) -> parse(value);
    Serializer<Count> writing =
        (topic, count) -> count == null ? null : ByteBuffer.allocate(16).putLong(count.visits()).putLong(count.lastMs()).array();
    Deserializer<Count> loading =
        (topic, bytes) -> {
          if (bytes == null) {
            return null;
          }
          ByteBuffer buffer = ByteBuffer.wrap(bytes);
          return new Count(buffer.getLong(), buffer.getLong());
        };
    Serde<Count> counts = Serdes.serdeFrom(writing, loading);

    AtomicLong first = new AtomicLong();
    AtomicLong arrived = new AtomicLong();
    CountDownLatch finished = new CountDownLatch(1);
    StreamsBuilder builder = new StreamsBuilder();
    builder.stream(
            arguments[1],
            Consumed.with(Serdes.ByteArray(), Serdes.serdeFrom(unused, reading))
                .withTimestampExtractor((record, previous) -> ((Timed) record.value()).eventMs()))
        .peek((key, visit) -> first.compareAndSet(0, System.currentTimeMillis()))
        .map((key, visit) -> KeyValue.pair(visit.browser(), visit.eventMs()))
        .repartition(Repartitioned.with(Serdes.String(), Serdes.Long()).withName("by-browser"))
        .peek(
            (browser, at) -> {
              if (arrived.incrementAndGet() == expected) {
                finished.countDown();
              }
            })
        .groupByKey(Grouped.with(Serdes.String(), Serdes.Long()))
        .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(5), Duration.ofMinutes(20)))
        .aggregate(
            () -> new Count(0, 0),
            (browser, at, count) -> new Count(count.visits() + 1, Math.max(count.lastMs(), at)),
            Materialized.with(Serdes.String(), counts))
        .toStream()
        .map(
            (window, count) ->
                KeyValue.pair(
                    window.key(),
                    String.format(
                        "{\"browser\":\"%s\",\"start\":%d,\"count\":%d,\"last\":%d}",
                        window.key(), window.window().start(), count.visits(), count.lastMs())))
        .to(out, Produced.with(Serdes.String(), Serdes.String()));

    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    streams.setUncaughtExceptionHandler(
        failure -> {
          failure.printStackTrace();
          Runtime.getRuntime().halt(1);
          return null;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
    streams.start();
    finished.await();
    streams.close();
    System.out.printf("{\"ready_at\": %.3f, \"done_at\": %.3f}%n", first.get() / 1e3, System.currentTimeMillis() / 1e3);
  }
}
