package headwater.streaming;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.spark.SparkConf;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * Records every query of a session that has a checkpoint, under _headwater/ in that checkpoint, and holds its lease.
 *
 * Nothing here fails or delays a query: errors are logged, one warning for each query, and a store that is not a local
 * disk is accessed only from a thread of this listener.
 */
public final class CheckpointListener extends StreamingQueryListener {
  static final Logger LOG = LoggerFactory.getLogger(CheckpointListener.class);
  private static final int MOST_REPORTS = 10_000;

  private final SparkSession givenSession;
  private final long pid;
  private volatile Program program = Program.ofEnvironment();
  private volatile LinkedBlockingQueue<String> reports;
  private volatile LinkedBlockingQueue<String> ended;
  /** Changed only while its lock is held: queries begin and end in several threads. */
  private final Map<UUID, RecordedQuery> queries = new ConcurrentHashMap<>();
  private boolean isClosed;
  private final ScheduledExecutorService clock = Executors.newSingleThreadScheduledExecutor(CheckpointListener::daemon);

  /** Spark calls this for spark.sql.streaming.streamingQueryListeners. */
  public CheckpointListener(SparkConf ignored) {
    this(null, ProcessHandle.current().pid());
  }

  /** The pid is that of the program, for messages. */
  public CheckpointListener(SparkSession session, long pid) {
    this.givenSession = session;
    this.pid = pid;
    clock.scheduleWithFixedDelay(this::tick, 1, 1, TimeUnit.SECONDS);
  }

  private static Thread daemon(Runnable work) {
    Thread thread = new Thread(work, "headwater-attach");
    thread.setDaemon(true);
    return thread;
  }

  /** Spark calls this in start(), from the thread of the query, before the first batch. */
  @Override
  public void onQueryStarted(QueryStartedEvent event) {
    begin(event.id());
  }

  @Override
  public void onQueryProgress(QueryProgressEvent event) {
    RecordedQuery query = queries.get(event.progress().id());
    if (query == null) {
      return;
    }
    String report = query.add(event.progress().json());
    LinkedBlockingQueue<String> wanted = reports;
    if (report != null && wanted != null) {
      wanted.offer(report);
    }
  }

  @Override
  public void onQueryIdle(QueryIdleEvent event) {}

  @Override
  public void onQueryTerminated(QueryTerminatedEvent event) {
    RecordedQuery query = queries.get(event.id());
    if (query != null && query.isRun(event.runId())) {
      if (event.exception().isDefined()) {
        query.addFailure(event.exception().get());
      }
      endIf(() -> query.isRun(event.runId()), event.id(), query);
    }
  }

  /** Records a query that is running; does nothing if it is recorded already. */
  public void begin(UUID id) {
    try {
      Object execution = execution(id);
      if (execution == null) {
        LOG.warn("Headwater does not record query {}: Spark does not list it", id);
        return;
      }
      if (Reflection.<Boolean>field(execution, "deleteCheckpointOnStop")) {
        return; // a temporary checkpoint, which Spark deletes
      }
      List<RecordedQuery> replaced = new ArrayList<>();
      RecordedQuery query = queryOf(id, execution, replaced);
      replaced.forEach(this::release);
      if (query == null) {
        return;
      }
      if (query.isRemote()) {
        clock.execute(query::work);
      } else {
        query.work();
      }
    } catch (Exception | LinkageError error) {
      LOG.warn("Headwater does not record query {}", id, error);
    }
  }

  /**
   * Returns a new record, or that of the previous run: the event of its end may still be in Spark's queue. Null if the
   * listener is closed. Adds the records that the new one replaces to a list, for the caller to release.
   */
  private RecordedQuery queryOf(UUID id, Object execution, List<RecordedQuery> replaced)
      throws ReflectiveOperationException {
    String checkpoint = RecordedQuery.checkpointOf(execution);
    synchronized (queries) {
      if (isClosed) {
        return null;
      }
      RecordedQuery known = queries.get(id);
      if (known != null && known.isAt(checkpoint)) {
        known.setRun(execution);
        return known;
      }
      RecordedQuery query = new RecordedQuery(execution, pid, program);
      queries.forEach(
          (other, earlier) -> {
            if (other.equals(id) || earlier.isAt(checkpoint)) {
              replaced.add(earlier);
            }
          });
      queries.values().removeAll(replaced);
      queries.put(id, query);
      return query;
    }
  }

  /** Sets what is recorded about the program of queries that begin later; null is unknown. */
  public void setProgram(String version, String code) {
    program = new Program(version, code);
  }

  /** Keeps reports for takeReports from now on. */
  public void keepReports() {
    reports = reports == null ? new LinkedBlockingQueue<>(MOST_REPORTS) : reports;
  }

  /** Returns the reports since the last call, each as JSON: {"job", "checkpoint", "record"}. */
  public List<String> takeReports() {
    List<String> taken = new ArrayList<>();
    if (reports != null) {
      reports.drainTo(taken);
    }
    return taken;
  }

  /** Keeps the checkpoints of queries that end for takeEnded from now on. */
  public void keepEnded() {
    ended = ended == null ? new LinkedBlockingQueue<>(MOST_REPORTS) : ended;
  }

  /** Returns the checkpoints of the queries that have ended since the last call. */
  public List<String> takeEnded() {
    List<String> taken = new ArrayList<>();
    if (ended != null) {
      ended.drainTo(taken);
    }
    return taken;
  }

  /** Returns the checkpoints of the queries that this listener records now. */
  public List<String> checkpoints() {
    return queries.values().stream().map(RecordedQuery::heldCheckpoint).filter(Objects::nonNull).toList();
  }

  /** Releases all leases. Remove the listener from the session first. */
  public void close() {
    List<RecordedQuery> open;
    synchronized (queries) {
      isClosed = true;
      open = List.copyOf(queries.values());
      queries.clear();
    }
    clock.shutdown();
    open.forEach(this::release);
  }

  /** Ends a query if the condition still holds: another run of it may have begun meanwhile. */
  private void endIf(BooleanSupplier condition, UUID id, RecordedQuery query) {
    synchronized (queries) {
      if (!condition.getAsBoolean() || !queries.remove(id, query)) {
        return;
      }
    }
    release(query);
  }

  /** Waits for the store of the checkpoint, so the caller must not hold the lock. */
  private void release(RecordedQuery query) {
    String checkpoint = query.heldCheckpoint();
    query.close();
    LinkedBlockingQueue<String> wanted = ended;
    if (checkpoint != null && wanted != null) {
      wanted.offer(checkpoint);
    }
  }

  /** Does the work of remote checkpoints, answers requests to stop, and ends queries whose end Spark does not report: those of a stopped session. */
  private void tick() {
    queries.forEach(
        (id, query) -> {
          endIf(query::isOver, id, query);
          query.work();
        });
    if (queries.isEmpty() && givenSession != null && givenSession.sparkContext().isStopped()) {
      close();
    }
  }

  /** Returns Spark's StreamExecution; all sessions of an application share the map. */
  private Object execution(UUID id) throws ReflectiveOperationException {
    SparkSession session = givenSession;
    if (session == null) {
      Option<SparkSession> active = SparkSession.getActiveSession();
      session = active.isDefined() ? active.get() : SparkSession.getDefaultSession().get();
    }
    Map<?, ?> active = Reflection.call(Reflection.call(session, "sharedState"), "activeStreamingQueries");
    return active.get(id);
  }
}
