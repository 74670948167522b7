package headwater.state;

import headwater.streaming.Reflection;
import java.io.IOException;
import java.lang.reflect.Field;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkPythonBaseRunner;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Accepts the Python workers of an executor's tasks, and gives each a connection to its task's state.
 *
 * <p>It listens on a socket file in a folder that only this user can open.
 */
final class StateServer {
  private static final Logger LOG = LoggerFactory.getLogger(StateServer.class);

  private final Map<Long, TaskContext> tasks = new ConcurrentHashMap<>();
  private final Path folder;
  private final ServerSocketChannel channel;

  private StateServer() throws IOException {
    folder = Files.createTempDirectory("headwater-state-");
    channel = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    channel.bind(UnixDomainSocketAddress.of(address()), 256);
  }

  static StateServer start() throws IOException {
    StateServer server = new StateServer();
    Runtime.getRuntime().addShutdownHook(new Thread(server::stop));
    startThread("headwater-state-server", server::accept);
    return server;
  }

  String address() {
    return folder.resolve("socket").toString();
  }

  void register(TaskContext task) {
    long id = task.taskAttemptId();
    tasks.put(id, task);
    TaskCompletionListener remove = done -> tasks.remove(id);
    task.addTaskCompletionListener(remove);
  }

  void stop() {
    try {
      channel.close();
      Files.deleteIfExists(Path.of(address()));
      Files.deleteIfExists(folder);
    } catch (IOException error) {
      LOG.debug("Cannot remove {}", folder, error);
    }
  }

  private void accept() {
    while (channel.isOpen()) {
      try {
        SocketChannel worker = channel.accept();
        startThread("headwater-state", () -> new StateConnection(worker, this::handleOf).run());
      } catch (IOException error) {
        LOG.debug("No longer accepting connections", error);
        return;
      }
    }
  }

  private static void startThread(String name, Runnable body) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    thread.start();
  }

  /** A worker's task and its processor's handle, which Spark's runner for this worker holds. */
  record Found(TaskContext task, StatefulProcessorHandleImpl handle) {}

  /** Find the handle by the task and by the address of Spark's own state server; a task may have several. */
  private Found handleOf(long taskId, String sparkServer) throws ReflectiveOperationException {
    TaskContext task = tasks.get(taskId);
    if (task == null) {
      throw new NoSuchFieldException("task " + taskId);
    }
    Iterable<?> listeners = Reflection.field(task, "onCompleteCallbacks");
    synchronized (task) {
      for (Object listener : listeners) {
        TransformWithStateInPySparkPythonBaseRunner<?> runner = captured(listener, 2);
        if (runner != null && sparkServer.equals(addressOf(runner))) {
          return new Found(task, Reflection.field(runner, "processorHandle"));
        }
      }
    }
    throw new NoSuchFieldException("runner with the state server " + sparkServer);
  }

  private static String addressOf(Object runner) throws ReflectiveOperationException {
    String path = Reflection.call(runner, "stateServerSocketPath");
    return path != null ? path : Reflection.call(runner, "stateServerSocketPort").toString();
  }

  /** Return the runner among the values that a listener's closures have captured. */
  private static TransformWithStateInPySparkPythonBaseRunner<?> captured(Object closure, int depth)
      throws ReflectiveOperationException {
    for (Field field : closure.getClass().getDeclaredFields()) {
      if (field.getType().isPrimitive() || !field.trySetAccessible()) {
        continue;
      }
      Object value = field.get(closure);
      if (value instanceof TransformWithStateInPySparkPythonBaseRunner<?> runner) {
        return runner;
      }
      if (depth > 1 && value instanceof scala.Function1) {
        TransformWithStateInPySparkPythonBaseRunner<?> runner = captured(value, depth - 1);
        if (runner != null) {
          return runner;
        }
      }
    }
    return null;
  }
}
