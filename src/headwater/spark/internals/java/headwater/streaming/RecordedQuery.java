package headwater.streaming;

import static headwater.streaming.CheckpointListener.LOG;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;

/** One query and its checkpoint: holds the lease while the query runs, and records the job and each batch. */
final class RecordedQuery {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String JOB_FILE = "job.json";
  private static final String FAILURES = "failures.jsonl";
  private static final int MOST_FAILURES = 1_000;
  private static final String RUNS = "runs.jsonl";
  private static final int MOST_RUNS = 500;
  private static final int MOST_TEXT = 500;

  private final String checkpoint;
  private final String name;
  private final String holder;
  private final long pid;
  private final Program program;
  private final LeasedFolder folder;

  private volatile Object execution;
  private volatile UUID runId;
  private volatile Thread thread;
  private volatile ObjectNode unrecordedJob;
  private volatile ObjectNode unrecordedRun;
  private volatile boolean isFirstBatch;
  private volatile boolean isRecordedByJob;
  private volatile boolean hasWarned;
  private volatile boolean isNewRun;
  private Lease lease;
  private StopRequest stopRequest;
  private boolean isClosed;
  private final Object appending = new Object(); // not this object, which may wait for a remote checkpoint
  private boolean wasOver;
  private long lastBatch = -1;

  RecordedQuery(Object execution, long pid, Program program) throws ReflectiveOperationException {
    this.checkpoint = checkpointOf(execution);
    this.name = Reflection.call(execution, "name");
    this.pid = pid;
    this.program = program;
    SparkContext context = contextOf(execution);
    this.holder = name != null ? name : "a query of " + context.appName();
    this.folder = LeasedFolder.of(checkpoint, context.hadoopConfiguration());
    setRun(execution);
  }

  static String checkpointOf(Object execution) throws ReflectiveOperationException {
    return Reflection.call(execution, "resolvedCheckpointRoot");
  }

  private static SparkContext contextOf(Object execution) throws ReflectiveOperationException {
    return Reflection.call(Reflection.call(execution, "sparkSession"), "sparkContext");
  }

  /** Keeps the lease and the record for another run of the query. */
  void setRun(Object next) throws ReflectiveOperationException {
    if (next == execution) {
      return;
    }
    execution = next;
    runId = Reflection.call(next, "runId");
    thread = Reflection.call(next, "queryExecutionThread");
    isNewRun = true;
    isFirstBatch = true;
    attempt("describe the job", () -> unrecordedJob = Facts.job(next, contextOf(next).hadoopConfiguration()));
  }

  boolean isRemote() {
    return folder.isRemote();
  }

  boolean isAt(String location) {
    return checkpoint.equals(location);
  }

  boolean isRun(UUID id) {
    return runId.equals(id);
  }

  /** Returns whether the thread of the query has ended. A second call has to confirm it: reports may be on their way. */
  boolean isOver() {
    boolean isOver = !thread.isAlive();
    boolean isConfirmed = isOver && wasOver;
    wasOver = isOver;
    return isConfirmed;
  }

  /** Acquires the lease if it is free, and writes what is to be written. Waits for the store of the checkpoint. */
  synchronized void work() {
    if (isClosed) {
      return;
    }
    if (!isRecordedByJob && !folder.isHeld()) {
      attempt("acquire the lease", this::acquire);
    }
    if (folder.isHeld() && isNewRun) {
      attempt("renew the lease", this::renew);
    }
    if (folder.isHeld() && unrecordedJob != null) {
      attempt("record the job", this::recordJob);
    }
    recordRun();
    if (folder.isHeld()) {
      attempt("write the record", folder::flush);
    }
    if (folder.isHeld() && thread.isAlive()) {
      attempt("answer a request to stop", this::obeyStopRequest);
    }
  }

  private void obeyStopRequest() throws Exception {
    if (stopRequest != null) {
      stopRequest.obey();
    }
  }

  /** Gives each run a lease of its own, so that a request to stop the previous one does not stop this one. */
  private void renew() throws Exception {
    isNewRun = false;
    if (stopRequest != null) {
      lease = new Lease(holder, pid);
      folder.renew(lease);
    }
    stopRequest = new StopRequest(folder, lease, execution, thread);
  }

  /** Returns the checkpoint if this listener holds its lease, else null. */
  String heldCheckpoint() {
    return folder.isHeld() ? checkpoint : null;
  }

  private void acquire() throws Exception {
    lease = new Lease(holder, pid);
    switch (folder.acquire(lease)) {
      case HELD_BY_JOB -> isRecordedByJob = true;
      case HELD_ELSEWHERE -> warn(
          "{} is in use by another process ({}). Headwater does not record {} until it is free",
          checkpoint, folder.holder(), holder);
      default -> {}
    }
  }

