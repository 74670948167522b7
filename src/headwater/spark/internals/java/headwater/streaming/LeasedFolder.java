package headwater.streaming;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.RandomAccessFile;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;

/** The folder _headwater/ of a checkpoint: small files, and the lease. */
abstract class LeasedFolder {
  enum Outcome {
    ACQUIRED,
    /** By headwater run, or a job that this program started: it keeps its own record. */
    HELD_BY_JOB,
    /** By the listener of another session of this program, which releases it soon. */
    HELD_BY_LISTENER,
    HELD_ELSEWHERE
  }

  static final String RECORD = "lease.json";
  static final String PROGRESS = "progress.jsonl";

  private volatile boolean isHeld;

  static LeasedFolder of(String checkpoint, Configuration conf) {
    org.apache.hadoop.fs.Path root = new org.apache.hadoop.fs.Path(checkpoint);
    String scheme = root.toUri().getScheme();
    return scheme == null || scheme.equals("file")
        ? new Local(Path.of(root.toUri().getPath(), "_headwater"))
        : new Remote(new org.apache.hadoop.fs.Path(root, "_headwater"), conf);
  }

  final boolean isHeld() {
    return isHeld;
  }

  final Outcome acquire(Lease lease) throws IOException {
    Outcome outcome = tryAcquire(lease);
    isHeld = outcome == Outcome.ACQUIRED;
    return outcome;
  }

  final void close() throws IOException {
    if (isHeld) {
      isHeld = false;
      release();
    }
  }

  final String holder() throws IOException {
    return Lease.describe(Lease.parse(read(RECORD)));
  }

  abstract boolean isRemote();

  abstract byte[] read(String name) throws IOException;

  abstract void write(String name, byte[] data) throws IOException;

  abstract void append(String line) throws IOException;

  abstract void flush() throws IOException;

  /** Replaces the record of the lease that is held. */
  abstract void renew(Lease lease) throws IOException;

  protected abstract Outcome tryAcquire(Lease lease) throws IOException;

  protected abstract void release() throws IOException;

  /** On a local disk, the lease is a file lock of this JVM. */
  private static final class Local extends LeasedFolder {
    private static final String OLDER = "progress.older.jsonl";
    private static final int MOST_LINES = 10_000;

    private final Path folder;
    private RandomAccessFile lock;
    private String registered;
    private long lines = -1;

    Local(Path folder) {
      this.folder = folder;
    }

    @Override
    boolean isRemote() {
      return false;
    }

    @Override
    protected Outcome tryAcquire(Lease lease) throws IOException {
      Files.createDirectories(folder);
      Path path = folder.resolve("lease.lock");
      // Closing any handle of a file releases all locks that the process has on it, so a file that this JVM has locked
      // must not be opened. The checkpoint_lock module uses the same registry.
      String key = "headwater.lock." + path.toFile().getCanonicalPath();
      Object held = System.getProperties().putIfAbsent(key, "attached");
      if (held != null) {
        return held.equals("attached") ? Outcome.HELD_BY_LISTENER : Outcome.HELD_BY_JOB;
      }
      registered = key;
      try {
        lock = new RandomAccessFile(path.toFile(), "rw");
        if (lock.getChannel().tryLock() == null) {
          release();
          return Outcome.HELD_ELSEWHERE;
        }
        write(RECORD, lease.toBytes());
        return Outcome.ACQUIRED;
      } catch (IOException | RuntimeException error) {
        release();
        throw error;
      }
    }

    @Override
    void renew(Lease lease) throws IOException {
      write(RECORD, lease.toBytes());
    }

    @Override
    protected void release() throws IOException {
      try {
        if (lock != null) {
          lock.close();
        }
      } finally {
        lock = null;
        System.getProperties().remove(registered);
      }
    }

    @Override
    byte[] read(String name) throws IOException {
      Path path = folder.resolve(name);
      return Files.exists(path) ? Files.readAllBytes(path) : null;
    }

    @Override
    void write(String name, byte[] data) throws IOException {
      Path draft = folder.resolve("." + name + ".headwater.tmp");
      Files.write(draft, data);
      Files.move(draft, folder.resolve(name), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE);
    }

