package headwater.state;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One worker's requests: any number of changes, and at the end a read if the request asks for an answer.
 *
 * <p>A change that fails is reported by the next answer, and nothing after it is carried out. A worker asks for an answer
 * before its task ends, and a task that fails commits nothing.
 */
final class StateConnection implements Runnable {
  private static final Logger LOG = LoggerFactory.getLogger(StateConnection.class);

  /** Finds a task's state, or throws. */
  interface Finder {
    StateServer.Found find(long taskId, String sparkServer) throws ReflectiveOperationException;
  }

  private final SocketChannel channel;
  private final Finder finder;
  private final ByteArrayOutputStream answer = new ByteArrayOutputStream(65_536);
  private ByteBuffer request = ByteBuffer.allocate(65_536);
  private ProcessorState state;
  private String failure;

  StateConnection(SocketChannel channel, Finder finder) {
    this.channel = channel;
    this.finder = finder;
  }

  @Override
  public void run() {
    try (channel) {
      while (true) {
        receive();
        boolean answered = request.get() != 0;
        DataOutputStream out = new DataOutputStream(answer);
        answer.reset();
        out.writeInt(0); // the length, once it is known
        out.writeByte(0);
        if (failure == null) {
          carryOut(out);
        }
        if (answered) {
          send(out);
        }
      }
    } catch (EOFException end) {
      LOG.debug("A worker closed its connection");
    } catch (IOException error) {
      LOG.debug("Lost the connection to a worker", error);
    }
  }

  private void carryOut(DataOutputStream out) throws IOException {
    try {
      if (state == null) {
        connect();
      }
      while (request.hasRemaining()) {
        state.carryOut(request, out);
      }
    } catch (IOException error) {
      throw error;
    } catch (Exception | LinkageError | AssertionError error) {
      LOG.info("Request failed", error);
      failure = (state == null ? "" : state.currentCall()) + ": " + error.getMessage();
    }
  }

  private void connect() throws ReflectiveOperationException {
    StateServer.Found found = finder.find(request.getLong(), ProcessorState.readText(request));
    state = new ProcessorState(found.handle(), request);
    TaskCompletionListener close = done -> close();
    found.task().addTaskCompletionListener(close);
  }

  private void close() {
    try {
      channel.close();
    } catch (IOException error) {
      LOG.debug("Cannot close a connection", error);
    }
  }

  private void receive() throws IOException {
    ByteBuffer length = ByteBuffer.allocate(4);
    readFully(length);
    int size = length.flip().getInt();
    if (request.capacity() < size) {
      request = ByteBuffer.allocate(size);
    }
    readFully(request.clear().limit(size));
    request.flip();
  }

  private void readFully(ByteBuffer buffer) throws IOException {
    while (buffer.hasRemaining()) {
      if (channel.read(buffer) < 0) {
        throw new EOFException();
      }
    }
  }

  private void send(DataOutputStream out) throws IOException {
    if (failure != null) {
      answer.reset();
      out.writeInt(0);
      out.writeByte(1);
      out.write(failure.getBytes(java.nio.charset.StandardCharsets.UTF_8));
    }
    ByteBuffer frame = ByteBuffer.wrap(answer.toByteArray());
    frame.putInt(0, frame.capacity() - 4);
    while (frame.hasRemaining()) {
      channel.write(frame);
    }
  }
}
