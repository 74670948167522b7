package headwater.streaming;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.unsafe.types.CalendarInterval;
import scala.Option;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The sources of a query that has several, and its watermarks. Spark's reports contain the global watermark only. */
final class Streams {
  private final Object execution;

  Streams(Object execution) {
    this.execution = execution;
  }

  /** Returns the names of the sources in the offset log, in the order of Spark's reports; empty if unknown. */
  List<String> ids() {
    try {
      Seq<?> streams = Reflection.call(execution, "sources");
      List<String> ids = new ArrayList<>();
      for (Object stream : CollectionConverters.asJava(streams)) {
        ids.add(idOf(stream));
      }
      return ids.contains(null) ? List.of() : ids;
    } catch (ReflectiveOperationException | RuntimeException unknown) {
      return List.of();
    }
  }

  /** Returns the newest event time of each withWatermark so far, as headwater.checkpoint.record.OperatorWatermark. */
  ArrayNode watermarks() {
    ArrayNode found = JsonNodeFactory.instance.arrayNode();
    try {
      scala.collection.Map<?, Option<Object>> reached =
          Reflection.call(Reflection.call(execution, "watermarkTracker"), "watermarkMap");
      collect(Reflection.call(execution, "logicalPlan"), CollectionConverters.asJava(reached), found);
      return found;
    } catch (ReflectiveOperationException | RuntimeException unknown) {
      return JsonNodeFactory.instance.arrayNode();
    }
  }

  private void collect(Object plan, Map<?, Option<Object>> reached, ArrayNode found)
      throws ReflectiveOperationException {
    if (plan.getClass().getSimpleName().equals("EventTimeWatermark")) {
      CalendarInterval delay = Reflection.call(plan, "delay");
      long delayMs = (long) plan.getClass().getMethod("getDelayMs", CalendarInterval.class).invoke(null, delay);
      Option<Object> watermark = reached.get(Reflection.call(plan, "nodeId"));
      ObjectNode operator = found.addObject();
      operator.put("source", sourceOf(plan));
      operator.put("column", Reflection.<String>call(Reflection.call(plan, "eventTime"), "name"));
      operator.put("delay_ms", delayMs);
      operator.put(
          "max_event_time_ms",
          watermark == null || watermark.isEmpty() ? null : (Long) ((Number) watermark.get()).longValue() + delayMs);
    }
    Seq<?> children = Reflection.call(plan, "children");
    for (Object child : CollectionConverters.asJava(children)) {
      collect(child, reached, found);
    }
  }

  /** Returns the name of the only source below a node; null if there are several. */
  private String sourceOf(Object plan) throws ReflectiveOperationException {
    Set<String> found = new HashSet<>();
    Seq<?> leaves = Reflection.call(plan, "collectLeaves");
    for (Object leaf : CollectionConverters.asJava(leaves)) {
      switch (leaf.getClass().getSimpleName()) {
        case "StreamingExecutionRelation" -> found.add(idOf(Reflection.call(leaf, "source")));
        case "StreamingDataSourceV2ScanRelation" -> found.add(idOf(Reflection.call(leaf, "stream")));
        default -> {}
      }
    }
    return found.size() == 1 ? found.iterator().next() : null;
  }

  private String idOf(Object stream) throws ReflectiveOperationException {
    for (Map.Entry<String, Object> entry : named().entrySet()) {
      if (entry.getValue().equals(stream)) {
        return entry.getKey();
      }
    }
    return null;
  }

  /** Returns the sources by their names in the offset log: positions before Spark 4.2. */
  private Map<String, Object> named() throws ReflectiveOperationException {
    try {
      scala.collection.Map<String, Object> named = Reflection.call(execution, "sourceIdMap");
      return CollectionConverters.asJava(named);
    } catch (NoSuchMethodException olderRelease) {
      Map<String, Object> byPosition = new LinkedHashMap<>();
      Seq<?> streams = Reflection.call(execution, "sources");
      for (Object stream : CollectionConverters.asJava(streams)) {
        byPosition.put(String.valueOf(byPosition.size()), stream);
      }
      return byPosition;
    }
  }
}
