// SPDX-License-Identifier: Apache-2.0

import com.sun.jna.NativeLibrary;
import com.sun.jna.ptr.IntByReference;

/** JnaEntryPoint LIBRARY: opens the driver as Java programs do and prints what it answers. */
public final class JnaEntryPoint {
  private JnaEntryPoint() {}

  public static void main(String[] arguments) {
    NativeLibrary library = NativeLibrary.getInstance(arguments[0]);
    IntByReference count = new IntByReference(-7);
    int init = library.getFunction("cuInit").invokeInt(new Object[] {0});
    int rc = library.getFunction("cuDeviceGetCount").invokeInt(new Object[] {count});
    System.out.println("cuInit=" + init + " countRc=" + rc);
  }
}
