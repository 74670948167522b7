package headwater.sql;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import java.io.Serializable;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.catalyst.json.JSONOptions;
import org.apache.spark.sql.catalyst.json.JacksonParser;
import org.apache.spark.sql.catalyst.util.BadRecordException;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.BinaryType$;
import org.apache.spark.sql.types.ObjectType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Function2;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One JSON object a record, read by the parser behind Spark's from_json, but from the bytes themselves.
 *
 * Spark's function makes a reader with a buffer of 8 kB for every record, which takes longer than reading a short one, and
 * it says nothing of what follows the first value.
 */
public final class JsonObjects implements Serializable {
  private final StructType schema;
  private final HashMap<String, String> options;
  private final String timeZone;

  private transient JacksonParser parser;
  private transient boolean more;

  private JsonObjects(StructType schema, Map<String, String> options, String timeZone) {
    this.schema = schema;
    this.options = new HashMap<>(options);
    this.timeZone = timeZone;
  }

  /** A struct of the schema's fields; null where the bytes are not one JSON object of that kind, and nothing else. */
  public static Column column(Column bytes, StructType schema, Map<String, String> options, String timeZone) {
    StructType nullable = schema.asNullable();
    JsonObjects reader = new JsonObjects(nullable, options, timeZone);
    Expression target = Literal.fromObject(reader, new ObjectType(JsonObjects.class));
    Expression read = new Invoke(
        target,
        "read",
        nullable,
        seq(ExpressionUtils.expression(bytes)),
        JsonObjects.<AbstractDataType>seq(BinaryType$.MODULE$),
        true,
        true,
        true);
    return ExpressionUtils.column(read);
  }

  public InternalRow read(byte[] record) {
    if (isOtherEncoding(record) || !UTF8String.fromBytes(record).isValid()) {
      return null;
    }
    if (parser == null) {
      scala.collection.immutable.Map<String, String> chosen =
          scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options));
      parser = new JacksonParser(schema, new JSONOptions(chosen, timeZone, ""), false, JsonObjects.<Filter>seq());
    }
    more = false;
    Function2<JsonFactory, byte[], JsonParser> open = this::open;
    Function1<byte[], UTF8String> literal = UTF8String::fromBytes;
    try {
      scala.collection.Iterator<InternalRow> rows = parser.parse(record, open, literal).iterator();
      InternalRow row = rows.hasNext() ? rows.next() : null;
      return more ? null : row;
    } catch (Exception error) {
      if (error instanceof BadRecordException) {
        return null;
      }
      throw error;
    }
  }

  @SafeVarargs
  private static <T> Seq<T> seq(T... items) {
    return CollectionConverters.asScala(List.of(items)).toSeq();
  }

  /** What Jackson would take for another encoding than UTF-8: a byte order mark, or a zero among the first two bytes. */
  private static boolean isOtherEncoding(byte[] record) {
    return record.length > 1 && (record[0] == 0 || record[1] == 0 || record[0] == (byte) 0xEF);
  }

  private JsonParser open(JsonFactory factory, byte[] record) {
    try {
      return new ToTheEnd(factory.createParser(record, 0, record.length));
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public String toString() {
    return "json_objects";
  }

  /** Looks for what follows when Spark's parser has what it wants. */
  private final class ToTheEnd extends JsonParserDelegate {
    private ToTheEnd(JsonParser bytes) {
      super(bytes);
    }

    @Override
    public void close() throws IOException {
      try {
        more = delegate.nextToken() != null;
      } catch (IOException error) {
        more = true;
      }
      delegate.close();
    }
  }
}
