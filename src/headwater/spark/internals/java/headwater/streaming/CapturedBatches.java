package headwater.streaming;

import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.api.java.function.VoidFunction2;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonGenerator;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.QueryExecution;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A foreachBatch function that keeps the rows of every batch as JSON, as to_json writes them, nulls included.
 *
 * The rows are collected by the job that computes the batch. A function in Python would plan another query for them.
 */
public final class CapturedBatches implements VoidFunction2<Dataset<Row>, Long> {
  private final List<String> captured = new ArrayList<>();
  private volatile Runnable before;
  private volatile Runnable after;

  /** Sets what runs before and after the output of every batch; null for nothing. */
  public void surround(Runnable before, Runnable after) {
    this.before = before;
    this.after = after;
  }

  @Override
  public void call(Dataset<Row> batch, Long id) {
    if (before != null) {
      before.run();
    }
    QueryExecution execution = ((org.apache.spark.sql.classic.Dataset<Row>) batch).queryExecution();
    // Spark passes a plan around the rows; to run that plan would post a query of its own.
    RDD<InternalRow> rows = execution.logical() instanceof LogicalRDD given ? given.rdd() : execution.toRdd();
    // Spark reuses the memory of a row for the next one.
    List<InternalRow> collected = rows.toJavaRDD().map(InternalRow::copy).collect();
    String timeZone = batch.sparkSession().conf().get("spark.sql.session.timeZone");
    String texts = asJson(batch.schema(), collected, timeZone);
    synchronized (captured) {
      captured.add("[" + id + "," + texts + "]");
    }
    if (after != null) {
      after.run();
    }
  }

  /** Returns whether Spark has what this class calls. */
  public static boolean works() {
    try {
      LogicalRDD.class.getMethod("rdd");
      org.apache.spark.sql.classic.Dataset.class.getMethod("queryExecution");
      InternalRow row = new GenericInternalRow(new Object[] {null});
      return asJson(new StructType().add("a", "int"), List.of(row), "UTC").equals("[{\"a\":null}]");
    } catch (ReflectiveOperationException | LinkageError error) {
      return false;
    }
  }

  /** Returns [[batch id, [row, ...]], ...] for all batches since the last call. */
  public String take() {
    synchronized (captured) {
      String all = "[" + String.join(",", captured) + "]";
      captured.clear();
      return all;
    }
  }

  /** Returns the rows as a JSON array. */
  public static String asJson(StructType schema, List<InternalRow> rows, String timeZone) {
    Map<String, String> options = Map.of("ignoreNullFields", "false");
    StringWriter out = new StringWriter();
    JacksonGenerator generator = new JacksonGenerator(
        schema, out, new JSONOptions(Map$.MODULE$.from(CollectionConverters.asScala(options)), timeZone, ""));
    out.write("[");
    String separator = "";
    for (InternalRow row : rows) {
      out.write(separator);
      generator.write(row);
      generator.flush();
      separator = ",";
    }
    return out.append("]").toString();
  }
}
