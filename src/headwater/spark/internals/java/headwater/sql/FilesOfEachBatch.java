package headwater.sql;

import java.lang.reflect.InvocationTargetException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.datasources.FileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.PartitionDirectory;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Lists a table's files once in every micro-batch, when Spark plans it; Spark's own index keeps the list of the start.
 *
 * All uses of the table in a batch see the same files. Outside of a streaming query, every use lists them.
 */
public final class FilesOfEachBatch implements FileIndex {
  private static final String RUN_ID = "spark.jobGroup.id";
  private static final String BATCH_ID = "streaming.sql.batchId";

  private final HadoopFsRelation relation;
  private FileIndex files;
  private String listedFor;

  public FilesOfEachBatch(HadoopFsRelation relation) {
    this.relation = relation;
    this.files = relation.location();
  }

  private synchronized FileIndex listed() {
    SparkContext context = relation.sparkSession().sparkContext();
    String batch = context.getLocalProperty(BATCH_ID);
    // A batch that runs again after a restart has the same id in another run.
    String current = batch == null ? null : context.getLocalProperty(RUN_ID) + " " + batch;
    if (current == null || !current.equals(listedFor)) {
      refresh();
      listedFor = current;
    }
    return files;
  }

  @Override
  public synchronized void refresh() {
    // The index of a file sink's log reads the log once, and its refresh does nothing.
    if (files.getClass().getSimpleName().equals("MetadataLogFileIndex")) {
      files = readLogAgain();
    } else {
      files.refresh();
    }
  }

  /** Creates an index of the same class, whose package differs between versions of Spark. */
  private FileIndex readLogAgain() {
    SparkSession session = relation.sparkSession();
    Option<StructType> schema = Option.apply(relation.schema());
    try {
      return (FileIndex) files.getClass().getConstructors()[0]
          .newInstance(session, files.rootPaths().head(), relation.options(), schema);
    } catch (InvocationTargetException error) {
      throw new IllegalStateException(error.getCause().getMessage(), error.getCause());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public Seq<PartitionDirectory> listFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    return listed().listFiles(partitionFilters, dataFilters);
  }

  /** Spark reads the size before it lists the files, to choose between the kinds of joins. */
  @Override
  public long sizeInBytes() {
    return listed().sizeInBytes();
  }

  @Override
  public String[] inputFiles() {
    return listed().inputFiles();
  }

  @Override
  public Seq<Path> rootPaths() {
    return files.rootPaths();
  }

  @Override
  public StructType partitionSchema() {
    return files.partitionSchema();
  }

  @Override
  public Option<Object> metadataOpsTimeNs() {
    return files.metadataOpsTimeNs();
  }

  @Override
  public String toString() {
    return files + " listed in each batch";
  }
}
