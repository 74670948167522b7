package headwater.sql;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.util.JsonParserDelegate;
import java.io.IOException;
import java.io.Serializable;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
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
 * Parses records of one JSON object each, with the parser behind Spark's from_json, directly from their bytes.
 *
 * Spark's function creates a reader with a buffer of 8 kB for every record, which takes longer than parsing a short one.
 * It also ignores what follows the first value. Flat records do not need the parser at all.
 */
public final class JsonObjects implements Serializable {
  /** Options that do not change how a value is read. */
  private static final Set<String> PLAIN_OPTIONS =
      Set.of("mode", "columnNameOfCorruptRecord", "columnPruning", "allowTrailingComma");

  private final StructType schema;
  private final HashMap<String, String> options;
  private final String timeZone;
  private final boolean allowTrailingComma;

  private transient JacksonParser parser;
  private transient FlatObjects flat;
  private transient boolean hasTrailingInput;

  private JsonObjects(
      StructType schema, Map<String, String> options, String timeZone, boolean allowTrailingComma) {
    this.schema = schema;
    this.options = new HashMap<>(options);
    this.timeZone = timeZone;
    this.allowTrailingComma = allowTrailingComma;
  }

  /**
   * Returns a struct with the schema's fields; null unless the bytes are exactly one JSON object that matches them.
   *
   * With allowTrailingComma, one comma may follow the object.
   */
  public static Column column(
      Column bytes, StructType schema, Map<String, String> options, String timeZone, boolean allowTrailingComma) {
    StructType nullable = schema.asNullable();
    JsonObjects reader = new JsonObjects(nullable, options, timeZone, allowTrailingComma);
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
    if (parser == null) {
      createParser();
    }
    byte[] object = allowTrailingComma ? withoutTrailingComma(record) : record;
    InternalRow row = flat == null ? null : flat.read(object);
    return row == null ? parse(record, object) : row;
  }

  private void createParser() {
    scala.collection.immutable.Map<String, String> chosen =
        scala.collection.immutable.Map$.MODULE$.from(CollectionConverters.asScala(options));
    JSONOptions understood = new JSONOptions(chosen, timeZone, "");
    parser = new JacksonParser(schema, understood, false, JsonObjects.<Filter>seq());
    boolean hasDefaults = PLAIN_OPTIONS.containsAll(options.keySet())
        && understood.timestampFormatInRead().isEmpty()
        && understood.dateFormatInRead().isEmpty();
    flat = hasDefaults ? FlatObjects.of(schema, timeZone.equals("UTC")) : null;
  }

  private InternalRow parse(byte[] record, byte[] object) {
    if (isOtherEncoding(record) || !UTF8String.fromBytes(record).isValid()) {
      return null;
    }
    hasTrailingInput = false;
    Function2<JsonFactory, byte[], JsonParser> open = this::open;
    Function1<byte[], UTF8String> literal = UTF8String::fromBytes;
    try {
      scala.collection.Iterator<InternalRow> rows = parser.parse(object, open, literal).iterator();
      InternalRow row = rows.hasNext() ? rows.next() : null;
      return hasTrailingInput ? null : row;
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

  /** Whether Jackson would assume an encoding other than UTF-8: a byte order mark, or a zero in the first two bytes. */
  private static boolean isOtherEncoding(byte[] record) {
    return record.length > 1 && (record[0] == 0 || record[1] == 0 || record[0] == (byte) 0xEF);
  }

  /** Returns the bytes before a comma that only white space follows; all bytes if there is no such comma. */
  private static byte[] withoutTrailingComma(byte[] record) {
    int last = record.length - 1;
    while (last >= 0 && FlatObjects.isBlank(record[last])) {
      last--;
    }
    return last >= 0 && record[last] == ',' ? Arrays.copyOf(record, last) : record;
  }

  private JsonParser open(JsonFactory factory, byte[] record) {
    try {
      return new TrailingInputParser(factory.createParser(record, 0, record.length));
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  @Override
  public String toString() {
    return "json_objects";
  }

  /** Checks for trailing input when Spark's parser closes it. */
  private final class TrailingInputParser extends JsonParserDelegate {
    private TrailingInputParser(JsonParser bytes) {
      super(bytes);
    }

    @Override
    public void close() throws IOException {
      try {
        hasTrailingInput = delegate.nextToken() != null;
      } catch (IOException error) {
        hasTrailingInput = true;
      }
      delegate.close();
    }
  }
}
