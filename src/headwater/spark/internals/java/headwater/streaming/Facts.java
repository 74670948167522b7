package headwater.streaming;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.time.DateTimeException;
import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.StringJoiner;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** What can be known about a query: its job, for job.json, and its batches, for progress.jsonl. Nothing is guessed. */
final class Facts {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String EPOCH_START = "1970-01-01T00:00:00.000Z";

  /** Options that a record may contain. The others may be secrets. */
  private static final Set<String> KAFKA_OPTIONS = Set.of(
      "subscribepattern", "assign", "kafka.security.protocol", "kafka.sasl.mechanism",
      "kafka.ssl.truststore.location", "kafka.ssl.truststore.type", "kafka.ssl.keystore.location",
      "kafka.ssl.keystore.type", "kafka.ssl.endpoint.identification.algorithm");

  /** Options of file sources, in Spark's spelling, that decide which files are read and which remain. */
  private static final List<String> FILE_OPTIONS = List.of(
      "maxFileAge", "cleanSource", "pathGlobFilter", "recursiveFileLookup", "latestFirst", "maxFilesPerTrigger",
      "maxBytesPerTrigger");

  private static final Set<String> RATE_OPTIONS = Set.of("rowspersecond", "rampuptime", "numpartitions");

  private Facts() {}

  /** Returns what is known of a job, under the names of job.json. */
  static ObjectNode job(Object execution, Configuration conf) throws Exception {
    ObjectNode job = JSON.createObjectNode();
    putIfKnown(job, "job", Reflection.call(execution, "name"));
    putSources(job, execution, conf);
    putIfKnown(job, "sink", sink(execution, conf));
    job.put("mode", Reflection.call(execution, "outputMode").toString().toLowerCase());
    job.put("attached", true);
    return job;
  }

  private static void putIfKnown(ObjectNode job, String name, String value) {
    if (value != null) {
      job.put(name, value);
    }
  }

  /** Puts the URI of the only source, or those of all, by the names that the program gave them or else by number. */
  private static void putSources(ObjectNode job, Object execution, Configuration conf) throws Exception {
    Map<Object, String> found = new LinkedHashMap<>();
    Map<Object, String> names = new LinkedHashMap<>();
    Seq<?> leaves = Reflection.call(Reflection.call(execution, "analyzedPlan"), "collectLeaves");
    for (Object leaf : CollectionConverters.asJava(leaves)) {
      switch (leaf.getClass().getSimpleName()) {
        case "StreamingRelation" -> found.put(leaf, fileSource(Reflection.call(leaf, "dataSource"), conf));
        case "StreamingRelationV2" -> {
          CaseInsensitiveStringMap options = Reflection.call(leaf, "extraOptions");
          Map<String, String> asWritten = withAnyCase(options.asCaseSensitiveMap());
          found.put(leaf, sourceUri(Reflection.call(leaf, "sourceName"), asWritten, conf));
        }
        default -> {
          continue;
        }
      }
      names.putIfAbsent(leaf, nameOf(leaf, names.size()));
    }
    if (found.size() == 1) {
      putIfKnown(job, "source", found.values().iterator().next());
    } else {
      ObjectNode sources = job.putObject("sources");
      found.forEach((leaf, uri) -> putIfKnown(sources, names.get(leaf), uri));
    }
  }

  private static String nameOf(Object relation, int place) {
    try {
      return Reflection.call(Reflection.call(relation, "sourceIdentifyingName"), "name");
    } catch (ReflectiveOperationException unnamed) {
      return String.valueOf(place);
    }
  }

  private static String fileSource(Object source, Configuration conf) throws Exception {
    Option<?> table = Reflection.call(source, "catalogTable");
    if (table.isDefined()) {
      return "table:" + Reflection.<String>call(Reflection.call(table.get(), "identifier"), "unquotedString");
    }
    return sourceUri(Reflection.call(source, "className"), options(Reflection.call(source, "options")), conf);
  }

