package headwater.hadoop;

import java.lang.reflect.Field;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapred.JobConf;

/**
 * The defaults of Hadoop for YARN and MapReduce clusters: two thirds of a configuration, and of no use for local files.
 *
 * Spark copies the session's configuration for every batch, and sends it to the tasks once for each source and state store.
 */
public final class ClusterDefaults {
  private static final Set<String> FILES = Set.of("yarn-default.xml", "mapred-default.xml", "hdfs-default.xml");

  private ClusterDefaults() {}

  /** Removes the settings that nobody has set, and returns how many there were. */
  public static int remove(Configuration conf) throws ReflectiveOperationException {
    new JobConf(false); // the first use of this class adds the files to every configuration
    Map<String, String> kept = new LinkedHashMap<>();
    for (Map.Entry<String, String> setting : conf) {
      String[] sources = conf.getPropertySources(setting.getKey());
      if (sources == null || !FILES.contains(sources[sources.length - 1])) {
        kept.put(setting.getKey(), conf.getRaw(setting.getKey()));
      }
    }
    int removed = conf.size() - kept.size();
    conf.clear();
    kept.forEach(conf::set);
    // Otherwise all files are read again whenever some class of Hadoop adds one.
    Field loadsDefaults = Configuration.class.getDeclaredField("loadDefaults");
    loadsDefaults.setAccessible(true);
    loadsDefaults.setBoolean(conf, false);
    return removed;
  }
}
