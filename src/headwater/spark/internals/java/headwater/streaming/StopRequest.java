package headwater.streaming;

import static headwater.streaming.CheckpointListener.LOG;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReference;

/** Looks for a request to stop one run of a query, as headwater.checkpoint.stop_request makes it, and obeys it. */
final class StopRequest {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String REQUEST = "stop.json";
  private static final String ANSWER = "stopping.json";
  private static final String[] PACKAGES = {
    "org.apache.spark.sql.execution.streaming.runtime.", "org.apache.spark.sql.execution.streaming."
  };
  private static final long POLL_MS = 20;

  private enum Phase {
    IDLE,
    PLANNING,
    WRITING
  }

  /** Each look at an object store is a request to it. */
  private static final int REMOTE_TICKS = 2;

  private final LeasedFolder folder;
  private final Lease lease;
  private final Object execution;
  private final Thread thread;

  private int ticks;
  private String answered = "";
  private boolean isInterrupted;

  StopRequest(LeasedFolder folder, Lease lease, Object execution, Thread thread) {
    this.folder = folder;
    this.lease = lease;
    this.execution = execution;
    this.thread = thread;
  }

  /** Called every second. Returns at once: stopping a query may take as long as its batch. */
  void obey() throws Exception {
    if (folder.isRemote() && ticks++ % REMOTE_TICKS != 0) {
      return;
    }
    byte[] data = folder.read(REQUEST);
    JsonNode request = data == null ? null : Lease.parse(data);
    if (request == null || !lease.isNamedBy(request.path("lease"))) {
      return;
    }
    String id = request.path("request_id").asText();
    if (!id.equals(answered)) {
      ObjectNode answer = JSON.createObjectNode();
      answer.put("request_id", id);
      answer.put("answered_at_ms", System.currentTimeMillis());
      folder.write(ANSWER, answer.toString().getBytes(StandardCharsets.UTF_8));
      answered = id;
      boolean isNow = request.path("now").asBoolean();
      LOG.info("Headwater stops the query {}, as {} has requested", isNow ? "immediately" : "after its batch",
          request.path("requested_by").asText());
      if (isNow) {
        interrupt();
      } else {
        start(this::endAfterBatch);
      }
    }
  }

  /**
   * Sets the state that the query checks before each batch. Spark also checks it once a batch is planned, and interrupts the
   * batch then, so it is set only while a batch writes its output or no batch runs, as the module query_end does.
   */
  private void endAfterBatch() {
    try {
      Object active = stateNamed("ACTIVE$");
      Object terminated = stateNamed("TERMINATED$");
      if (active == null || terminated == null) {
        interrupt();
        return;
      }
      AtomicReference<Object> state = Reflection.call(execution, "state");
      while (thread.isAlive()) {
        Phase phase = phase();
        if (phase != Phase.PLANNING) {
          state.set(terminated);
          if (phase() == phase) {
            if (phase == Phase.IDLE) {
              interrupt(); // no batch begins any more, but the thread may sleep for the rest of a long interval
            }
            return;
          }
          state.set(active); // too late: the next batch may be planned by now
        }
        Thread.sleep(POLL_MS);
      }
    } catch (ReflectiveOperationException | RuntimeException error) {
      LOG.warn("Headwater cannot stop the query after its batch", error);
    } catch (InterruptedException ended) {
      Thread.currentThread().interrupt();
    }
  }

  private Object stateNamed(String name) throws ReflectiveOperationException {
    for (String place : PACKAGES) {
      try {
        return execution.getClass().getClassLoader().loadClass(place + name).getField("MODULE$").get(null);
      } catch (ClassNotFoundException otherRelease) {
        continue;
      }
    }
    return null;
  }

  private Phase phase() throws ReflectiveOperationException {
    Object status = Reflection.call(execution, "status");
    if (!Reflection.<Boolean>call(status, "isTriggerActive")) {
      return Phase.IDLE;
    }
    StackTraceElement[] frames = thread.getStackTrace();
    for (int index = 0; index + 1 < frames.length; index++) {
      StackTraceElement caller = frames[index + 1];
      if (frames[index].getClassName().endsWith("SQLExecution$")
          && frames[index].getMethodName().equals("withNewExecutionId")
          && caller.getClassName().endsWith("MicroBatchExecution")
          && caller.getMethodName().startsWith("$anonfun$runBatch")) {
        return Phase.WRITING;
      }
    }
    return Phase.PLANNING;
  }

  private synchronized void interrupt() {
    if (!isInterrupted) {
      isInterrupted = true;
      start(this::stop);
    }
  }

  private static void start(Runnable work) {
    Thread stopper = new Thread(work, "headwater-stop");
    stopper.setDaemon(true);
    stopper.start();
  }

  private void stop() {
    try {
      execution.getClass().getMethod("stop").invoke(execution);
    } catch (ReflectiveOperationException | RuntimeException error) {
      LOG.warn("Headwater cannot stop the query", error);
    }
  }
}