  private static String sourceUri(String format, Map<String, String> options, Configuration conf) throws IOException {
    return switch (format) {
      case "kafka" -> kafka(options, options.get("subscribe"));
      case "rate" -> "rate:" + query(options, RATE_OPTIONS);
      case "socket" -> "socket://" + options.get("host") + ":" + options.get("port");
      case "csv", "text", "json", "orc", "parquet" -> options.get("path") == null
          ? null
          : "files:" + escaped(absolute(options.get("path"), conf)) + "?format=" + format + fileOptions(options);
      case "delta" -> options.get("path") == null ? null : "delta:" + escaped(absolute(options.get("path"), conf));
      default -> null;
    };
  }

  /** Returns the URI of the sink; null if it is of an unknown kind. */
  private static String sink(Object execution, Configuration conf) throws Exception {
    Object sink = Reflection.call(execution, "sink");
    return switch (sink.getClass().getSimpleName().replace("$", "")) {
      case "FileStreamSink" -> {
        String path = escaped(absolute(Reflection.field(sink, "path"), conf));
        yield "files:" + path + "?format=" + Reflection.call(Reflection.field(sink, "fileFormat"), "shortName");
      }
      case "KafkaTable" -> {
        Map<String, String> options = options(Reflection.field(execution, "extraOptions"));
        yield kafka(options, options.get("topic"));
      }
      case "DeltaSink" -> "delta:" + escaped(absolute(Reflection.field(sink, "path").toString(), conf));
      case "ForeachBatchSink" -> "foreach-batch:";
      case "ForeachWriterTable" -> "foreach:";
      case "ConsoleTable" -> "console:";
      case "NoopTable" -> "noop:";
      case "MemorySink" -> "memory:" + Reflection.call(execution, "name");
      case "SparkTable" -> sink.getClass().getName().startsWith("org.apache.iceberg.")
          ? "iceberg:" + Reflection.call(sink, "name")
          : null;
      default -> null;
    };
  }

  private static String kafka(Map<String, String> options, String topic) {
    String servers = options.get("kafka.bootstrap.servers");
    if (servers == null) {
      return null;
    }
    return "kafka://" + servers.replace(" ", "") + "/" + (topic == null ? "" : topic) + query(options, KAFKA_OPTIONS);
  }

  private static String query(Map<String, String> options, Set<String> allowed) {
    StringJoiner pairs = new StringJoiner("&", "?", "").setEmptyValue("");
    options.forEach(
        (name, value) -> {
          if (allowed.contains(name.toLowerCase())) {
            pairs.add(name + "=" + encoded(value));
          }
        });
    return pairs.toString();
  }

  private static String fileOptions(Map<String, String> options) {
    StringBuilder pairs = new StringBuilder();
    for (String name : FILE_OPTIONS) {
      if (options.get(name) != null) {
        pairs.append('&').append(name).append('=').append(encoded(options.get(name)));
      }
    }
    return pairs.toString();
  }

  private static String encoded(String value) {
    return URLEncoder.encode(value, StandardCharsets.UTF_8).replace("+", "%20");
  }

  /** Returns a path as it has to be in a URI with options. */
  private static String escaped(String path) {
    return path.replace("%", "%25").replace("?", "%3F");
  }

  private static String absolute(String path, Configuration conf) throws IOException {
    Path given = new Path(path);
    Path full = given.getFileSystem(conf).makeQualified(given);
    return "file".equals(full.toUri().getScheme()) ? full.toUri().getPath() : full.toString();
  }

  private static Map<String, String> options(scala.collection.Map<String, String> options) {
    return withAnyCase(CollectionConverters.asJava(options));
  }

  private static Map<String, String> withAnyCase(Map<String, String> options) {
    Map<String, String> copy = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    copy.putAll(options);
    return copy;
  }

