// SPDX-License-Identifier: Apache-2.0
// A program of .NET asks for CUDA, in its first thread and in four others, between exceptions.
using System;
using System.Linq;
using System.Runtime.InteropServices;
using System.Threading;

static class Asks
{
    [DllImport("libcuda.so.1")]
    static extern int cuInit(uint flags);

    static void Ask()
    {
        try { throw new Exception("cuInit=" + cuInit(0)); }
        catch (Exception e) { Console.WriteLine(e.Message); }
    }

    static void Main()
    {
        Ask();
        var threads = Enumerable.Range(0, 4).Select(_ => new Thread(Ask)).ToList();
        threads.ForEach(thread => thread.Start());
        threads.ForEach(thread => thread.Join());
    }
}
