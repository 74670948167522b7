package headwater.state;

import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.StatefulProcessorHandleImpl;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;

/** The state of one partition while a processor runs, and the calls that a worker makes on it. */
final class ProcessorState {
  /** Calls without a result. */
  private static final byte SET_KEY = 1;
  private static final byte UPDATE = 2;
  private static final byte CLEAR = 3;
  private static final byte PUT = 4;
  private static final byte APPEND_LIST = 5;
  private static final byte APPEND_VALUE = 6;
  private static final byte UPDATE_VALUE = 7;
  private static final byte REMOVE_KEY = 8;
  private static final byte REGISTER_TIMER = 9;
  private static final byte DELETE_TIMER = 10;
  /** Calls with a result, one at most in a request. */
  private static final byte SYNC = 20;
  private static final byte READ = 21;
  private static final byte READ_ENTRY = 22;
  private static final byte NEXT_ELEMENTS = 23;
  private static final byte NEXT_EXPIRED = 24;
  private static final byte PREFETCH = 25;
  private static final byte DEFINE = 26;
  private static final byte DELETE_IF_EXISTS = 27;

  private static final Map<Byte, String> NAMES =
      Map.of(
          SET_KEY, "set_implicit_key", UPDATE, "update", CLEAR, "clear", PUT, "put", APPEND_LIST, "append_list",
          APPEND_VALUE, "append_value", UPDATE_VALUE, "update_value", REMOVE_KEY, "remove_key",
          REGISTER_TIMER, "register_timer", DELETE_TIMER, "delete_timer");

  private static final int MAX_PREFETCHED_BYTES = 1_000_000;
  private static final int MAX_ELEMENT_BYTES = 1_000_000;

  private final StatefulProcessorHandleImpl handle;
  private final RowFormat keys;
  private final List<StateVariable> variables = new ArrayList<>();
  private final Map<Integer, Iterator<?>> iterators = new HashMap<>();
  private Iterator<Tuple2<Object, Object>> expired;
  private byte call;

  ProcessorState(StatefulProcessorHandleImpl handle, ByteBuffer in) {
    this.handle = handle;
    keys = readFormat(in);
    variables.add(StateVariable.timers(handle));
  }

  String currentCall() {
    return NAMES.getOrDefault(call, "read");
  }

  void carryOut(ByteBuffer in, DataOutputStream out) throws IOException, ReflectiveOperationException {
    call = in.get();
    switch (call) {
      case SET_KEY -> setKey(in);
      case UPDATE -> variable(in).update(in);
      case CLEAR -> variable(in).clear();
      case PUT -> variable(in).put(in);
      case APPEND_LIST -> variable(in).appendList(in);
      case APPEND_VALUE -> variable(in).appendValue(in);
      case UPDATE_VALUE -> variable(in).updateValue(in);
      case REMOVE_KEY -> variable(in).removeKey(in);
      case REGISTER_TIMER -> handle.registerTimer(in.getLong());
      case DELETE_TIMER -> handle.deleteTimer(in.getLong());
      case SYNC -> {}
      case READ -> variable(in).read(out);
      case READ_ENTRY -> variable(in).readEntry(in, out);
      case NEXT_ELEMENTS -> nextElements(in, out);
      case NEXT_EXPIRED -> nextExpired(in, out);
      case PREFETCH -> prefetch(in, out);
      case DEFINE -> define(in);
      case DELETE_IF_EXISTS -> handle.deleteIfExists(readText(in));
      default -> throw new IllegalArgumentException("unknown call " + call);
    }
  }

  private void setKey(ByteBuffer in) {
    ImplicitGroupingKeyTracker.setImplicitKey(keys.read(in));
    iterators.clear();
  }

  private StateVariable variable(ByteBuffer in) {
    return variables.get(in.get());
  }

  private void define(ByteBuffer in) {
    byte kind = in.get();
    String name = readText(in);
    long timeToLive = in.getLong();
    TTLConfig expiry = timeToLive < 0 ? TTLConfig.NONE() : new TTLConfig(Duration.ofMillis(timeToLive));
    variables.add(
        switch (kind) {
          case 'v' -> StateVariable.value(handle, name, readFormat(in), expiry);
          case 'l' -> StateVariable.list(handle, name, readFormat(in), expiry);
          default -> StateVariable.map(handle, name, readFormat(in), readFormat(in), expiry);
        });
  }

  /** Send the variables of the next keys, until enough is sent. */
  private void prefetch(ByteBuffer in, DataOutputStream out) throws IOException {
    StateVariable[] wanted = new StateVariable[in.get()];
    for (int at = 0; at < wanted.length; at++) {
      wanted[at] = variable(in);
    }
    while (in.hasRemaining() && out.size() < MAX_PREFETCHED_BYTES) {
      setKey(in);
      for (StateVariable variable : wanted) {
        variable.read(out);
      }
    }
    in.position(in.limit());
  }

  private void nextElements(ByteBuffer in, DataOutputStream out) throws IOException {
    StateVariable variable = variable(in);
    Iterator<?> elements = iterators.computeIfAbsent(in.getInt(), id -> variable.elements());
    while (elements.hasNext() && out.size() < MAX_ELEMENT_BYTES) {
      out.writeByte(1);
      variable.writeElement(elements.next(), out);
    }
    out.writeByte(elements.hasNext() ? 2 : 0);
  }

  private void nextExpired(ByteBuffer in, DataOutputStream out) throws IOException, ReflectiveOperationException {
    long until = in.getLong();
    int count = in.getInt();
    if (expired == null) {
      expired = expiredTimers(until);
    }
    for (int at = 0; at < count && expired.hasNext(); at++) {
      Tuple2<Object, Object> timer = expired.next();
      out.writeLong((Long) timer._2());
      keys.writeSized((Row) timer._1(), out);
    }
  }

  /** Spark 4.2 added a second parameter, which Spark's own state server does not use either. */
  @SuppressWarnings("unchecked")
  private Iterator<Tuple2<Object, Object>> expiredTimers(long until) throws ReflectiveOperationException {
    for (Method method : handle.getClass().getMethods()) {
      if (method.getName().equals("getExpiredTimers")) {
        Object[] arguments = method.getParameterCount() == 1 ? new Object[] {until} : new Object[] {until, Option.empty()};
        return (Iterator<Tuple2<Object, Object>>) method.invoke(handle, arguments);
      }
    }
    throw new NoSuchMethodException("getExpiredTimers");
  }

  private static RowFormat readFormat(ByteBuffer in) {
    return new RowFormat((StructType) DataType.fromJson(readText(in)), readText(in));
  }

  static String readText(ByteBuffer in) {
    byte[] text = new byte[in.getInt()];
    in.get(text);
    return new String(text, StandardCharsets.UTF_8);
  }
}
