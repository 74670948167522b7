package headwater.state;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple2;
import scala.collection.Iterator;

/** A variable of the current key: Spark's own, with its rows as bytes. Each kind has some of the calls. */
abstract class StateVariable {
  /** A list or map that is larger is not read as a whole. */
  private static final int MAX_BYTES = 32_768;

  /** Write the length of what follows and then the whole variable, or a length of -1 if it is large. */
  void read(DataOutputStream out) throws IOException {
    ByteArrayOutputStream whole = new ByteArrayOutputStream(64);
    DataOutputStream elementsOut = new DataOutputStream(whole);
    Iterator<?> elements = elements();
    while (elements.hasNext()) {
      Object element = elements.next();
      if (whole.size() <= MAX_BYTES) { // even then to the end, because only this closes the iterator of the store
        writeElement(element, elementsOut);
      }
    }
    boolean complete = whole.size() <= MAX_BYTES;
    out.writeInt(complete ? whole.size() : -1);
    if (complete) {
      whole.writeTo(out);
    }
  }

  Iterator<?> elements() {
    throw new UnsupportedOperationException();
  }

  void writeElement(Object element, DataOutputStream out) throws IOException {
    throw new UnsupportedOperationException();
  }

  void readEntry(ByteBuffer in, DataOutputStream out) throws IOException {
    throw new UnsupportedOperationException();
  }

  void update(ByteBuffer in) {
    throw new UnsupportedOperationException();
  }

  void put(ByteBuffer in) {
    throw new UnsupportedOperationException();
  }

  void appendList(ByteBuffer in) {
    throw new UnsupportedOperationException();
  }

  void appendValue(ByteBuffer in) {
    throw new UnsupportedOperationException();
  }

  void updateValue(ByteBuffer in) {
    throw new UnsupportedOperationException();
  }

  void removeKey(ByteBuffer in) {
    throw new UnsupportedOperationException();
  }

  void clear() {
    throw new UnsupportedOperationException();
  }

  static StateVariable value(StatefulProcessorHandleImpl handle, String name, RowFormat rows, TTLConfig expiry) {
    ValueState<Row> state = handle.getValueState(name, Encoders.row(rows.schema()), expiry);
    return new StateVariable() {
      @Override
      void read(DataOutputStream out) throws IOException {
        Row row = state.get();
        if (row == null) {
          out.writeInt(0);
        } else {
          rows.writeSized(row, out);
        }
      }

      @Override
      void update(ByteBuffer in) {
        state.update(rows.read(in));
      }

      @Override
      void clear() {
        state.clear();
      }
    };
  }

  static StateVariable list(StatefulProcessorHandleImpl handle, String name, RowFormat rows, TTLConfig expiry) {
    ListState<Row> state = handle.getListState(name, Encoders.row(rows.schema()), expiry);
    return new StateVariable() {
      @Override
      Iterator<?> elements() {
        return state.get();
      }

      @Override
      void writeElement(Object element, DataOutputStream out) throws IOException {
        rows.writeSized((Row) element, out);
      }

      private Row[] rowsOf(ByteBuffer in) {
        Row[] elements = new Row[in.getInt()];
        for (int at = 0; at < elements.length; at++) {
          elements[at] = rows.read(in);
        }
        return elements;
      }

      @Override
      void put(ByteBuffer in) {
        state.put(rowsOf(in));
      }

      @Override
      void appendList(ByteBuffer in) {
        state.appendList(rowsOf(in));
      }

      @Override
      void appendValue(ByteBuffer in) {
        state.appendValue(rows.read(in));
      }

      @Override
      void clear() {
        state.clear();
      }
    };
  }

  static StateVariable map(
      StatefulProcessorHandleImpl handle, String name, RowFormat keys, RowFormat values, TTLConfig expiry) {
    MapState<Row, Row> state =
        handle.getMapState(name, Encoders.row(keys.schema()), Encoders.row(values.schema()), expiry);
    return new StateVariable() {
      @Override
      Iterator<?> elements() {
        return state.iterator();
      }

      @Override
      void writeElement(Object element, DataOutputStream out) throws IOException {
        Tuple2<?, ?> entry = (Tuple2<?, ?>) element;
        keys.writeSized((Row) entry._1(), out);
        values.writeSized((Row) entry._2(), out);
      }

      @Override
      void readEntry(ByteBuffer in, DataOutputStream out) throws IOException {
        Row value = state.getValue(keys.read(in));
        if (value != null) {
          values.writeSized(value, out);
        }
      }

      @Override
      void updateValue(ByteBuffer in) {
        Row key = keys.read(in);
        state.updateValue(key, values.read(in));
      }

      @Override
      void removeKey(ByteBuffer in) {
        state.removeKey(keys.read(in));
      }

      @Override
      void clear() {
        state.clear();
      }
    };
  }

  /** The timers of the current key. */
  static StateVariable timers(StatefulProcessorHandleImpl handle) {
    return new StateVariable() {
      @Override
      Iterator<?> elements() {
        return handle.listTimers();
      }

      @Override
      void writeElement(Object element, DataOutputStream out) throws IOException {
        out.writeLong((Long) element);
      }
    };
  }
}
