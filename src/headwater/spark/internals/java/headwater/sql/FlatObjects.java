package headwater.sql;

import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Reads flat JSON objects, as most records are, without a general parser: strings without escapes, numbers of up to 18
 * digits, times in ISO 8601, true, false and null.
 *
 * It never judges a record. Whatever is not of this form is left to Spark's parser, which accepts more, and alone decides
 * what is malformed. A record that is read here has the row that Spark's parser would return.
 */
final class FlatObjects {
  private static final int UNKNOWN_FIELD = -1;
  private static final int UNDECIDED = -2;
  private static final int MAX_DIGITS = 18;
  private static final int MAX_FLOAT_LENGTH = 32;
  private static final long MICROS_PER_SECOND = 1_000_000L;
  private static final Object NOT_READ = new Object();

  private enum Kind { STRING, INT, LONG, DOUBLE, BOOLEAN, TIMESTAMP, DATE, UNKNOWN }

  private final byte[][] names;
  private final Kind[] kinds;
  private final boolean isUtc;

  private byte[] bytes;
  private int at;
  private boolean isAscii;

  private FlatObjects(byte[][] names, Kind[] kinds, boolean isUtc) {
    this.names = names;
    this.kinds = kinds;
    this.isUtc = isUtc;
  }

  /** Returns a reader of records with the schema's fields; null if one of them is of a type that is never flat. */
  static FlatObjects of(StructType schema, boolean isUtc) {
    StructField[] fields = schema.fields();
    byte[][] names = new byte[fields.length][];
    Kind[] kinds = new Kind[fields.length];
    Set<String> distinct = new HashSet<>();
    for (int index = 0; index < fields.length; index++) {
      StructField field = fields[index];
      names[index] = field.name().getBytes(StandardCharsets.UTF_8);
      kinds[index] = kind(field.dataType().simpleString());
      // Metadata may hold a default for fields that are missing.
      boolean hasDefault = !field.metadata().json().equals("{}");
      if (kinds[index] == null || hasDefault || !distinct.add(field.name()) || needsEscapes(field.name())) {
        return null;
      }
    }
    return new FlatObjects(names, kinds, isUtc);
  }

  private static boolean needsEscapes(String name) {
    return name.chars().anyMatch(letter -> letter < ' ' || letter == '"' || letter == '\\');
  }

  private static Kind kind(String type) {
    return switch (type) {
      case "string" -> Kind.STRING;
      case "int" -> Kind.INT;
      case "bigint" -> Kind.LONG;
      case "double" -> Kind.DOUBLE;
      case "boolean" -> Kind.BOOLEAN;
      case "timestamp" -> Kind.TIMESTAMP;
      case "date" -> Kind.DATE;
      default -> null;
    };
  }

  /** Returns the row of a record; null if Spark's parser has to read it. */
  InternalRow read(byte[] record) {
    bytes = record;
    at = 0;
    isAscii = true;
    Object[] values = new Object[names.length];
    if (!readObject(values)) {
      return null;
    }
    skipBlanks();
    if (at != record.length || !(isAscii || UTF8String.fromBytes(record).isValid())) {
      return null;
    }
    return new GenericInternalRow(values);
  }

  private boolean readObject(Object[] values) {
    skipBlanks();
    if (!take('{')) {
      return false;
    }
    skipBlanks();
    if (take('}')) {
      return true;
    }
    int field = UNKNOWN_FIELD;
    do {
      skipBlanks();
      field = readName(field + 1);
      skipBlanks();
      if (field == UNDECIDED || !take(':')) {
        return false;
      }
      skipBlanks();
      Object value = readValue(field == UNKNOWN_FIELD ? Kind.UNKNOWN : kinds[field]);
      if (value == NOT_READ) {
        return false;
      }
      if (field != UNKNOWN_FIELD) {
        values[field] = value;
      }
      skipBlanks();
    } while (take(','));
    return take('}');
  }

