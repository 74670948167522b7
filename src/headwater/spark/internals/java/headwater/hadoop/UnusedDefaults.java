package headwater.hadoop;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;

/** The defaults of MapReduce, YARN and HDFS: two thirds of a configuration that Spark copies and serializes in every batch. */
public final class UnusedDefaults {
  private static final Set<String> FILES = Set.of("mapred-default.xml", "yarn-default.xml", "hdfs-default.xml");
  private static final List<String> SITE = List.of("core-site.xml", "hdfs-site.xml", "mapred-site.xml", "yarn-site.xml");

  private UnusedDefaults() {}

  /**
   * Removes the entries that only those defaults set, and returns how many there were.
   *
   * A configuration for a cluster of Hadoop stays as it is: some class may need more of it.
   */
  public static int remove(Configuration configuration) throws ReflectiveOperationException {
    if (SITE.stream().anyMatch(file -> configuration.getResource(file) != null)) {
      return 0;
    }
    Class.forName("org.apache.hadoop.mapred.JobConf"); // loading it adds two of the files to every configuration
    List<String> unused = new ArrayList<>();
    Map<String, String> kept = new HashMap<>();
    for (Map.Entry<String, String> entry : configuration) {
      String[] sources = configuration.getPropertySources(entry.getKey());
      if (sources != null && FILES.containsAll(List.of(sources))) {
        unused.add(entry.getKey());
      } else {
        kept.put(entry.getKey(), configuration.getRaw(entry.getKey()));
      }
    }
    if (unused.isEmpty()) {
      return 0;
    }
    // Otherwise the entries return when any other class of Hadoop adds a file. What is set stays.
    kept.forEach(configuration::set);
    Field loadDefaults = Configuration.class.getDeclaredField("loadDefaults");
    loadDefaults.setAccessible(true);
    loadDefaults.setBoolean(configuration, false);
    unused.forEach(configuration::unset);
    return unused.size();
  }
}
