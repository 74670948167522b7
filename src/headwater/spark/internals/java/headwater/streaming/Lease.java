package headwater.streaming;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.net.InetAddress;

/** The record of a lease, as headwater.checkpoint.lease reads it. */
record Lease(String holder, long pid, String host, long sinceMs) {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long STALE_AFTER_MS = 30_000;

  Lease(String holder, long pid) {
    this(holder, pid, hostName(), System.currentTimeMillis());
  }

  byte[] toBytes() {
    ObjectNode record = JSON.createObjectNode();
    record.put("holder", holder);
    record.put("pid", pid);
    record.put("host", host);
    record.put("since_ms", sinceMs);
    record.put("heartbeat_ms", System.currentTimeMillis());
    record.put("attached", true);
    return record.toString().getBytes(StandardCharsets.UTF_8);
  }

  static JsonNode parse(byte[] record) {
    try {
      return record == null ? JSON.createObjectNode() : JSON.readTree(record);
    } catch (IOException corrupt) {
      return JSON.createObjectNode();
    }
  }

  static boolean isFresh(JsonNode record) {
    return System.currentTimeMillis() - record.path("heartbeat_ms").asLong() <= STALE_AFTER_MS;
  }

  boolean isOfSameProcess(JsonNode record) {
    return record.path("pid").asLong() == pid && record.path("host").asText().equals(host);
  }

  /** Returns whether a request names this lease, as headwater.checkpoint.lease.Lease.identity does. */
  boolean isNamedBy(JsonNode identity) {
    return isOfSameProcess(identity) && identity.path("since_ms").asLong() == sinceMs;
  }

  static String describe(JsonNode record) {
    return record.path("holder").asText("unknown") + ", process " + record.path("pid").asText("unknown")
        + " on " + record.path("host").asText("an unknown host");
  }

  /** Returns the name that Python's gethostname returns, which may differ from that of the name service. */
  private static String hostName() {
    try {
      return Files.readString(Path.of("/proc/sys/kernel/hostname")).strip();
    } catch (IOException notLinux) {
      try {
        return InetAddress.getLocalHost().getHostName();
      } catch (IOException unknown) {
        return "localhost";
      }
    }
  }
}