    @Override
    void append(String line) throws IOException {
      Path path = folder.resolve(PROGRESS);
      if (lines < 0) {
        lines = countLines(path);
      }
      if (lines >= MOST_LINES) {
        Files.move(path, folder.resolve(OLDER), StandardCopyOption.REPLACE_EXISTING);
        lines = 0;
      }
      byte[] data = line.getBytes(StandardCharsets.UTF_8);
      Files.write(path, data, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      lines++;
    }

    @Override
    void flush() {}

    private static long countLines(Path path) throws IOException {
      if (!Files.exists(path)) {
        return 0;
      }
      try (Stream<String> found = Files.lines(path, StandardCharsets.ISO_8859_1)) {
        return found.count();
      }
    }
  }

  /** Elsewhere, the lease is a record with a heartbeat, and the progress file is written again every few seconds. */
  private static final class Remote extends LeasedFolder {
    private static final int MOST_LINES = 500;
    private static final long BEAT_MS = 5_000;

    private final org.apache.hadoop.fs.Path folder;
    private final Configuration conf;
    private final ArrayDeque<String> lines = new ArrayDeque<>();
    private boolean hasNews;
    private Lease lease;
    private long beatMs;

    Remote(org.apache.hadoop.fs.Path folder, Configuration conf) {
      this.folder = folder;
      this.conf = conf;
    }

    @Override
    boolean isRemote() {
      return true;
    }

    @Override
    protected Outcome tryAcquire(Lease wanted) throws IOException {
      JsonNode record = Lease.parse(read(RECORD));
      if (Lease.isFresh(record)) {
        if (!wanted.isOfSameProcess(record)) {
          return Outcome.HELD_ELSEWHERE;
        }
        return record.path("attached").asBoolean() ? Outcome.HELD_BY_LISTENER : Outcome.HELD_BY_JOB;
      }
      lease = wanted;
      beat();
      keepLines(read(PROGRESS));
      return Outcome.ACQUIRED;
    }

    /** Puts the lines of earlier runs before those of this one. */
    private void keepLines(byte[] written) {
      if (written == null) {
        return;
      }
      List<String> earlier = new String(written, StandardCharsets.UTF_8).lines().toList();
      synchronized (lines) {
        for (int index = earlier.size() - 1; index >= 0 && lines.size() < MOST_LINES; index--) {
          lines.addFirst(earlier.get(index) + "\n");
        }
      }
    }

    @Override
    void renew(Lease next) throws IOException {
      lease = next;
      beat();
    }

    private void beat() throws IOException {
      beatMs = System.currentTimeMillis();
      write(RECORD, lease.toBytes());
    }

    @Override
    protected void release() throws IOException {
      writeProgress();
      system().delete(new org.apache.hadoop.fs.Path(folder, RECORD), false);
    }

    @Override
    byte[] read(String name) throws IOException {
      try (InputStream in = system().open(new org.apache.hadoop.fs.Path(folder, name))) {
        return in.readAllBytes();
      } catch (FileNotFoundException missing) {
        return null;
      }
    }

    @Override
    void write(String name, byte[] data) throws IOException {
      try (OutputStream out = system().create(new org.apache.hadoop.fs.Path(folder, name), true)) {
        out.write(data);
      }
    }

    @Override
    void append(String line) {
      synchronized (lines) {
        lines.add(line);
        if (lines.size() > MOST_LINES) {
          lines.remove();
        }
        hasNews = true;
      }
    }

    @Override
    void flush() throws IOException {
      if (System.currentTimeMillis() - beatMs >= BEAT_MS) {
        beat();
        writeProgress();
      }
    }

    private void writeProgress() throws IOException {
      String text;
      synchronized (lines) {
        if (!hasNews) {
          return;
        }
        hasNews = false;
        text = String.join("", lines);
      }
      write(PROGRESS, text.getBytes(StandardCharsets.UTF_8));
    }

    private FileSystem system() throws IOException {
      return folder.getFileSystem(conf);
    }
  }
}