  /** Returns the field whose name is next. Most records have their fields in the order of the schema. */
  private int readName(int expected) {
    if (expected < names.length && isQuoted(names[expected])) {
      at += names[expected].length + 2;
      return expected;
    }
    int start = at + 1;
    int end = endOfString();
    if (end < 0) {
      return UNDECIDED;
    }
    at = end + 1;
    for (int index = 0; index < names.length; index++) {
      if (names[index].length == end - start && matches(names[index], start)) {
        return index;
      }
    }
    return UNKNOWN_FIELD;
  }

  private boolean isQuoted(byte[] name) {
    int end = at + name.length + 1;
    return end < bytes.length && bytes[at] == '"' && bytes[end] == '"' && matches(name, at + 1);
  }

  private boolean matches(byte[] expected, int start) {
    for (int index = 0; index < expected.length; index++) {
      if (bytes[start + index] != expected[index]) {
        return false;
      }
    }
    return true;
  }

  private Object readValue(Kind kind) {
    if (at >= bytes.length) {
      return NOT_READ;
    }
    byte first = bytes[at];
    if (first == '"') {
      return readString(kind);
    }
    if (first == '-' || isDigit(first)) {
      return readNumber(kind);
    }
    if (takeWord("null")) {
      return null;
    }
    boolean isBoolean = kind == Kind.BOOLEAN || kind == Kind.UNKNOWN;
    if (isBoolean && takeWord("true")) {
      return Boolean.TRUE;
    }
    return isBoolean && takeWord("false") ? Boolean.FALSE : NOT_READ;
  }

  private Object readString(Kind kind) {
    int start = at + 1;
    int end = endOfString();
    if (end < 0) {
      return NOT_READ;
    }
    at = end + 1;
    return switch (kind) {
      case STRING -> UTF8String.fromBytes(bytes, start, end - start);
      case TIMESTAMP -> timestamp(start, end);
      case DATE -> end - start == 10 ? date(start) : NOT_READ;
      case UNKNOWN -> null;
      default -> NOT_READ;
    };
  }

  /** Returns where the string that starts here has its closing quote; -1 if it has none, or escapes or control characters. */
  private int endOfString() {
    if (at >= bytes.length || bytes[at] != '"') {
      return -1;
    }
    for (int index = at + 1; index < bytes.length; index++) {
      byte octet = bytes[index];
      if (octet == '"') {
        return index;
      }
      if (octet < ' ') {
        if (octet >= 0) {
          return -1;
        }
        isAscii = false;
      }
      if (octet == '\\') {
        return -1;
      }
    }
    return -1;
  }

  private Object readNumber(Kind kind) {
    int start = at;
    boolean isNegative = take('-');
    int digits = at;
    long magnitude = 0;
    while (at < bytes.length && isDigit(bytes[at])) {
      magnitude = magnitude * 10 + (bytes[at] - '0');
      at++;
    }
    int count = at - digits;
    boolean hasLeadingZero = count > 1 && bytes[digits] == '0';
    if (count == 0 || count > MAX_DIGITS || hasLeadingZero) {
      return NOT_READ;
    }
    if (at < bytes.length && (bytes[at] == '.' || bytes[at] == 'e' || bytes[at] == 'E')) {
      return readFloat(start, kind);
    }
    long value = isNegative ? -magnitude : magnitude;
    return switch (kind) {
      case INT -> value == (int) value ? (Object) (int) value : NOT_READ;
      case LONG -> value;
      case DOUBLE -> isNegative && magnitude == 0 ? NOT_READ : (Object) (double) value;
      case UNKNOWN -> null;
      default -> NOT_READ;
    };
  }

  private Object readFloat(int start, Kind kind) {
    if (take('.') && !takeDigits()) {
      return NOT_READ;
    }
    if (take('e') || take('E')) {
      if (!take('+')) {
        take('-');
      }
      if (!takeDigits()) {
        return NOT_READ;
      }
    }
    if (kind == Kind.UNKNOWN) {
      return null;
    }
    if (kind != Kind.DOUBLE || at - start > MAX_FLOAT_LENGTH) {
      return NOT_READ;
    }
    double value = Double.parseDouble(new String(bytes, start, at - start, StandardCharsets.ISO_8859_1));
    return Double.isInfinite(value) ? NOT_READ : (Object) value;
  }

