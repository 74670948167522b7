package headwater.hadoop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, except that Java sets the permissions of files.
 *
 * Without its native library, Hadoop starts a chmod process for every file and every checksum file that it creates.
 */
public final class ShellFreeLocalFileSystem extends LocalFileSystem {
  public ShellFreeLocalFileSystem() {
    super(new Raw());
  }

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      if (permission.getStickyBit()) { // Java cannot set sticky bits
        super.setPermission(path, permission);
        return;
      }
      try {
        Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
      } catch (UnsupportedOperationException noPosixFileSystem) {
        super.setPermission(path, permission);
      }
    }
  }
}
