package headwater.streaming;

import java.lang.reflect.Field;
import java.lang.reflect.Method;

/** Reads Spark's private classes by the names of their members, because their packages differ between releases. */
public final class Reflection {
  private Reflection() {}

  @SuppressWarnings("unchecked")
  public static <T> T call(Object target, String method) throws ReflectiveOperationException {
    Method found = target.getClass().getMethod(method);
    found.setAccessible(true);
    return (T) found.invoke(target);
  }

  @SuppressWarnings("unchecked")
  public static <T> T field(Object target, String name) throws ReflectiveOperationException {
    for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
      for (Field field : type.getDeclaredFields()) {
        if (field.getName().equals(name)) {
          field.setAccessible(true);
          return (T) field.get(target);
        }
      }
    }
    throw new NoSuchFieldException(target.getClass().getName() + "." + name);
  }
}