  /** Replaces the record of an earlier attached run. To the record of a Headwater job, it only adds. */
  private void recordJob() throws Exception {
    byte[] existing = folder.read(JOB_FILE);
    JsonNode known = existing == null ? null : JSON.readTree(existing);
    ObjectNode record = unrecordedJob.deepCopy();
    if (known instanceof ObjectNode job && !job.path("attached").asBoolean()) {
      ObjectNode added = record;
      added.remove(List.of("job", "attached"));
      record = job.deepCopy();
      if (added.has("sink")) {
        record.remove("table_folder");
      }
      added.remove("sources"); // a job names its sources
      if (!record.path("sources").isEmpty()) {
        added.remove("source");
      }
      record.setAll(added);
    }
    if (!record.equals(known)) {
      folder.write(JOB_FILE, JSON.writerWithDefaultPrettyPrinter().writeValueAsBytes(record));
    }
    unrecordedJob = null;
  }

  /** Records a batch; returns it with the name of the job, null if it is not recorded. */
  String add(String progress) {
    if (isRecordedByJob || !(folder.isHeld() || folder.isRemote())) {
      return null;
    }
    try {
      JsonNode report = JSON.readTree(progress);
      long batch = report.path("batchId").asLong();
      // An idle query reports its last batch again, with no rows.
      if (batch == lastBatch && report.path("numInputRows").asLong() == 0) {
        return null;
      }
      lastBatch = batch;
      if (isFirstBatch) {
        isFirstBatch = false;
        unrecordedRun = program.run(batch, contextOf(execution).version());
        if (!isRemote()) {
          recordRun();
        }
      }
      ObjectNode record = Facts.progress(report, new Streams(execution));
      synchronized (appending) {
        if (isClosed) {
          return null; // the lease is another's by now
        }
        attempt("record a batch", () -> folder.append(record + "\n"));
      }
      ObjectNode labeled = JSON.createObjectNode();
      labeled.put("job", name != null ? name : new Path(checkpoint).getName());
      labeled.put("checkpoint", checkpoint);
      labeled.set("record", record);
      return labeled.toString();
    } catch (Exception error) {
      warn("Headwater cannot record a batch of {} in {}", holder, checkpoint, error);
      return null;
    }
  }

  /** Records the run with the first batch that it reports, in the form of headwater.checkpoint.runs. */
  private synchronized void recordRun() {
    ObjectNode run = unrecordedRun;
    if (run != null && folder.isHeld()) {
      unrecordedRun = null;
      attempt("record the run", () -> folder.write(RUNS, withLine(linesOf(folder.read(RUNS)), run, MOST_RUNS)));
    }
  }

  private static List<String> linesOf(byte[] existing) {
    return existing == null ? List.of() : new String(existing, StandardCharsets.UTF_8).lines().toList();
  }

  private static byte[] withLine(List<String> lines, ObjectNode added, int most) {
    Stream<String> kept = lines.stream().skip(Math.max(0, lines.size() - most + 1));
    String text = Stream.concat(kept, Stream.of(added.toString())).collect(Collectors.joining("\n", "", "\n"));
    return text.getBytes(StandardCharsets.UTF_8);
  }

  /** Records the failure that ended the query, in the form of headwater.checkpoint.failures. */
  synchronized void addFailure(String exception) {
    if (folder.isHeld()) {
      attempt("record the failure", () -> folder.write(FAILURES, withFailure(folder.read(FAILURES), exception)));
    }
  }

  private byte[] withFailure(byte[] existing, String exception) throws Exception {
    List<String> lines = linesOf(existing);
    long number = lines.isEmpty() ? 0 : JSON.readTree(lines.get(lines.size() - 1)).path("number").asLong(lines.size());
    String problem = exception.lines().findFirst().orElse("").replaceFirst("^[\\w.$]+(Exception|Error): ", "");
    ObjectNode failure = JSON.createObjectNode();
    failure.put("at_ms", System.currentTimeMillis());
    failure.put("code", "query-failed");
    failure.put("problem", problem.length() > MOST_TEXT ? problem.substring(0, MOST_TEXT) : problem);
    failure.put("batch_id", lastBatch < 0 ? null : (Long) lastBatch);
    failure.put("number", number + 1);
    return withLine(lines, failure, MOST_FAILURES);
  }

  synchronized void close() {
    synchronized (appending) {
      isClosed = true;
    }
    recordRun();
    attempt("release the lease", folder::close);
  }

  private interface Action {
    void run() throws Exception;
  }

  private void attempt(String what, Action action) {
    try {
      action.run();
    } catch (Exception | LinkageError error) {
      warn("Headwater cannot " + what + " of {} in {}", holder, checkpoint, error);
    }
  }

  private void warn(String text, Object... details) {
    if (!hasWarned && !Thread.currentThread().isInterrupted()) {
      hasWarned = true;
      LOG.warn(text, details);
    }
  }
}
