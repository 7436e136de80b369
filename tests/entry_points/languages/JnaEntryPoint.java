// SPDX-License-Identifier: Apache-2.0

import com.sun.jna.NativeLibrary;
import com.sun.jna.ptr.IntByReference;

/** JnaEntryPoint cuda|nvml LIBRARY: opens the driver as Java programs do and prints what it answers. */
public final class JnaEntryPoint {
  private JnaEntryPoint() {}

  public static void main(String[] arguments) {
    NativeLibrary library = NativeLibrary.getInstance(arguments[1]);
    IntByReference count = new IntByReference(-7);
    if (arguments[0].equals("cuda")) {
      int init = library.getFunction("cuInit").invokeInt(new Object[] {0});
      int rc = library.getFunction("cuDeviceGetCount").invokeInt(new Object[] {count});
      System.out.println("cuInit=" + init + " countRc=" + rc);
    } else {
      int init = library.getFunction("nvmlInit_v2").invokeInt(new Object[0]);
      int rc = library.getFunction("nvmlDeviceGetCount_v2").invokeInt(new Object[] {count});
      System.out.println("nvmlInit=" + init + " countRc=" + rc + " count=" + count.getValue());
    }
  }
}