  /** Reads 2024-05-01T10:00:00, with a space instead of the T, up to six decimals, and Z at the end or none in UTC. */
  private Object timestamp(int start, int end) {
    boolean hasZone = end - start > 19 && bytes[end - 1] == 'Z';
    int last = hasZone ? end - 1 : end;
    if (last - start < 19 || !(hasZone || isUtc)) {
      return NOT_READ;
    }
    byte separator = bytes[start + 10];
    if ((separator != 'T' && separator != ' ') || bytes[start + 13] != ':' || bytes[start + 16] != ':') {
      return NOT_READ;
    }
    int hour = number(start + 11, 2);
    int minute = number(start + 14, 2);
    int second = number(start + 17, 2);
    if (hour < 0 || hour > 23 || minute < 0 || minute > 59 || second < 0 || second > 59) {
      return NOT_READ;
    }
    long micros = 0;
    int decimals = last - start - 20;
    if (last - start > 19) {
      if (bytes[start + 19] != '.' || decimals < 1 || decimals > 6) {
        return NOT_READ;
      }
      micros = number(start + 20, decimals);
      if (micros < 0) {
        return NOT_READ;
      }
      for (int missing = decimals; missing < 6; missing++) {
        micros *= 10;
      }
    }
    if (!(date(start) instanceof Integer days)) {
      return NOT_READ;
    }
    long seconds = ((days * 24L + hour) * 60 + minute) * 60 + second;
    return seconds * MICROS_PER_SECOND + micros;
  }

  /** Returns the days since 1970 of a date between the years 1600 and 9999. */
  private Object date(int start) {
    int year = number(start, 4);
    int month = number(start + 5, 2);
    int day = number(start + 8, 2);
    if (bytes[start + 4] != '-' || bytes[start + 7] != '-' || year < 1600 || month < 1 || month > 12 || day < 1) {
      return NOT_READ;
    }
    if (day > daysOf(year, month)) {
      return NOT_READ;
    }
    // Counted from March, so that a leap day is the last of its year.
    int shifted = month > 2 ? year : year - 1;
    int century = shifted / 100;
    int daysBeforeMonth = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5;
    return 365 * shifted + shifted / 4 - century + century / 4 + daysBeforeMonth + day - 719_469;
  }

  private static int daysOf(int year, int month) {
    if (month == 2) {
      boolean isLeap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
      return isLeap ? 29 : 28;
    }
    return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
  }

  /** Returns the number of so many digits; -1 if one of the bytes is not a digit. */
  private int number(int start, int digits) {
    int value = 0;
    for (int index = start; index < start + digits; index++) {
      if (!isDigit(bytes[index])) {
        return -1;
      }
      value = value * 10 + (bytes[index] - '0');
    }
    return value;
  }

  private void skipBlanks() {
    while (at < bytes.length && isBlank(bytes[at])) {
      at++;
    }
  }

  private boolean take(char expected) {
    if (at < bytes.length && bytes[at] == expected) {
      at++;
      return true;
    }
    return false;
  }

  private boolean takeWord(String word) {
    if (at + word.length() > bytes.length) {
      return false;
    }
    for (int index = 0; index < word.length(); index++) {
      if (bytes[at + index] != word.charAt(index)) {
        return false;
      }
    }
    at += word.length();
    return true;
  }

  private boolean takeDigits() {
    int start = at;
    while (at < bytes.length && isDigit(bytes[at])) {
      at++;
    }
    return at > start;
  }

  static boolean isBlank(byte octet) {
    return octet == ' ' || octet == '\t' || octet == '\r' || octet == '\n';
  }

  private static boolean isDigit(byte octet) {
    return octet >= '0' && octet <= '9';
  }
}
