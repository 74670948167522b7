package headwater.state;

import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;
import org.slf4j.LoggerFactory;

/** Starts a state server in every executor, and tells the Python workers of its tasks where it is. */
public final class StatePlugin implements SparkPlugin {
  /** A local property of each task, which Spark passes on to Python workers. */
  static final String ADDRESS = "headwater.state.server";

  @Override
  public DriverPlugin driverPlugin() {
    return null;
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new ExecutorPlugin() {
      private StateServer server;

      @Override
      public void init(PluginContext context, Map<String, String> extraConf) {
        try {
          server = StateServer.start();
        } catch (Exception | LinkageError error) {
          LoggerFactory.getLogger(StatePlugin.class).info("Custom state is exchanged by Spark's own server", error);
        }
      }

      @Override
      public void onTaskStart() {
        TaskContext task = TaskContext.get();
        if (server != null && task != null) {
          server.register(task);
          // Tasks of a stage may share their properties, so the value is the same for all of them.
          task.getLocalProperties().setProperty(ADDRESS, server.address());
        }
      }

      @Override
      public void shutdown() {
        if (server != null) {
          server.stop();
        }
      }
    };
  }
}
