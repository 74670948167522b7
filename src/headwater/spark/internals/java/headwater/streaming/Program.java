package headwater.streaming;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;

/** The program whose queries are recorded: its version and a digest of its code, null where they are unknown. */
record Program(String version, String code) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Returns the program of this JVM, of which only the environment is known. */
  static Program ofEnvironment() {
    String version = System.getenv("HEADWATER_JOB_VERSION");
    return new Program(version == null || version.isEmpty() ? null : version, null);
  }

  /** Returns the record of a run that starts with a batch. */
  ObjectNode run(long batch, String sparkVersion) {
    ObjectNode run = JSON.createObjectNode();
    run.put("at_ms", System.currentTimeMillis());
    run.put("next_batch", batch);
    run.put("version", version);
    run.put("code", code);
    run.put("spark", sparkVersion);
    return run;
  }
}
