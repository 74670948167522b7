package headwater.state;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.python.PythonSQLUtils;
import org.apache.spark.sql.catalyst.CatalystTypeConverters;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Rows as bytes, as the Python class of the same name writes and reads them.
 *
 * <p>The first byte is 1 if one byte per field follows, 0 for null and 1 before a value in the field's format, and 0 if
 * the length of a pickled row and the row follow, in the form that Spark's own state server understands.
 */
final class RowFormat {
  private final StructType schema;
  /** A character for each field, or none if rows of this schema are pickled. */
  private final char[] formats;

  private final ExpressionEncoder.Deserializer<Row> toRow;

  private final ByteArrayOutputStream buffer = new ByteArrayOutputStream(64);
  private final DataOutputStream sized = new DataOutputStream(buffer);

  RowFormat(StructType schema, String formats) {
    this.schema = schema;
    this.formats = formats.toCharArray();
    ExpressionEncoder<Row> encoder = ExpressionEncoder.apply(schema);
    toRow =
        encoder.resolveAndBind(encoder.resolveAndBind$default$1(), encoder.resolveAndBind$default$2()).createDeserializer();
  }

  StructType schema() {
    return schema;
  }

  Row read(ByteBuffer in) {
    if (in.get() == 0) {
      byte[] pickled = new byte[in.getInt()];
      in.get(pickled);
      return PythonSQLUtils.toJVMRow(pickled, schema, toRow);
    }
    Object[] values = new Object[formats.length];
    for (int at = 0; at < values.length; at++) {
      values[at] = in.get() == 0 ? null : readValue(formats[at], in);
    }
    return toRow.apply(new GenericInternalRow(values));
  }

  private static Object readValue(char format, ByteBuffer in) {
    switch (format) {
      case 's':
        byte[] text = new byte[in.getInt()];
        in.get(text);
        return UTF8String.fromBytes(text);
      case 'q':
        return in.getLong();
      case 'i':
        return in.getInt();
      case 'h':
        return in.getShort();
      case 'b':
        return in.get();
      case 'd':
        return in.getDouble();
      case '?':
        return in.get() != 0;
      default:
        throw new IllegalArgumentException("unknown format " + format);
    }
  }

  /** Write a row after its length in bytes. */
  void writeSized(Row row, DataOutputStream out) throws IOException {
    buffer.reset();
    write(row, sized);
    out.writeInt(buffer.size());
    buffer.writeTo(out);
  }

  private void write(Row row, DataOutputStream out) throws IOException {
    if (formats.length == 0) {
      byte[] pickled = PythonSQLUtils.toPyRow(row);
      out.writeByte(0);
      out.writeInt(pickled.length);
      out.write(pickled);
      return;
    }
    out.writeByte(1);
    for (int at = 0; at < formats.length; at++) {
      Object value = row.get(at);
      out.writeByte(value == null ? 0 : 1);
      if (value != null) {
        writeValue(formats[at], value, out);
      }
    }
  }

  private static void writeValue(char format, Object value, DataOutputStream out) throws IOException {
    switch (format) {
      case 's':
        byte[] text = value.toString().getBytes(StandardCharsets.UTF_8);
        out.writeInt(text.length);
        out.write(text);
        break;
      case 'q': // timestamps, too
        out.writeLong(value instanceof Long number ? number : (Long) CatalystTypeConverters.convertToCatalyst(value));
        break;
      case 'i': // dates, too
        out.writeInt(value instanceof Integer number ? number : (Integer) CatalystTypeConverters.convertToCatalyst(value));
        break;
      case 'h':
        out.writeShort((Short) value);
        break;
      case 'b':
        out.writeByte((Byte) value);
        break;
      case 'd':
        out.writeDouble((Double) value);
        break;
      case '?':
        out.writeBoolean((Boolean) value);
        break;
      default:
        throw new IllegalArgumentException("unknown format " + format);
    }
  }
}