  /** Returns the record of a batch, as headwater.spark.progress.progress_record makes it from the same report. */
  static ObjectNode progress(JsonNode report, Streams streams) {
    JsonNode operators = report.path("stateOperators");
    JsonNode eventTime = report.path("eventTime");
    JsonNode durations = report.path("durationMs");
    ObjectNode record = JSON.createObjectNode();
    record.put("batch_id", report.path("batchId").asLong());
    Long planned = epochMs(report.path("timestamp"));
    record.put("at_ms", planned == null ? 0 : planned);
    record.put("input_rows", report.path("numInputRows").asLong());
    record.put("input_rate", rate(report.path("inputRowsPerSecond")));
    record.put("processed_rate", rate(report.path("processedRowsPerSecond")));
    record.put("duration_ms", durations.path("triggerExecution").asLong(report.path("batchDuration").asLong()));
    record.put("watermark_ms", epochMs(eventTime.path("watermark")));
    record.put("event_time_min_ms", epochMs(eventTime.path("min")));
    record.put("event_time_max_ms", epochMs(eventTime.path("max")));
    record.put("state_rows", operators.isEmpty() ? null : sum(operators, "numRowsTotal"));
    record.put("state_bytes", operators.isEmpty() ? null : sum(operators, "memoryUsedBytes"));
    record.put("dropped", sum(operators, "numRowsDroppedByWatermark"));
    record.put("malformed", 0);
    record.put("lag_rows", lag(report.path("sources")));
    ObjectNode phases = record.putObject("durations_ms");
    durations.properties().forEach(phase -> phases.put(phase.getKey(), phase.getValue().asLong()));
    ArrayNode sources = record.putArray("sources");
    boolean hasSeveral = report.path("sources").size() > 1;
    List<String> ids = hasSeveral ? streams.ids() : List.of();
    for (JsonNode source : report.path("sources")) {
      ObjectNode one = JSON.createObjectNode();
      one.put("id", sources.size() < ids.size() ? ids.get(sources.size()) : String.valueOf(sources.size()));
      one.putNull("name");
      one.put("description", source.path("description").asText(null));
      one.put("records", source.path("numInputRows").asLong());
      one.putNull("malformed");
      one.put("lag_rows", lag(JSON.createArrayNode().add(source)));
      sources.add(one);
    }
    record.set("watermarks", hasSeveral ? streams.watermarks() : JSON.createArrayNode());
    return record;
  }

  private static long sum(JsonNode operators, String metric) {
    long total = 0;
    for (JsonNode operator : operators) {
      total += operator.path(metric).asLong();
    }
    return total;
  }

  /** Returns a finite number: Spark reports a rate over no time as the text NaN or Infinity. */
  private static double rate(JsonNode value) {
    return value.isNumber() && Double.isFinite(value.asDouble()) ? value.asDouble() : 0;
  }

  private static Long epochMs(JsonNode time) {
    String text = time.asText("");
    try {
      return text.isEmpty() || text.equals(EPOCH_START) ? null : Instant.parse(text).toEpochMilli();
    } catch (DateTimeException | ArithmeticException unusual) {
      return null;
    }
  }

  /** Returns how many records were in Kafka and not in the batch; null if no source is a topic. */
  private static Long lag(JsonNode sources) {
    Long total = null;
    for (JsonNode source : sources) {
      JsonNode latest = offsets(source.path("latestOffset"));
      JsonNode consumed = offsets(source.path("endOffset"));
      if (latest == null || consumed == null) {
        continue;
      }
      long lag = 0;
      for (Map.Entry<String, JsonNode> topic : latest.properties()) {
        for (Map.Entry<String, JsonNode> partition : topic.getValue().properties()) {
          long end = partition.getValue().asLong();
          lag += Math.max(0, end - consumed.path(topic.getKey()).path(partition.getKey()).asLong(end));
        }
      }
      total = lag + (total == null ? 0 : total);
    }
    return total;
  }

  private static JsonNode offsets(JsonNode value) {
    try {
      JsonNode parsed = value.isTextual() ? JSON.readTree(value.asText()) : value;
      if (!parsed.isObject() || parsed.isEmpty()) {
        return null;
      }
      for (JsonNode partitions : parsed) {
        if (!partitions.isObject()) {
          return null;
        }
      }
      return parsed;
    } catch (JsonProcessingException notJson) {
      return null;
    }
  }
}
